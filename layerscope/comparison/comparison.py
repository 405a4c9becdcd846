"""What `compare` returns: one long frame, and what it is about; saved into a folder and opened again."""

from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Self

import pandas as pd

from layerscope.core.errors import LayerscopeError, choices
from layerscope.core.saved import Store, jsonable, typed
from layerscope.show.pushed import Stored

COLUMNS = {
    "kind": "object", "run": "object", "run_b": "object", "metric": "object", "variant": "object", "layer": "Int64",
    "site": "object", "layer_b": "Int64", "site_b": "object", "pooling": "object", "pooling_b": "object",
    "value": "float64", "stderr": "float64", "n": "Int64", "n_skipped": "Int64", "value_a": "float64",
    "value_b": "float64", "paired": "boolean",
}  # fmt: skip
"""The long frame; `kind` says what a row is, see `Comparison`."""
STORE = Store(
    "comparison", "comparison.json", "run layerscope compare again", {"comparison": COLUMNS}
)


@dataclass(frozen=True)
class Member:
    """One of the runs that were compared, as far as a reader needs it when the run is gone."""

    name: str
    path: str
    model: str
    revision: str | None
    depth: int
    width: int
    pooling: str
    final: str
    """The site that is, at the last layer, the model's own output: raw where no norm follows."""
    step: int | None


@dataclass(frozen=True, eq=False)
class Comparison(Stored):
    """What two or more runs of the same samples have in common, and where they differ.

    `frame` holds a row for each number, with the columns of `COLUMNS`; layers are named by number
    and site. Its `kind`: `similarity`, of a layer of the first run with one of another;
    `difference`, a metric of the other run less that of the first (`value_b` − `value_a`), its
    standard error by sample where `paired`, else that of two independent values; `value`, a metric
    of one run; in a series `counterpart`, the similarity of a layer with the same one of the last
    checkpoint and of the one before; of paired runs `within`, that of every two layers of one of
    them.

    `n` samples are whole in all runs, `left_out` are not. A `series` is three or more checkpoints
    of one architecture. `folder` is where it was opened from.

    >>> comparison = layerscope.compare(["runs/minilm", "runs/tiny"], similarity="cka", progress=False)
    >>> comparison.table("difference").loc[0, ["run", "run_b", "metric"]].tolist()
    ['all-MiniLM-L6-v2', 'tiny-bert', 'prompt_entropy']
    """

    DOCUMENT = "layerscope.comparison.document"

    STORE = STORE
    HEADER: ClassVar[str] = ",".join(COLUMNS)
    """The first line of its table as CSV."""

    runs: tuple[Member, ...]
    data: str
    n: int
    left_out: int
    series: bool
    notes: tuple[str, ...]
    frame: pd.DataFrame = field(repr=False)
    folder: Path | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "frame", typed(self.frame, COLUMNS))

    def table(self, kind: str | None = None) -> pd.DataFrame:
        """Return the long frame, or its rows of one kind."""
        if kind is None:
            return self.frame.copy()
        if kind not in (kinds := list(self.frame["kind"].unique())):
            raise LayerscopeError(
                f"kind {kind!r} is not in this comparison{choices(kind, kinds, 'it has')}"
            )
        return self.frame[self.frame["kind"] == kind].reset_index(drop=True)

    @cached_property
    def named(self) -> pd.DataFrame:
        """The long frame with names of the layers, `a` and `b`: their number, "final" after the norm."""
        runs, frame = pd.DataFrame(map(vars, self.runs)).set_index("name"), self.frame.copy()
        for name, end in (("a", ""), ("b", "_b")):
            members, layer = (
                runs.reindex(frame[f"run{end}"]).set_index(frame.index),
                frame[f"layer{end}"],
            )
            normed = (frame[f"site{end}"] == members["final"]) & (members["final"] != "raw")
            frame[name] = layer.astype(object).mask(
                normed & (layer == members["depth"]).fillna(False), "final"
            )
        return frame

    @cached_property
    def forms(self) -> tuple[tuple[str, str], ...]:
        """Names and variants of the similarities that were computed."""
        rows = self.frame[self.frame["kind"] == "similarity"]
        return tuple(
            rows[["metric", "variant"]].drop_duplicates().itertuples(index=False, name=None)
        )

    @property
    def similarities(self) -> tuple[str, ...]:
        """Names of the similarities that were computed."""
        return tuple(dict.fromkeys(metric for metric, _ in self.forms))

    def similarity(
        self,
        a: int | str = 0,
        b: int | str = 1,
        metric: str | None = None,
        variant: str | None = None,
    ) -> pd.DataFrame:
        """Return the similarity of every layer of run `a` (rows) with every one of run `b`, "final" after the norm.

        Runs are named by number or name; one of the two is the first, and of paired runs both may
        be the same. `metric` and `variant` are by default the first.
        """
        first, second = self.member(a), self.member(b)
        within = first is second and "within" in set(self.frame["kind"])
        turned = first is not self.runs[0] and not within
        first, second = (second, first) if turned else (first, second)
        if not within and (first is not self.runs[0] or second is self.runs[0]):
            raise LayerscopeError(
                f"every run is compared with the first, {self.runs[0].name!r}: name it and another"
            )
        metric = metric or self.similarities[0]
        if metric not in self.similarities:
            raise LayerscopeError(
                f"similarity {metric!r} is not in this comparison{choices(metric, self.similarities, 'it has')}"
            )
        variants = [other for name, other in self.forms if name == metric]
        if (variant := variant or variants[0]) not in variants:
            hint = choices(variant, variants, "it has")
            raise LayerscopeError(
                f"variant {variant!r} of {metric} is not in this comparison{hint}"
            )
        rows = self.named[(self.frame["kind"] == ("within" if within else "similarity"))]
        rows = rows[(rows["metric"] == metric) & (rows["variant"] == variant)]
        rows = rows[(rows["run"] == first.name) & (rows["run_b"] == second.name)]
        square = rows.pivot(index="a", columns="b", values="value").loc[
            rows["a"].unique(), rows["b"].unique()
        ]
        return square.T if turned else square

    def member(self, run: int | str) -> Member:
        """Return a run by its number from 0 or its name."""
        names = [member.name for member in self.runs]
        if isinstance(run, int) and -len(names) <= run < len(names):
            return self.runs[run]
        if run in names:
            return self.runs[names.index(str(run))]
        numbered = ", ".join(f"{i} ({name})" for i, name in enumerate(names))
        raise LayerscopeError(f"run {run!r} is not in this comparison: it has {numbered}")

    def as_dict(self) -> dict[str, Any]:
        """Return everything as JSON can hold it; null is what is not known."""
        facts, frames = self._parts()
        return dict(jsonable(facts | {"rows": frames["comparison"]}))

    def _parts(self) -> tuple[dict[str, Any], dict[str, pd.DataFrame]]:
        names = ("runs", "data", "n", "left_out", "series", "notes")
        return {name: getattr(self, name) for name in names}, {"comparison": self.frame}

    @classmethod
    def _made(cls, facts: dict[str, Any], frames: dict[str, pd.DataFrame], folder: Path) -> Self:
        runs = tuple(Member(**member) for member in facts.pop("runs"))
        return cls(runs, **facts, frame=frames["comparison"], folder=folder)


def open_comparison(folder: str | Path) -> Comparison:
    """Return the comparison that was saved into a folder.

    Raises `LayerscopeError` for a folder without one, and for files that are damaged or changed
    since.

    >>> saved = layerscope.compare(["runs/minilm", "runs/tiny"], out="minilm-and-tiny", progress=False)
    >>> layerscope.open_comparison("minilm-and-tiny").n
    24
    """
    return Comparison.opened(folder)
