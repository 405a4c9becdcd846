"""What the verb `lens` returns: the grid of predictions, from which layer on each stays, and how both are shown.

A prediction *settles* at the layer from which on the likeliest answer never changes again. Of a
position where layers 0 to 4 give "a", "the", "a", "the" and "the", that is layer 3. The summary is
the mean of these layers over all positions, and how many settle before the last layer.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
import pandas as pd

from layerscope.core import Store, count
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
from layerscope.show.notebook import Shown
from layerscope.show.numbers import chance
from layerscope.show.plain import plain
from layerscope.show.plots import Axis, Chart, Meaning
from layerscope.show.pushed import Stored

Kind = Literal["next", "masked", "itself", "tag", "class"]
NOUNS = {"masked": "masked token", "class": "sample"}
GRID = {
    "sample": "object", "position": "int64", "token": "object", "generated": "bool", "layer": "int64", "rank": "int64",
    "prediction": "object", "id": "int64", "probability": "float64", "entropy": "float64",
}  # fmt: skip
SATURATION = {
    "sample": "object", "position": "int64", "token": "object", "generated": "bool", "third": "object",
    "phase": "object", "counted": "bool", "layer": "int64", "prediction": "object", "id": "int64",
    "probability": "float64", "truth": "object",
}  # fmt: skip
CUMULATIVE = {"layer": "int64", "settled": "int64", "share": "float64"}
STORE = Store(
    "reading of the lens",
    "lens.json",
    "run layerscope lens again",
    {
        "cumulative": CUMULATIVE,
        "parts": along_text.PARTS,
        "entropy": along_text.ENTROPY,
        "saturation": SATURATION,
        "grid": GRID,
    },
    "csv",
)

SHOWN = 8
"""Samples whose grids are drawn; the curve is of all."""
ROWS = 64
"""Samples of a classifier that are shown."""
LONG = 300
"""Characters of a sample that name its row."""
SIGNS = str.maketrans({" ": "␣", "\n": "↵", "\r": "␍", "\t": "⇥", "\u00a0": "⍽"})
LEGENDS: dict[Kind, str] = {
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


@dataclass(frozen=True)
class Reading(Stored):
    """What every layer of a model would predict for some samples, by the model's own head.

    `kind` says what is predicted: the "next" token, the "masked" ones, each token "itself" (a
    masked language model that is given no mask), each token's "tag", or the sample's "class".
    Layers are 0 (what the first block reads) to `depth`, which is `final`: its predictions are the
    model's own.

    `grid` has a row for each sample, position, layer and rank (1 is the likeliest): the `token`
    read at the position (None of a class), whether it was `generated`, and the `prediction` with
    its `id` and `probability`, beside the `entropy` of all that this layer predicts there, in nats.
    `saturation` has a row for each sample and position: `layer` is the
    smallest from which the top prediction never changes again (1 … L; layer 0 does not count),
    `prediction` that of the last layer, `truth` the known token or label, if any; `cumulative` and
    `summary` are about the `counted`: the new tokens where a text was continued, else all. Of a new
    token, `third` says where in its text it is (start, middle, end), and `phase` whether it belongs
    to the thinking or the answer, where the chat template's marks are there. `parts` has the mean
    layer of each part of the text, `entropy` the mean entropy by part and layer.

    Where it was read through translators, `tuned` has a row for each layer before the last, over
    all predictions: the divergence from the last layer's (nats) by the plain lens and by the tuned
    one, `kl_plain` and `kl_tuned`, and the number `n` of predictions.

    >>> reading = layerscope.lens("tiny-gpt2", "the food was good", progress=False)
    >>> reading.kind, reading.depth, len(reading.saturation)
    ('next', 3, 4)
    >>> reading.cumulative["layer"].tolist()
    [1, 2, 3]
    """

    STORE = STORE

    model: str
    part: str
    data: str | None
    kind: Kind
    depth: int
    top: int
    samples: tuple[str, ...]
    texts: tuple[str, ...]
    continuations: tuple[str, ...]
    grid: pd.DataFrame = field(repr=False)
    saturation: pd.DataFrame = field(repr=False)
    notes: tuple[str, ...] = ()
    tuned: pd.DataFrame | None = field(default=None, repr=False)
    folder: Path | None = None
    """Where it was opened from."""

    @property
    def counted(self) -> pd.DataFrame:
        """The rows of `saturation` that the summary is about."""
        return self.saturation[self.saturation["counted"]]

    @property
    def cumulative(self) -> pd.DataFrame:
        """The share of predictions that have settled by each layer: columns `layer` (1 … L), `settled`, `share`."""
        layers = np.arange(1, self.depth + 1)
        settled = (self.counted["layer"].to_numpy()[:, None] <= layers).sum(0)
        return pd.DataFrame(
            {"layer": layers, "settled": settled, "share": settled / len(self.counted)}
        )

    @property
    def summary(self) -> str:
        """The answer in one line."""
        layers = self.counted["layer"]
        mean = f"{layers.mean():.2f} ±{self.stderr:.2f}"
        if math.isnan(self.stderr):
            mean = f"{layers.mean():.1f}".removesuffix(".0")
        early = int((layers < self.depth).sum())
        noun = NOUNS.get(self.kind, "token")
        if self.continuations:
            noun = f"new {noun}"
        settle = "settles" if early == 1 else "settle"
        return (
            f"{early:,} of {count(len(layers), noun)} {settle} before the last layer; "
            f"on average at layer {mean} of 1–{self.depth}"
        )

    @property
    def stderr(self) -> float:
        """The standard error of the mean layer, for samples drawn anew (Cochran 1977, section 6.3).

        It is NaN for one.
        """
        return along_text.error_by_text(self.counted, "layer")

    @property
    def parts(self) -> pd.DataFrame:
        """Where tokens settle by part of the text: columns `part`, `n`, mean `layer`, its `stderr`, share `early`."""
        return along_text.settling(self.counted, self.depth)

    @property
    def entropy(self) -> pd.DataFrame:
        """The mean entropy of predictions, in nats, by `part` and `layer` (0 … L), with its `stderr` and `n`."""
        return along_text.entropies(self.counted, self.grid)

    def beside(self, others: Sequence[Shown]) -> "Reading":
        """Return it cut to as many new tokens of each text as the shortest reading that continued the same texts has.

        Later tokens are no longer `counted`, and thirds are those of what is left.
        """
        if not self.continuations:
            return self
        readings = [other for other in others if isinstance(other, Reading)]
        same_texts = [
            other.saturation
            for other in readings
            if other.continuations and other.texts == self.texts
        ]
        cut = along_text.at_equal_length(self.saturation, same_texts)
        kept = int(cut["counted"].sum())
        if kept in (0, len(self.counted)):
            return self
        note = (
            f"{kept:,} of {len(self.counted):,} new tokens count: "
            "of each text as many as the shortest reading has"
        )
        return replace(self, saturation=cut, notes=(*self.notes, note))

    def document(self) -> Document:
        """Return the reading as it is shown: a grid of predictions for each sample, and where they settle."""
        title = [self.model]
        facts = [f"{self.depth} layers"]
        if self.part != "model":
            facts.append(self.part)
        what = "new tokens" if self.continuations else "predictions"
        total = f"{len(self.counted):,} {what}"
        drawn = tuple(grids(self))
        settled = self._settled(total)
        along = along_text.section(self.parts, self.entropy, self.depth)
        reasons = [*along_text.findings(self.counted)]
        sections = list[Section]()
        tables = [*along_text.tables(self.parts, self.entropy), settled]
        if self.tuned is not None:
            facts.append("tuned lens")
            reasons.append(fidelity.verdict(self.tuned))
            sections.append(fidelity.section(self.tuned))
            tables.insert(0, fidelity.table(self.tuned))
        curve = (_curve(self, total), settled)
        averages = Section("settled", "Where predictions settle", SETTLED, curve), along
        predictions = Section("lens", "What each layer would predict", "", drawn)
        lead: tuple[Part, ...] = drawn
        if self.data is None:
            sections += (predictions, *averages)
        else:
            title.append(self.data)
            facts.append(f"{len(self.samples):,} samples of {self.data}")
            lead = (*tables,)
            sections += (*averages, predictions)
        notes = Sentences("Noted on the way:", self.notes), Sentences("", (HEAD,))
        return Document(
            self.summary,
            title=(*title,),
            facts=(*facts,),
            reasons=(*reasons,),
            parts=(*drawn, *tables),
            lead=lead,
            sections=(*sections,),
            details=notes,
            kind="readings",
            depth=self.depth,
        )

    def _settled(self, total: str) -> Table:
        columns = (
            Column("layer", field="layer"),
            Column("settled", field="share", form="{:.0%}".format),
        )
        title = f"Settled by layer (of {total})"
        return Table.of(
            self.cumulative, columns, title, legend=(FROM_1,), name="settled-by-layer"
        )

    def save(self, folder: str | Path) -> Path:
        """Write `lens.json` and a CSV for each table into a folder, empty or with an earlier reading, and return it."""
        facts, frames = self._parts()
        facts["predicted"] = facts.pop("kind")  # a file has a kind of its own
        return STORE.save(folder, facts, frames)

    def _parts(self) -> tuple[dict[str, Any], dict[str, pd.DataFrame]]:
        facts, frames = super()._parts()
        return {
            "summary": self.summary,
            "mean_layer": float(self.counted["layer"].mean()),
        } | facts, frames

    @classmethod
    def _made(
        cls, facts: dict[str, Any], frames: dict[str, pd.DataFrame], folder: Path
    ) -> Self:
        read = {"tuned": None, **facts, "kind": facts["predicted"]}
        for name in ("summary", "mean_layer", "predicted"):
            del read[name]
        empty = {"prediction": ""}
        if read["kind"] != "class":  # a token may be an empty text
            empty["token"] = ""
        tables = {}
        for name in ("grid", "saturation"):
            tables[name] = frames[name].fillna(empty)
        if read["tuned"] is not None:
            read["tuned"] = pd.DataFrame(list(read["tuned"]))
        return super()._made(read, tables, folder)


def open_reading(folder: str | Path) -> Reading:
    """Return the reading that was saved into a folder.

    Raises `LayerscopeError` for a folder without one, and for files that are damaged or changed
    since.

    >>> reading = layerscope.lens("tiny-gpt2", "the food was good", out="lens", progress=False)
    >>> open_reading("lens").summary == reading.summary
    True
    """
    return Reading.opened(folder)


def visible(text: str) -> str:
    """Return a token with its spaces and line ends to be seen, and what would steer a terminal spelt out.

    >>> visible(" the end")
    '␣the␣end'
    """
    return plain(text.translate(SIGNS))


def _curve(reading: Reading, total: str) -> Chart:
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


def grids(reading: Reading) -> list[TokenGrid]:
    """Return a grid for each of the first samples, layers below each other; of a classifier one for all, beside."""
    layers = [*map(Head, map(str, range(reading.depth)))]
    layers.append(Head(f"{reading.depth} final"))
    if reading.kind == "class":
        return [_samples(reading, layers)]
    shown = range(min(SHOWN, len(reading.samples)))
    return [_tokens(reading, i, layers) for i in shown]


def _tokens(reading: Reading, i: int, layers: list[Head]) -> TokenGrid:
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


def _samples(reading: Reading, layers: list[Head]) -> TokenGrid:
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
    likely = [*zip(grid["prediction"].map(shown), grid["probability"], strict=True)]
    start = 0
    while start < len(likely):
        layer = len(rows)
        cells = []
        for first in settled["layer"]:
            best = likely[start : start + top]
            cells.append(Prediction(*best[0], (*best,), layer == first))
            start += top
        rows.append((*cells,))
    return rows
