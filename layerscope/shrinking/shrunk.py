"""What `shrink` returns: what was kept, what that costs and gains, and the offers that were nearest."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from layerscope.core.errors import count, spans
from layerscope.core.saved import Store
from layerscope.show.document import Document, Table, columns, row
from layerscope.show.pushed import Stored

STORE = Store("shrunk model", "shrunk.json", "run layerscope shrink again", {})

OLD_INDEX = "A new vector in an index of the full model's vectors"


@dataclass(frozen=True)
class Offer:
    """A model of some blocks, counted from 1, on the samples that choices are made by.

    `cut_loss` before healing and `loss` are in points, `error` is the standard error of the last
    one; None is what was not measured. `speedup` and `megabytes` are those of a model that ends at as many layers.
    """

    kept: tuple[int, ...]
    speedup: float
    megabytes: float
    cut_loss: float | None = None
    loss: float | None = None
    error: float | None = None
    healed: bool = False

    @property
    def text(self) -> str:
        """The offer in a line."""
        blocks = f"{count(len(self.kept), 'block')} ({spans(self.kept)})"
        text = f"{blocks}: {self.speedup:.2f}× as fast, {self.megabytes:.1f} MB"
        if self.cut_loss is None:
            return text
        loss, how = self.loss, "not healed"
        if loss is None:
            loss = self.cut_loss
        elif self.healed:
            how = f"healed, {0 - self.cut_loss:+.1f} before"
        return f"{text}, {0 - loss:+.1f} ±{self.error:.1f} points ({how})"


@dataclass(frozen=True)
class Shrunk(Stored):
    """A smaller model, or why there is none.

    `kept` are its blocks, counted from 1, of `depth`. `loss` in points and its standard error
    `error` are those of the model that was written, on `samples` held out, against the full model's
    score `full_score`, paired by sample; `measure` says of what. `speedup` and `megabytes` are
    measured, `load` is the line that loads it; `recall` is the share of a held-out sample's ten
    nearest neighbours among the other samples that its new vector finds in an index of the full
    model's vectors, None of models without vectors. Where `met` is False nothing was within the budget,
    and there is no model. `offers` are the depths that were tried or priced.

    >>> budget = {"max_loss": 100, "minutes": 0}
    >>> shrunk = layerscope.shrink("tiny-bert", "tickets.csv", out="shrunk", progress=False, **budget)
    >>> shrunk.met, shrunk.samples
    (True, 144)
    """

    STORE = STORE

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
    full_score: float = 0.0
    samples: int = 0
    speedup: float = 1.0
    megabytes: float = 0.0
    full_megabytes: float = 0.0
    measured: str = ""
    healed: str = ""
    load: str = ""
    recall: float | None = None
    folder: Path | None = None

    @classmethod
    def _made(cls, facts: dict[str, Any], frames: dict[str, Any], folder: Path) -> Self:
        offers = tuple(Offer(**offer) for offer in facts["offers"])
        return super()._made(facts | {"offers": offers}, frames, folder)

    def document(self) -> Document:
        """Return the four lines, or the offers, and the table of all depths that were tried or priced."""
        title = (self.model, self.data)
        table = _table(self.offers, self.depth)
        if not self.met:
            return Document(
                f"{self.model}: nothing is within the budget ({self.budget})",
                title=title,
                reasons=tuple(offer.text for offer in self.offers),
                parts=(table,),
                kind="shrunk models",
                lead=(),
            )
        share = self.megabytes / self.full_megabytes
        notes = [self.healed, self.measured]
        if self.recall is not None:
            notes.append(
                f"{OLD_INDEX} finds {self.recall:.0%} of the ten nearest neighbours: rebuild your index for all."
            )
        reasons = [
            f"{0 - self.loss:+.1f} ±{self.error:.1f} points on {count(self.samples, 'sample')} held out "
            f"({self.measure}, full model {self.full_score:.1f})",
            f"{self.speedup:.2f}× as fast, {self.megabytes:.1f} MB, {share:.0%} of the size",
            self.load,
        ]
        return Document(
            f"{self.model}: {len(self.kept)} of {self.depth} blocks are kept ({spans(self.kept)})",
            title=title,
            reasons=tuple(reasons),
            parts=(table,),
            notes=tuple(filter(None, notes)),
            kind="shrunk models",
        )


def _table(offers: tuple[Offer, ...], depth: int) -> Table:
    """Return the table of the offers."""
    titles = ["blocks", "kept", "faster", "MB", "cut", "healed", "±"]
    rows = []
    for offer in offers:
        shown = [offer.cut_loss, offer.loss, offer.error]
        losses = ["–" if loss is None else f"{loss:.1f}" for loss in shown]
        speed, size = f"{offer.speedup:.2f}×", f"{offer.megabytes:.1f}"
        rows.append(
            row(
                f"{len(offer.kept)} of {depth}", spans(offer.kept), speed, size, *losses
            )
        )
    legend = (
        "cut, healed: points lost before and after healing, on the samples that choose."
    )
    return Table("", columns(titles), tuple(rows), (legend,))


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
