"""Truncated models in a terminal: one table, the full model beside them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from layerscope.reports.plain import plain

if TYPE_CHECKING:
    from layerscope.truncation import Truncated


def show(made: Sequence[Truncated], console: Console | None = None) -> None:
    """Print a row for each truncated model and one for the full one; every name is printed as it is."""
    console = console or Console()
    first = made[0]
    table = Table(box=box.SIMPLE, title=Text(plain(first.model), style="bold"), title_justify="left")
    scored = any(entry.score is not None for entry in made)
    heads = ["layer", "parameters", "MB", "ms", "faster", "by operations", *([first.scored] if scored else [])]
    for head in heads:
        table.add_column(head, justify="right")
    for entry in made:
        cells = [
            f"{entry.layer} of {entry.depth}", f"{entry.parameters:,}", f"{entry.megabytes:,.1f}",
            f"{entry.milliseconds:.2f}", f"{entry.speedup:.2f} ×", f"{entry.ideal:.2f} ×",
        ]  # fmt: skip
        table.add_row(*cells, *([entry.shown()] if scored else []))
    full = [
        "full model",
        f"{first.full_parameters:,}",
        f"{first.full_megabytes:,.1f}",
        f"{first.full_milliseconds:.2f}",
    ]
    table.add_row(*full, "1 ×", "1 ×", *([first.shown(full=True)] if scored else []))
    console.print(table)
    console.print(Text(f"ms: per sample, {plain(first.measured)}"), style="dim")
    if first.samples is not None and scored:
        console.print(Text(f"{first.scored}: {first.samples:,} samples of {plain(str(first.data))}"), style="dim")
    console.print("Vectors of a truncated model are not comparable with the full model's: rebuild your index.")
