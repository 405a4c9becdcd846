"""What the verb `lens` returns: the grid of predictions, and from which layer on each of them stays."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import pandas as pd

from layerscope.core.saved import Store, jsonable
from layerscope.logit_lens.document import document
from layerscope.show.document import Document
from layerscope.show.notebook import Shown

Kind = Literal["next", "masked", "itself", "tag", "class"]
NOUNS: dict[Kind, str] = {
    "next": "token", "masked": "masked token", "itself": "token", "tag": "token", "class": "sample",
}  # fmt: skip
GRID = ("sample", "position", "token", "generated", "layer", "rank", "prediction", "id", "probability")
SATURATION = (
    "sample", "position", "token", "generated", "counted", "layer", "prediction", "id", "probability", "truth",
)  # fmt: skip
STORE = Store(
    "reading of the lens", "lens.json", "run layerscope lens again",
    dict.fromkeys(("grid", "saturation", "cumulative"), {}), "csv",
)  # fmt: skip


@dataclass(frozen=True)
class Reading(Shown):
    """What every layer of a model would predict for some samples, by the model's own head.

    `kind` says what is predicted: the "next" token, the "masked" ones, each token "itself" (a masked language model
    that is given no mask), each token's "tag", or the sample's "class". Layers are 0 (what the first block reads) to
    `depth`, which is `final`: its predictions are the model's own.

    `grid` has a row for each sample, position, layer and rank (1 is the likeliest): `token` is the text read at the
    position (None of a class), `generated` whether the prediction was made to continue a text, `prediction` and its
    `id`, `probability`. `saturation` has a row for each sample and position: `layer` is the smallest from which the
    top prediction never changes again (1 … L; layer 0 does not count), `prediction` and `probability` are those of the
    last layer, `truth` the token or label that is known, None where none is; `counted` are those that `cumulative` and
    `summary` are about: the new tokens where a text was continued, else all.

    >>> reading = layerscope.lens("tiny-gpt2", "the food was good", progress=False)
    >>> reading.kind, reading.depth, len(reading.saturation)
    ('next', 3, 4)
    >>> reading.cumulative["layer"].tolist()
    [1, 2, 3]
    """

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

    @property
    def counted(self) -> pd.DataFrame:
        """The rows of `saturation` that the summary is about."""
        return self.saturation[self.saturation["counted"]]

    @property
    def cumulative(self) -> pd.DataFrame:
        """The share of predictions that have settled by each layer: columns `layer` (1 … L), `settled`, `share`."""
        layers = self.counted["layer"]
        settled = [int((layers <= layer).sum()) for layer in range(1, self.depth + 1)]
        shares = [count / len(layers) for count in settled]
        return pd.DataFrame({"layer": range(1, self.depth + 1), "settled": settled, "share": shares})

    @property
    def summary(self) -> str:
        """The answer in one line."""
        layers = self.counted["layer"]
        early, n = int((layers < self.depth).sum()), len(layers)
        what = ("new " if self.continued else "") + NOUNS[self.kind] + ("" if n == 1 else "s")
        verb = "settles" if early == 1 else "settle"
        mean = f"{layers.mean():.1f}".removesuffix(".0")
        return f"{early:,} of {n:,} {what} {verb} before the last layer; on average at layer {mean} of {self.depth}"

    @property
    def continued(self) -> bool:
        """Whether the model went on with the texts."""
        return bool(self.continuations)

    def document(self) -> Document:
        """Return the reading as it is shown."""
        return document(self)

    def as_dict(self) -> dict[str, Any]:
        """Return everything as JSON can hold it, tables as lists of rows."""
        found: dict[str, Any] = jsonable(self._facts() | self._frames())
        return found

    def save(self, folder: str | Path) -> Path:
        """Write `lens.json` and a CSV for each table into a folder and return it; a reading that is there is replaced.

        Raises `LayerscopeError` where the folder holds something else, or cannot be written.
        """
        return STORE.save(folder, self._facts(), self._frames())

    def _frames(self) -> dict[str, pd.DataFrame]:
        return {"cumulative": self.cumulative, "saturation": self.saturation, "grid": self.grid}

    def _facts(self) -> dict[str, Any]:
        names = ("model", "part", "data", "kind", "depth", "top", "samples", "texts", "continuations", "notes")
        facts = {name: getattr(self, name) for name in names}
        return {"summary": self.summary, "mean_layer": float(self.counted["layer"].mean())} | facts
