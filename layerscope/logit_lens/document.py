"""A reading of the lens as a document: a grid of predictions for each sample, and where they settle."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pandas as pd

from layerscope.show.document import (
    Cell,
    Column,
    Document,
    Head,
    Prediction,
    Section,
    Sentences,
    Table,
    TokenGrid,
    row,
)
from layerscope.show.numbers import chance
from layerscope.show.plain import plain
from layerscope.show.plots import Axis, Chart, Series

if TYPE_CHECKING:
    from layerscope.logit_lens.reading import Kind, Reading

SHOWN = 8
"""Samples whose grids are drawn; the curve is of all."""
ROWS = 64
"""Samples of a classifier that are shown."""
LONG = 300
"""Characters of a sample that name its row."""
SIGNS = str.maketrans({" ": "␣", "\n": "↵", "\r": "␍", "\t": "⇥", "\u00a0": "⍽"})
LEGENDS: dict[Kind, str] = {
    "next": "Each column is a token that is read; below it what each layer would say comes next.",
    "masked": "Each column is a masked token; below it what each layer would put there.",
    "itself": "No token is masked: below each one stands what each layer reads in its place.",
    "tag": "Each column is a token; below it the tag each layer would give it.",
    "class": "Each row is a sample; beside it the class each layer would give it.",
}
SETTLED = "The share of predictions whose most probable answer never changes again, by layer. Layer 0 does not count."
HEAD = (
    "Each layer's states go through all that the model runs after its last block; those of the last layer, final, give "
    "the model's own predictions."
)


def visible(text: str) -> str:
    """Return a token with its spaces and line ends to be seen, and what would steer a terminal spelt out."""
    return plain(text.translate(SIGNS))


def document(reading: Reading) -> Document:
    """Return a reading as it is shown."""
    part = [] if reading.part == "model" else [reading.part]
    data = [] if reading.data is None else [f"{len(reading.samples):,} samples of {reading.data}"]
    unseen = reading.kind != "class" and len(reading.samples) > SHOWN
    found, settled = tuple(grids(reading)), _settled(reading, unseen)
    return Document(
        reading.summary,
        title=(reading.model, *([reading.data] if reading.data else [])),
        facts=(f"{reading.depth} layers", *part, *data),
        parts=(*found, settled),
        notes=reading.notes,
        sections=(
            Section("lens", "What each layer would predict", "", found),
            Section("settled", "Where predictions settle", SETTLED, (_curve(reading), settled)),
        ),
        details=(Sentences("Noted on the way:", reading.notes), Sentences("", (HEAD,))),
        kind="readings",
        depth=reading.depth,
    )


def _counted(reading: Reading) -> str:
    return f"{len(reading.counted):,} {'new tokens' if reading.continued else 'predictions'}"


def _settled(reading: Reading, unseen: bool) -> Table:
    """Return the share of predictions that have settled by each layer."""
    rows = (
        row(
            Cell(str(found.layer), value=found.layer),
            Cell(f"{found.share:.0%}", value=found.share),
            Cell("", share=float(found.share)),
        )
        for found in reading.cumulative.itertuples()
    )
    more = len(reading.samples) - SHOWN
    legend = (f"{more:,} more samples, which are not shown above, are counted as well.",) if unseen else ()
    columns = (Column("layer"), Column("settled"), Column("", "left"))
    return Table(f"Settled by layer (of {_counted(reading)})", columns, tuple(rows), legend, name="settled-by-layer")


def _curve(reading: Reading) -> Chart:
    """Return the same as a curve."""
    table, total = reading.cumulative, _counted(reading)
    layers, shares = map(tuple, (table["layer"].astype(float), table["share"].astype(float)))
    texts = (f"layer {int(layer)}: {chance(share)} settled" for layer, share in zip(layers, shares, strict=True))
    return Chart(
        title="Settled by layer",
        summary=", ".join(f"{int(layer)}: {chance(share)}" for layer, share in zip(layers, shares, strict=True)),
        unit="%",
        name="lens_saturation",
        x=Axis("layer", whole=True, depth=reading.depth),
        y=Axis(f"% of {total}", range=(-3.0, 103.0), scale=100.0),
        series=(Series("", layers, shares, tuple(texts), note=f"N: {total}"),),
        overlaid=True,
    )


def grids(reading: Reading) -> list[TokenGrid]:
    """Return a grid for each of the first samples; of a classifier one for all."""
    if reading.kind == "class":
        return [_samples(reading)]
    return [_tokens(reading, i) for i in range(min(SHOWN, len(reading.samples)))]


def layer_name(layer: int, depth: int) -> str:
    """Return what a layer is called: the last is the model itself."""
    return f"{layer} final" if layer == depth else str(layer)


def _tokens(reading: Reading, i: int) -> TokenGrid:
    """Layers below each other, tokens beside each other."""
    name = reading.samples[i]
    grid, settled = (frame[frame["sample"] == name] for frame in (reading.grid, reading.saturation))
    cells = _cells(grid, settled, visible)
    columns = tuple(
        Head(visible(token), str(position), bool(generated))
        for token, position, generated in zip(settled["token"], settled["position"], settled["generated"], strict=True)
    )
    rows = tuple((Head(layer_name(layer, reading.depth)), row) for layer, row in enumerate(cells))
    foot = [("settles", tuple(str(layer) for layer in settled["layer"]))]
    if reading.kind == "next" and settled["truth"].notna().any():
        foot.append(("next", tuple(visible(truth) if isinstance(truth, str) else "" for truth in settled["truth"])))
    new = reading.continuations[i] if reading.continued else ""
    title = plain(name) if reading.data is not None else ""
    return TokenGrid(
        title, plain(reading.texts[i]), plain(new), "layer", columns, rows, tuple(foot),
        legend="" if i else LEGENDS[reading.kind],
    )  # fmt: skip


def _samples(reading: Reading) -> TokenGrid:
    """Samples below each other, layers beside each other."""
    names = reading.samples[:ROWS]
    shown = reading.saturation.iloc[: len(names)]
    per = (reading.depth + 1) * reading.top
    rows = []
    for i in range(len(names)):
        grid, settled = reading.grid.iloc[i * per : (i + 1) * per], shown.iloc[i : i + 1]
        cells = tuple(row[0] for row in _cells(grid, settled, plain))
        rows.append((Head(plain(reading.texts[i][:LONG])), cells))
    columns = tuple(Head(layer_name(layer, reading.depth)) for layer in range(reading.depth + 1))
    facts = [("settles", tuple(str(layer) for layer in shown["layer"]))]
    if shown["truth"].notna().any():
        facts.insert(0, ("label", tuple(plain(str(truth)) for truth in shown["truth"])))
    more = "" if len(names) == len(reading.samples) else f"the first {len(names)} of {len(reading.samples):,} samples"
    return TokenGrid(more, "", "", "sample", columns, tuple(rows), facts=tuple(facts), legend=LEGENDS[reading.kind])


def _cells(grid: pd.DataFrame, settled: pd.DataFrame, shown: object) -> list[tuple[Prediction, ...]]:
    """Return the cells of one sample, a row for each layer."""
    named = {text: shown(text) for text in grid["prediction"].unique()}  # type: ignore[operator]
    top, stays = int(grid["rank"].max()), settled["layer"].tolist()
    texts = [named[text] for text in grid["prediction"]]
    probabilities = grid["probability"].tolist()
    found: list[list[Prediction]] = []
    for start in range(0, len(grid), top):
        layer, column = divmod(start // top, len(stays))
        if column == 0:
            found.append([])
        tops = tuple(zip(texts[start : start + top], probabilities[start : start + top], strict=True))
        cell = Prediction(texts[start], probabilities[start], tops, layer == stays[column])
        found[-1].append(cell)
    return [tuple(row) for row in found]
