"""What `compare` returns: one long frame, and what it is about; saved into a folder and opened again."""

from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Self

import pandas as pd

from layerscope.core import LayerscopeError, Store, choices
from layerscope.show import Stored

COLUMNS = {
    "kind": "object", "run": "object", "run_b": "object", "metric": "object", "variant": "object", "layer": "Int64",
    "site": "object", "layer_b": "Int64", "site_b": "object", "pooling": "object", "pooling_b": "object",
    "value": "float64", "stderr": "float64", "n": "Int64", "n_skipped": "Int64", "value_a": "float64",
    "value_b": "float64", "paired": "boolean",
}  # fmt: skip
"""The long frame; `kind` says what a row is, see `Comparison`."""
STORE = Store(
    "comparison", "comparison.json", "run layerscope compare again", {"frame": COLUMNS}
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


@dataclass(frozen=True, eq=False)
class Comparison(Stored):
    """What two or more runs of the same samples have in common, and where they differ.

    `frame` holds a row for each number, with the columns of `COLUMNS`; layers are named by number
    and site. Its `kind`: `similarity`, of a layer of the first run with one of another;
    `difference`, a metric of the other run less that of the first (`value_b` − `value_a`), its
    standard error by sample where `paired`, else that of two independent values; of paired runs
    `within`, the similarity of every two layers of one of them; of `linear_map` and two depths
    `steps`, the R² of layers read from those at the same share of the depth (`value_b`) less that
    from other ones (`value_a`), which the `variant` names.

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

    def table(self, kind: str | None = None) -> pd.DataFrame:
        """Return the long frame, or its rows of one kind."""
        if kind is None:
            return self.frame.copy()
        kinds = list(self.frame["kind"].unique())
        if kind not in kinds:
            hint = choices(kind, kinds, "it has")
            raise LayerscopeError(f"kind {kind!r} is not in this comparison{hint}")
        return self.frame[self.frame["kind"] == kind].reset_index(drop=True)

    @cached_property
    def named(self) -> pd.DataFrame:
        """The long frame with names of the layers, `a` and `b`: their number, "final" after the norm."""
        frame = self.frame.copy()
        for name, end in (("a", ""), ("b", "_b")):
            layers = frame[f"layer{end}"].astype(object)
            for run in self.runs:
                if run.final == "raw":
                    continue
                is_final = frame[f"run{end}"] == run.name
                is_final &= frame[f"layer{end}"] == run.depth
                is_final &= frame[f"site{end}"] == run.final
                layers = layers.mask(is_final, "final")
            frame[name] = layers
        return frame

    @cached_property
    def forms(self) -> tuple[tuple[str, str], ...]:
        """Names and variants of the similarities that were computed."""
        forms = self.table("similarity")[["metric", "variant"]].drop_duplicates()
        return tuple(forms.itertuples(index=False, name=None))

    def similarity(
        self,
        a: int | str = 0,
        b: int | str = 1,
        metric: str | None = None,
        variant: str | None = None,
    ) -> pd.DataFrame:
        """Return the similarity of every layer of run `a` (rows) with every one of run `b`, "final" after the norm.

        Runs are named by number or name; one of the two is the first, and of paired runs both may
        be the same. A similarity with a direction (`pwcca`, `linear_map`) goes from the first run to
        the other, whichever are the rows. `metric` and `variant` are by default the first.
        """
        metric, variant = self._form(metric, variant)
        first = self.member(a).name
        second = self.member(b).name
        rows = self.named[self.named["kind"].isin(("similarity", "within"))]
        rows = rows[(rows["metric"] == metric) & (rows["variant"] == variant)]
        by_runs = dict(list(rows.groupby(["run", "run_b"])))
        if (first, second) in by_runs:
            return layer_map(by_runs[first, second], "b", "value")
        if (second, first) in by_runs:
            return layer_map(by_runs[second, first], "b", "value").T
        raise LayerscopeError(
            f"every run is compared with the first, {self.runs[0].name!r}: name it and another"
        )

    def _form(self, metric: str | None, variant: str | None) -> tuple[str, str]:
        """Return the first similarity of this name and variant."""
        for form in self.forms:
            if metric in (None, form[0]) and variant in (None, form[1]):
                return form
        form_name = " ".join(filter(None, (metric, variant)))
        forms = ", ".join(" ".join(form) for form in self.forms)
        raise LayerscopeError(
            f"similarity {form_name!r} is not in this comparison: it has {forms}"
        )

    def member(self, run: int | str) -> Member:
        """Return a run by its number from 0 or its name."""
        for number, member in enumerate(self.runs):
            if run in (number, member.name):
                return member
        names = ", ".join(member.name for member in self.runs)
        raise LayerscopeError(f"run {run!r} is not in this comparison: it has {names}")

    def as_dict(self) -> dict[str, Any]:
        """Return everything as JSON can hold it; null is what is not known."""
        entries = super().as_dict()
        return entries | {"rows": entries.pop("frame")}

    @classmethod
    def _made(
        cls, facts: dict[str, Any], frames: dict[str, pd.DataFrame], folder: Path
    ) -> Self:
        runs = tuple(Member(**member) for member in facts["runs"])
        return super()._made(facts | {"runs": runs}, frames, folder)


def layer_map(rows: pd.DataFrame, columns: str, values: str) -> pd.DataFrame:
    """Return values by layer `a` and one of the columns, as `b` or `run_b`, both in order of appearance."""
    table = rows.pivot(index="a", columns=columns, values=values)
    return table.loc[rows["a"].unique(), rows[columns].unique()]


def open_comparison(folder: str | Path) -> Comparison:
    """Return the comparison that was saved into a folder.

    Raises `LayerscopeError` for a folder without one, and for files that are damaged or changed
    since.

    >>> saved = layerscope.compare(["runs/minilm", "runs/tiny"], out="minilm-and-tiny", progress=False)
    >>> layerscope.open_comparison("minilm-and-tiny").n
    24
    """
    return Comparison.opened(folder)
