"""What `shrink` returns: what was kept, what that costs and gains, and the offers that were nearest."""

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from layerscope.core.errors import count, spans
from layerscope.core.saved import Store
from layerscope.show.pushed import Stored

STORE = Store("shrunk model", "shrunk.json", "run layerscope shrink again", {})


@dataclass(frozen=True)
class Offer:
    """A model of some blocks, counted from 1, on the samples that choices are made by.

    `cut_loss` before healing and `loss` are in points, `error` is the standard error of the last
    one; NaN is what was not measured. `speedup` and `megabytes` are those of a model that ends at as many layers.
    """

    kept: tuple[int, ...]
    speedup: float
    megabytes: float
    cut_loss: float = math.nan
    loss: float = math.nan
    error: float = math.nan
    healed: bool = False

    @property
    def indices(self) -> list[int]:
        """The blocks that are kept, counted from 0, as `write_cut` takes them."""
        return [block - 1 for block in self.kept]

    @property
    def text(self) -> str:
        """The offer in a line."""
        blocks = f"{count(len(self.kept), 'block')} ({spans(self.kept)})"
        text = f"{blocks}: {self.speedup:.2f}× as fast, {self.megabytes:.1f} MB"
        if math.isnan(self.cut_loss):
            return text
        loss = self.cut_loss
        how = "not healed"
        if self.healed:
            loss = self.loss
            how = f"healed, {signed(self.cut_loss)} before"
        return f"{text}, {signed(loss)} ±{self.error:.1f} points ({how})"


def signed(loss: float) -> str:
    """Return a loss as it changes a score, such as −1.2, and 0 with a plus."""
    return f"{0 - loss:+.1f}"


@dataclass(frozen=True)
class Shrunk(Stored):
    """A smaller model, or why there is none.

    `kept` are its blocks, counted from 1, of `depth`. `loss` in points and its standard error
    `error` are those of the model that was written, on `samples` held out, against the full model's
    score `full_score`, paired by sample; `measure` names that score, and `cut_loss` is the loss
    before healing. `speedup` and `megabytes` are measured, `load` is the line of code that loads the
    model. `recall` is the share of a held-out sample's ten nearest neighbours that its new vector
    finds in an index of the full model's vectors, None for models without vectors; with `same_space`
    the new vectors may have gone through a linear map (`mapped`). Where `met` is False nothing was
    within the budget, and there is no model. `offers` are the depths that were tried or priced.

    >>> budget = {"max_loss": 100, "minutes": 0}
    >>> shrunk = layerscope.shrink("tiny-bert", "tickets.csv", out="shrunk", progress=False, **budget)
    >>> shrunk.met, shrunk.samples
    (True, 144)
    """

    STORE = STORE
    DOCUMENT = "layerscope.shrinking.document"

    model: str
    depth: int
    met: bool
    budget: str
    measure: str
    data: str
    offers: tuple[Offer, ...]
    kept: tuple[int, ...] = ()
    loss: float = 0.0
    error: float = 0.0
    cut_loss: float = 0.0
    full_score: float = 0.0
    samples: int = 0
    speedup: float = 1.0
    megabytes: float = 0.0
    full_megabytes: float = 0.0
    measured: str = ""
    healed: str = ""
    load: str = ""
    recall: float | None = None
    same_space: bool = False
    mapped: bool = False
    folder: Path | None = None

    @classmethod
    def _made(cls, facts: dict[str, Any], frames: dict[str, Any], folder: Path) -> Self:
        offers = tuple(Offer(**offer) for offer in facts["offers"])
        return super()._made(facts | {"offers": offers}, frames, folder)


def open_shrunk(folder: str | Path) -> Shrunk:
    """Return what `shrink` wrote into a folder.

    Raises `LayerscopeError` for a folder without one, and for files that are damaged or changed
    since.

    >>> budget = {"max_loss": 100, "minutes": 0}
    >>> shrunk = layerscope.shrink("tiny-bert", "tickets.csv", out="shrunk", progress=False, **budget)
    >>> open_shrunk("shrunk").kept == shrunk.kept
    True
    """
    return Shrunk.opened(folder)
