"""What `select` returns: the layer, by which rule and evidence, what it gains and costs, and the alternatives."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from layerscope.core import Store, jsonable
from layerscope.show import Stored

STORE = Store("selection", "selection.json", "run layerscope select again", {})


@dataclass(frozen=True)
class Candidate:
    """One layer: its score, the difference to the baseline, each with its standard error, and what the depth costs.

    None is what is not known.
    """

    layer: int
    score: float | None = None
    stderr: float | None = None
    difference: float | None = None
    difference_error: float | None = None
    parameters: int | None = None
    megabytes: float | None = None
    milliseconds: float | None = None
    speedup: float | None = None
    milliseconds_error: float | None = None


@dataclass(frozen=True)
class Apart:
    """The chosen score on units that had no part in choosing: each block is judged at the layer the others choose.

    There are `blocks` of them; `unit` is fold or task.
    """

    score: float
    stderr: float | None
    difference: float
    difference_error: float
    blocks: int
    unit: str


@dataclass(frozen=True)
class Selection(Stored):
    """A choice of a layer of one model.

    `layer` is the last one that is kept, of `depth`; `as_shipped` says that the choice is the model
    as shipped. `rule` names what chose it, `why` explains it in a sentence. `gain` is its score
    less that of the baseline, in the scores' own units, with the standard error `gain_error`; None
    without scores. Both are of `apart`, units that had no part in choosing, where there are enough
    of them; a gain over folds is reduced by what luck adds to a chosen layer. `basis` says how much
    was judged, `lacking` what is missing where that is too little to choose by. `layers` are all
    layers; `baseline` is the model as shipped, or what `baseline_name` says where that was not
    scored; `best` is the layer of the highest score. `source` is what `truncate` takes, empty where
    there is no model; `measured` names the machine and data of the costs; `sites` says where layers
    can be read, `part` which stack of blocks it is, where the model has several.

    >>> selection = layerscope.select("scores.csv", model="small", cost=False, progress=False)
    >>> selection.layer, selection.depth, round(selection.gain, 2)
    (2, 3, 0.06)
    >>> print(selection.why)
    the best score; the error of its difference is unknown
    """

    DOCUMENT = "layerscope.selection.document"

    STORE = STORE

    model: str
    layer: int
    depth: int
    as_shipped: bool
    site: str | None
    pooling: str | None
    rule: str
    why: str
    gain: float | None
    gain_error: float | None
    baseline: Candidate
    baseline_name: str
    layers: tuple[Candidate, ...]
    best: int | None = None
    scored_on: str | None = None
    share: bool = False
    source: str | None = None
    measured: str | None = None
    sites: tuple[str, ...] = ()
    part: str | None = None
    notes: tuple[str, ...] = ()
    basis: str = ""
    lacking: str = ""
    apart: Apart | None = None
    within: tuple[int, ...] = ()
    """The layers that do not differ measurably from the best one; the shallowest is on offer."""
    pooled: bool = False
    """Whether `pooling` is ours, and a checkpoint of the chosen layer must record it."""
    mix: str = ""
    """Name of a mix of layers, if one was chosen. `weights` is what `truncate` takes, `layer` its deepest, `mixed` its
    scores."""
    weights: str = ""
    mixed: Candidate | None = None
    folder: Path | None = None
    """Where it was opened from."""

    def __repr__(self) -> str:
        """Return the answer, without the table behind it."""
        if self.lacking or self.rule == "baseline":
            why = self.why
            if self.lacking:
                why = "too little was judged to choose by"
            return f"Selection({self.model!r}: {self.baseline_name}, as {why})"
        gain = ""
        if self.gain is not None and not self.as_shipped:
            gain = f", gain {self.gain:+.4g}"
            if self.gain_error is not None:
                gain += f" ±{self.gain_error:.2g}"
        return f"Selection({self.model!r}: {self.what} by {self.rule}{gain})"

    @property
    def what(self) -> str:
        """What was chosen, in words."""
        if self.mix:
            return (
                f"mix of layers {self.mix!r} up to layer {self.layer} of {self.depth}"
            )
        if self.as_shipped:
            return self.baseline_name
        return f"layer {self.layer} of {self.depth}"

    @property
    def raw_only(self) -> bool:
        """Whether no model gives what was scored: states before the final norm that the model has."""
        return self.site == "raw" and "normed" in self.sites

    @property
    def chosen(self) -> Candidate:
        """The chosen layer's scores and costs."""
        if self.mixed is not None:
            return self.mixed
        if self.as_shipped:
            return self.baseline
        return next(
            candidate for candidate in self.layers if candidate.layer == self.layer
        )

    def as_dict(self) -> dict[str, Any]:
        """Return everything as JSON can hold it."""
        return super().as_dict() | {"chosen": jsonable(self.chosen)}

    @classmethod
    def _made(cls, facts: dict[str, Any], frames: dict[str, Any], folder: Path) -> Self:
        """Return a selection as it was saved."""
        made = {
            "baseline": Candidate(**facts["baseline"]),
            "layers": tuple(Candidate(**row) for row in facts["layers"]),
            "apart": facts["apart"] and Apart(**facts["apart"]),
            "mixed": facts.get("mixed") and Candidate(**facts["mixed"]),
        }
        return super()._made(facts | made, frames, folder)


def open_selection(folder: str | Path) -> Selection:
    """Return the selection that was saved into a folder.

    Raises `LayerscopeError` for a folder without one, and for files that are damaged or changed
    since.

    >>> saved = layerscope.select("scores.csv", model="small", cost=False, out="choice", progress=False)
    >>> open_selection("choice").layers == saved.layers
    True
    """
    return Selection.opened(folder)
