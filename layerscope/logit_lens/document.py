"""How a reading of the lens is shown: grids of predictions, where these settle, and how sure they are."""

from collections.abc import Callable
from itertools import chain, islice
from typing import TYPE_CHECKING

import pandas as pd

from layerscope.logit_lens import along_text, fidelity
from layerscope.metrics.saturation_layer import SATURATED
from layerscope.show.document import (
    Column,
    Document,
    Head,
    Part,
    Prediction,
    Section,
    Sentences,
    Table,
    TokenGrid,
)
from layerscope.show.numbers import chance
from layerscope.show.plain import plain
from layerscope.show.plots import Axis, Chart, Meaning

if TYPE_CHECKING:
    from layerscope.logit_lens.reading import Reading

SHOWN = 8
"""Samples whose grids are drawn; the curve is of all."""
ROWS = 64
"""Samples of a classifier that are shown."""
LONG = 300
"""Characters of a sample that name its row."""
SIGNS = str.maketrans({" ": "␣", "\n": "↵", "\r": "␍", "\t": "⇥", "\u00a0": "⍽"})
LEGENDS = {
    "next": "Each column is a token of the text; below it, what each layer predicts next.",
    "masked": "Each column is a masked token; below it, what each layer would put there.",
    "itself": "No token is masked: below each one is what each layer reads in its place.",
    "tag": "Each column is a token; below it, the tag each layer would give it.",
    "class": "Each row is a sample; beside it, the class each layer would give it.",
}
FROM_1 = "Layer 0 does not count: no block has run there."
SETTLED = f"The share of predictions whose most probable answer never changes again, by layer. {FROM_1}"
HEAD = (
    "Each layer's states go through all that the model runs after its last block; those of the last layer, final, give "
    "the model's own predictions."
)


def document(reading: "Reading") -> Document:
    """Return the reading as it is shown: a grid of predictions for each sample, and where they settle."""
    title = [reading.model]
    facts = [f"{reading.depth} layers"]
    if reading.part != "model":
        facts.append(reading.part)
    what = "new tokens" if reading.continuations else "predictions"
    total = f"{len(reading.counted):,} {what}"
    drawn = tuple(grids(reading))
    settled = _settled(reading, total)
    by_layer = reading.entropy
    by_part = along_text.tables(reading.parts, by_layer)
    along = along_text.section(by_part, by_layer, reading.depth)
    reasons = [*along_text.findings(reading.counted)]
    sections = list[Section]()
    tables = [*by_part, settled]
    if reading.tuned is not None:
        facts.append("tuned lens")
        reasons.append(fidelity.verdict(reading.tuned))
        divergences = fidelity.table(reading.tuned)
        tables.insert(0, divergences)
        parts = (divergences,)
        sections.append(Section("tuned", fidelity.TITLE, fidelity.LEAD, parts))
    curve = (_curve(reading, total), settled)
    averages = Section("settled", "Where predictions settle", SETTLED, curve), along
    predictions = Section("lens", "What each layer would predict", "", drawn)
    lead: tuple[Part, ...] = drawn
    if reading.data is None:
        sections += (predictions, *averages)
    else:
        title.append(reading.data)
        facts.append(f"{len(reading.samples):,} samples of {reading.data}")
        lead = (*tables,)
        sections += (*averages, predictions)
    notes = Sentences("Noted on the way:", reading.notes), Sentences("", (HEAD,))
    return Document(
        reading.summary,
        title=(*title,),
        facts=(*facts,),
        reasons=(*reasons,),
        parts=(*drawn, *tables),
        lead=lead,
        sections=(*sections,),
        details=notes,
        kind="readings",
        depth=reading.depth,
    )


def _settled(reading: "Reading", total: str) -> Table:
    columns = (
        Column("layer", field="layer"),
        Column("settled", field="share", form="{:.0%}".format),
    )
    title = f"Settled by layer (of {total})"
    return Table.of(
        reading.cumulative, columns, title, legend=(FROM_1,), name="settled-by-layer"
    )


def visible(text: str) -> str:
    """Return a token with its spaces and line ends to be seen, and what would steer a terminal spelt out.

    >>> visible(" the end")
    '␣the␣end'
    """
    return plain(text.translate(SIGNS))


def _curve(reading: "Reading", total: str) -> Chart:
    """Return the share of predictions that have settled, by layer."""
    shares = zip(reading.cumulative["layer"], reading.cumulative["share"], strict=True)
    return Chart.of(
        reading.cumulative,
        ("layer", Axis("layer", whole=True, depth=reading.depth)),
        ("share", Axis(f"% of {total}", range=(-3.0, 103.0), scale=100.0)),
        title="Settled by layer",
        summary=", ".join(f"{layer}: {chance(share)}" for layer, share in shares),
        about=Meaning(SATURATED.meaning, SATURATED.direction, SATURATED.source),
        unit="%",
        name="lens_saturation",
        overlaid=True,
    )


def grids(reading: "Reading") -> list[TokenGrid]:
    """Return a grid for each of the first samples, layers below each other; of a classifier one for all, beside."""
    layers = [*map(Head, map(str, range(reading.depth)))]
    layers.append(Head(f"{reading.depth} final"))
    if reading.kind == "class":
        return [_samples(reading, layers)]
    shown = range(min(SHOWN, len(reading.samples)))
    return [_tokens(reading, i, layers) for i in shown]


def _tokens(reading: "Reading", i: int, layers: list[Head]) -> TokenGrid:
    """Return the grid of one text: a column for each token that is read, a row for each layer."""
    name = reading.samples[i]
    grid = reading.grid[reading.grid["sample"] == name]
    settled = reading.saturation[reading.saturation["sample"] == name]
    tokens = settled["token"].map(visible)
    columns = map(Head, tokens, settled["position"].map(str), settled["generated"])
    foot = [("settles", (*settled["layer"].map(str),))]
    if reading.kind == "next" and settled["truth"].notna().any():
        foot.append(("next", (*settled["truth"].fillna("").map(visible),)))
    title = continuation = ""
    if reading.data is not None:
        title = plain(f"sample {name}" if name.isdigit() else name)
    if reading.continuations:
        continuation = plain(reading.continuations[i])
    return TokenGrid(
        title,
        plain(reading.texts[i]),
        continuation,
        "layer",
        (*columns,),
        tuple(zip(layers, _cells(grid, settled, visible), strict=True)),
        (*foot,),
        legend="" if i else LEGENDS[reading.kind],
    )


def _samples(reading: "Reading", layers: list[Head]) -> TokenGrid:
    """Return the grid of a classifier: a row for each of the first samples, a column for each layer."""
    total = len(reading.samples)
    shown = reading.saturation.iloc[:ROWS]
    per_sample = len(layers) * reading.top
    rows = []
    for i, text in enumerate(reading.texts[:ROWS]):
        grid = reading.grid.iloc[i * per_sample : (i + 1) * per_sample]
        cells = _cells(grid, shown.iloc[i : i + 1], plain)
        rows.append((Head(plain(text[:LONG])), (*chain(*cells),)))
    facts = [("settles", (*shown["layer"].map(str),))]
    if shown["truth"].notna().any():
        facts.insert(0, ("label", (*shown["truth"].map(str).map(plain),)))
    title = f"the first {ROWS} of {total:,} samples" if total > ROWS else ""
    return TokenGrid(
        title,
        "",
        "",
        "sample",
        (*layers,),
        (*rows,),
        facts=(*facts,),
        legend=LEGENDS[reading.kind],
    )


def _cells(
    grid: pd.DataFrame, settled: pd.DataFrame, shown: Callable[[str], str]
) -> list[tuple[Prediction, ...]]:
    """Return the cells of one sample, a row for each layer."""
    top = int(grid["rank"].max())
    rows = list[tuple[Prediction, ...]]()
    likely = zip(grid["prediction"].map(shown), grid["probability"], strict=True)
    for layer in grid["layer"].unique().tolist():
        cells = []
        for first in settled["layer"]:
            best = tuple(islice(likely, top))
            cells.append(Prediction(*best[0], best, layer == first))
        rows.append((*cells,))
    return rows
