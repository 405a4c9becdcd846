"""What `compare` returns: one long frame, and what it is about; saved into a folder and opened again."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import pandas as pd

from layerscope.comparison.document import document
from layerscope.comparison.findings import place
from layerscope.core.errors import LayerscopeError, choices
from layerscope.core.files import aside, digest, read_parquet, unchanged, write_json, write_parquet
from layerscope.core.folders import own_folder, writing
from layerscope.show.document import Document

MANIFEST = "comparison.json"
TABLE = "comparison.parquet"
FORMAT = 1
AGAIN = "run layerscope compare again"
COLUMNS = {
    "kind": "object", "run": "object", "run_b": "object", "metric": "object", "variant": "object", "layer": "Int64",
    "site": "object", "layer_b": "Int64", "site_b": "object", "pooling": "object", "pooling_b": "object",
    "value": "float64", "stderr": "float64", "n": "Int64", "n_skipped": "Int64", "value_a": "float64",
    "value_b": "float64", "paired": "boolean",
}  # fmt: skip
"""The long frame; `kind` says what a row is, see `Comparison`."""


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
class Comparison:
    """What two runs or more of the same samples have in common, and where they differ.

    `frame` holds a row for each number, with the columns of `COLUMNS`; layers are named by number and site. Its `kind`:
    `similarity`, of a layer of the first run with one of another; `difference`, a metric of the other run less that of
    the first (`value_b` − `value_a`), its standard error by sample where `paired`, else that of two independent values;
    `value`, a metric of one run; in a series `counterpart`, the similarity of a layer with the same one of the last
    checkpoint and of the one before.

    `n` samples are whole in all runs, `left_out` are not. A `series` is three or more checkpoints of one architecture.
    `folder` is where it was opened from.
    """

    runs: tuple[Member, ...]
    data: str
    n: int
    left_out: int
    series: bool
    notes: tuple[str, ...]
    frame: pd.DataFrame = field(repr=False)
    folder: Path | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "frame", _typed(self.frame))

    def table(self, kind: str | None = None) -> pd.DataFrame:
        """Return the long frame, or its rows of one kind."""
        if kind is None:
            return self.frame.copy()
        if kind not in (known := list(self.frame["kind"].unique())):
            raise LayerscopeError(f"kind {kind!r} is not in this comparison{choices(kind, known, 'it has')}")
        return self.frame[self.frame["kind"] == kind].reset_index(drop=True)

    @cached_property
    def similarities(self) -> tuple[str, ...]:
        """Names of the similarities that were computed."""
        return tuple(self.frame.loc[self.frame["kind"] == "similarity", "metric"].unique())

    def similarity(self, a: int | str = 0, b: int | str = 1, metric: str | None = None) -> pd.DataFrame:
        """Return the similarity of every layer of run `a` (rows) with every one of run `b`, "final" after the norm.

        Runs are named by number or name; one of the two is the first. `metric` is by default the first.
        """
        first, second = self.member(a), self.member(b)
        turned = first is not self.runs[0]
        if turned:
            first, second = second, first
        if first is not self.runs[0] or second is self.runs[0]:
            raise LayerscopeError(f"every run is compared with the first, {self.runs[0].name!r}: name it and another")
        metric = metric or self.similarities[0]
        if metric not in self.similarities:
            raise LayerscopeError(
                f"similarity {metric!r} is not in this comparison{choices(metric, self.similarities, 'it has')}"
            )
        rows = self.frame[(self.frame["kind"] == "similarity") & (self.frame["metric"] == metric)]
        rows = rows[rows["run_b"] == second.name]
        keyed = rows.assign(
            a=[place(layer, site, first) for layer, site in zip(rows["layer"], rows["site"], strict=True)],
            b=[place(layer, site, second) for layer, site in zip(rows["layer_b"], rows["site_b"], strict=True)],
        )
        square = keyed.pivot(index="a", columns="b", values="value")
        square = square.loc[list(dict.fromkeys(keyed["a"])), list(dict.fromkeys(keyed["b"]))]
        return square.T if turned else square

    def member(self, run: int | str) -> Member:
        """Return a run by its number from 0 or its name."""
        names = [member.name for member in self.runs]
        if isinstance(run, int) and -len(names) <= run < len(names):
            return self.runs[run]
        if run in names:
            return self.runs[names.index(str(run))]
        known = ", ".join(f"{i} ({name})" for i, name in enumerate(names))
        raise LayerscopeError(f"run {run!r} is not in this comparison: it has {known}")

    def document(self) -> Document:
        """Return the comparison as it is shown."""
        return document(self)

    def as_dict(self) -> dict[str, Any]:
        """Return everything as JSON can hold it; null is what is not known."""
        rows = self.frame.astype(object).where(self.frame.notna(), None).to_dict(orient="records")
        return self._facts() | {"rows": [{key: _jsonable(value) for key, value in row.items()} for row in rows]}

    def save(self, folder: str | Path) -> Path:
        """Write `comparison.json` and `comparison.parquet` into a folder that `open_comparison` reads, and return it.

        A comparison that is there is replaced. Raises `LayerscopeError` where the folder holds something else, or
        cannot be written.
        """
        target = own_folder(folder, "comparison", MANIFEST)
        with writing(target):
            aside(target / TABLE, lambda part: write_parquet(part, self.frame))
            told = {"format": FORMAT, **self._facts(), "sha256": digest(target / TABLE)}
            write_json(target / MANIFEST, told)
        return target

    def _facts(self) -> dict[str, Any]:
        return {
            "runs": [asdict(member) for member in self.runs], "data": self.data, "n": self.n,
            "left_out": self.left_out, "series": self.series, "notes": list(self.notes),
        }  # fmt: skip


def is_comparison(folder: Path) -> bool:
    """Return whether a folder holds a comparison."""
    return (folder / MANIFEST).is_file()


def open_comparison(folder: str | Path) -> Comparison:
    """Return the comparison that was saved into a folder.

    Raises `LayerscopeError` for a folder without one, and for files that are damaged or changed since.
    """
    source = Path(folder).expanduser()
    path = source / MANIFEST
    if not path.is_file():
        raise LayerscopeError(f"{str(source)!r} holds no comparison ({MANIFEST}): give the --out of layerscope compare")
    try:
        told = json.loads(path.read_text(encoding="utf-8"))
        if told["format"] != FORMAT:
            raise LayerscopeError(f"{str(path)!r} is of another version of layerscope: {AGAIN}")
        if not unchanged(told):
            raise LayerscopeError(f"{str(path)!r} is not what was written there: {AGAIN}")
        if digest(source / TABLE) != told["sha256"]:
            raise LayerscopeError(f"{str(source / TABLE)!r} is not what was written there: {AGAIN}")
        frame = _read(source / TABLE)
        return Comparison(
            tuple(Member(**member) for member in told["runs"]), told["data"], told["n"], told["left_out"],
            told["series"], tuple(told["notes"]), frame, source,
        )  # fmt: skip
    except OSError as error:
        raise LayerscopeError(f"{str(source)!r} cannot be read ({error.strerror}): {AGAIN}") from error
    except (KeyError, TypeError, ValueError) as error:
        if isinstance(error, LayerscopeError):
            raise
        raise LayerscopeError(f"{str(path)!r} is damaged: {AGAIN}") from error


def _read(path: Path) -> pd.DataFrame:
    try:
        return read_parquet(path, set(COLUMNS))
    except LayerscopeError as error:
        raise LayerscopeError(f"{str(error).rpartition(': ')[0]}: {AGAIN}") from error


def _typed(frame: pd.DataFrame) -> pd.DataFrame:
    """Return rows with the columns and dtypes of `COLUMNS`, what is empty among the texts as None."""
    typed = frame.reindex(columns=list(COLUMNS)).astype(COLUMNS).reset_index(drop=True)
    texts = [name for name, dtype in COLUMNS.items() if dtype == "object"]
    return typed.assign(**{name: typed[name].where(typed[name].notna(), None) for name in texts})


def _jsonable(value: Any) -> Any:
    value = value.item() if hasattr(value, "item") else value
    return None if value is pd.NA or (isinstance(value, float) and not math.isfinite(value)) else value
