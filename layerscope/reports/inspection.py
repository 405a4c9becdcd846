"""What `inspect` found, for a terminal."""

from __future__ import annotations

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from layerscope.models.inspection import Inspection


def show(found: Inspection, console: Console | None = None) -> None:
    """Print one part of a model: what was found, how, and how to say otherwise."""
    table = Table(show_header=False, box=None, pad_edge=False)
    table.add_column(style="bold")
    table.add_column()
    runs = len(found.blocks)
    unique = len(set(found.blocks))
    shared = f", one block run {runs} times" if unique == 1 and runs > 1 else ""
    unit = "seconds" if found.modality == "audio" else "tokens"
    facts = {
        "model": f"{found.model} ({found.kind}, {found.parameters:,} parameters, {found.dtype})",
        "reads": found.modality + (f", {found.max_length} {unit} at most" if found.max_length else ""),
        "part": found.part + (f" of {', '.join(found.parts)}" if len(found.parts) > 1 else ""),
        "layers": f"0 (what the first block reads) to {found.depth}, {found.width} wide",
        "blocks": f"{found.blocks[0]} … {found.blocks[-1]}{shared}, found by {found.found_by}",
        "sub-layers": ", ".join(found.sublayers) or "none found in the blocks",
        "final norm": found.norm or "none: states are taken as the blocks give them",
        "head": found.head or "none that reads this part",
        "attention": "causal: no token sees the next" if found.causal else "not causal",
        "pooling": f"auto is {', '.join(found.pooling)}",
        "a run takes": f"{found.bytes_per_sample / 1e3:.0f} kB on disk and {found.seconds_per_sample * 1e3:.1f} ms "
        "or so for a short sample",
        "override": "--part, --blocks PATH, --norm PATH (or none)",
    }
    for name, fact in facts.items():
        table.add_row(name, escape(fact))
    for note in found.notes:
        table.add_row("note", escape(note))
    (console or Console()).print(table)
