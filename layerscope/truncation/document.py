"""Truncated models as a document: a row for each depth, the full model below."""

from __future__ import annotations

from collections.abc import Sequence

from layerscope.show.document import Document, Table, columns, row
from layerscope.truncation.figures import Truncated

REBUILD = "Vectors of a truncated model are not comparable with those of the full model: rebuild your index."


def document(made: Sequence[Truncated]) -> Document:
    """Return truncated models of one model, the shallowest answering for what truncation gains."""
    first = made[0]
    scored = any(entry.score is not None for entry in made)
    rows = [
        row(
            f"{entry.layer} of {entry.depth}", f"{entry.parameters:,}", f"{entry.megabytes:,.1f}",
            f"{entry.milliseconds:.2f}", f"{entry.speedup:.2f}×", f"{entry.ideal:.2f}×",
            *([entry.shown()] if scored else []),
        )
        for entry in made
    ]  # fmt: skip
    full = row(
        "full model", f"{first.full_parameters:,}", f"{first.full_megabytes:,.1f}", f"{first.full_milliseconds:.2f}",
        "1×", "1×", *([first.shown(full=True)] if scored else []), quiet=True,
    )  # fmt: skip
    titles = ["layers", "parameters", "MB", "ms", "faster", "by operations", *([first.scored] if scored else [])]
    legend = [f"ms: per sample, {first.measured}."]
    if first.samples is not None and scored:
        legend.append(f"{first.scored}: {first.samples:,} samples of {first.data}.")
    return Document(
        answer(first),
        parts=(Table("", columns(titles), (*rows, full), tuple(legend)),),
        notes=(REBUILD,),
    )


def answer(made: Truncated) -> str:
    """Return in one line what a truncated model is, and what it gains over the full one."""
    size = made.megabytes / made.full_megabytes
    text = (
        f"{made.model}, layers 1 to {made.layer} of {made.depth}: {made.speedup:.2f}× as fast, {size:.0%} of the size"
    )
    if made.score is not None and made.full_score is not None:
        text += f"; {made.scored} {made.shown()}, full model {made.shown(full=True)}"
    return text
