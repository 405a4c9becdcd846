"""What the verb `lens` returns: the grid of predictions, and from which layer on each stays.

A prediction *settles* at the layer from which on the likeliest answer never changes again. Of a
position where layers 0 to 4 give "a", "the", "a", "the" and "the", that is layer 3. The summary is
the mean of these layers over all positions, and how many settle before the last layer.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
import pandas as pd

from layerscope.core import Store, count
from layerscope.logit_lens import along_text
from layerscope.show.notebook import Shown
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
    DOCUMENT = "layerscope.logit_lens.document"

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
        same_texts = [
            other.saturation
            for other in others
            if isinstance(other, Reading)
            and other.continuations
            and other.texts == self.texts
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
        del facts["summary"], facts["mean_layer"]
        facts["kind"] = facts.pop("predicted")
        empty = {"prediction": ""}
        if facts["kind"] != "class":  # a token may be an empty text
            empty["token"] = ""
        tables = {}
        for name in ("grid", "saturation"):
            tables[name] = frames[name].fillna(empty)
        if facts["tuned"] is not None:
            facts["tuned"] = pd.DataFrame(list(facts["tuned"]))
        return super()._made(facts, tables, folder)


def open_reading(folder: str | Path) -> Reading:
    """Return the reading that was saved into a folder.

    Raises `LayerscopeError` for a folder without one, and for files that are damaged or changed
    since.

    >>> reading = layerscope.lens("tiny-gpt2", "the food was good", out="lens", progress=False)
    >>> open_reading("lens").summary == reading.summary
    True
    """
    return Reading.opened(folder)
