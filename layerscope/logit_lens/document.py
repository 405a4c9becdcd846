"""A reading of the lens as sheets of cells, which terminal, page and figures draw."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pandas as pd

from layerscope.logit_lens.reading import Kind, Reading
from layerscope.show.plain import plain

SHOWN = 8
"""Samples whose grids are drawn; the curve is of all."""
ROWS = 64
"""Samples of a classifier that are shown."""
LONG = 300
"""Characters of a sample that name its row."""
SIGNS = str.maketrans({" ": "␣", "\n": "↵", "\r": "␍", "\t": "⇥", "\u00a0": "⍽"})
TOLD: dict[Kind, str] = {
    "next": "Each column is a token that is read; below it what each layer would say comes next.",
    "masked": "Each column is a masked token; below it what each layer would put there.",
    "itself": "No token is masked: below each one stands what each layer reads in its place.",
    "tag": "Each column is a token; below it the tag each layer would give it.",
    "class": "Each row is a sample; beside it the class each layer would give it.",
}


@dataclass(frozen=True)
class Cell:
    """A prediction: its text, its probability, the likeliest ones in words, and whether it stays as it is.

    `settles` marks the first of those that stay.
    """

    text: str
    probability: float
    tops: tuple[tuple[str, float], ...]
    settled: bool
    settles: bool


@dataclass(frozen=True)
class Head:
    """What a row or column is called; `marked` of new tokens, `note` a few words more."""

    text: str
    note: str = ""
    marked: bool = False


@dataclass(frozen=True)
class Sheet:
    """Rows of cells under columns; `foot` has a line of texts under the columns, `facts` a text of each row."""

    title: str
    text: str
    continuation: str
    corner: str
    columns: tuple[Head, ...]
    rows: tuple[tuple[Head, tuple[Cell, ...]], ...]
    foot: tuple[tuple[str, tuple[str, ...]], ...] = ()
    facts: tuple[tuple[str, tuple[str, ...]], ...] = ()


def visible(text: str) -> str:
    """Return a token with its spaces and line ends to be seen, and what would steer a terminal spelt out."""
    return plain(text.translate(SIGNS))


def sheets(reading: Reading) -> list[Sheet]:
    """Return a sheet for each of the first samples; of a classifier one for all."""
    if reading.kind == "class":
        return [_samples(reading)]
    return [_tokens(reading, i) for i in range(min(SHOWN, len(reading.samples)))]


def layer_name(layer: int, depth: int) -> str:
    """Return what a layer is called: the last is the model itself."""
    return f"{layer} final" if layer == depth else str(layer)


def _tokens(reading: Reading, i: int) -> Sheet:
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
    title = plain(name) if reading.data is not None else "prompt"
    return Sheet(title, plain(reading.texts[i]), plain(new), "layer", columns, rows, tuple(foot))


def _samples(reading: Reading) -> Sheet:
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
    more = "" if len(names) == len(reading.samples) else f", the first {len(names)} of {len(reading.samples):,}"
    return Sheet(f"samples{more}", "", "", "sample", columns, tuple(rows), facts=tuple(facts))


def _cells(grid: pd.DataFrame, settled: pd.DataFrame, shown: object) -> list[tuple[Cell, ...]]:
    """Return the cells of one sample, a row for each layer."""
    named = {text: shown(text) for text in grid["prediction"].unique()}  # type: ignore[operator]
    top, stays = int(grid["rank"].max()), settled["layer"].tolist()
    texts = [named[text] for text in grid["prediction"]]
    chances = grid["probability"].tolist()
    found: list[list[Cell]] = []
    for start in range(0, len(grid), top):
        layer, column = divmod(start // top, len(stays))
        if column == 0:
            found.append([])
        tops = tuple(zip(texts[start : start + top], chances[start : start + top], strict=True))
        cell = Cell(texts[start], chances[start], tops, layer >= stays[column], layer == stays[column])
        found[-1].append(cell)
    return [tuple(row) for row in found]


def listed(tops: Sequence[tuple[str, float]]) -> str:
    """Return the likeliest predictions in one line."""
    return " · ".join(f"{text} {percent(chance)}" for text, chance in tops)


def percent(share: float) -> str:
    """Return a probability in percent, without decimals but where it is small."""
    return f"{share:.0%}" if share >= 0.095 or share < 0.0005 else f"{share:.1%}"
