"""What a model with exits is worth: facts, a curve over thresholds, layers, and truncation at every depth."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import pandas as pd

from layerscope.core.errors import LayerscopeError
from layerscope.core.files import aside, digest
from layerscope.core.folders import own_folder, writing
from layerscope.early_exit.document import document
from layerscope.show.document import Document
from layerscope.show.notebook import Shown

MANIFEST = "exits.json"
FORMAT = 2
TABLES: dict[str, dict[str, str]] = {
    "curve": {
        "threshold": "float64", "chosen": "bool", "mean_layer": "float64", "exit_speedup": "float64",
        "predicted": "float64", "measured": "float64", "accuracy": "float64", "disagreement": "float64",
    },
    "layers": {
        "layer": "int64", "checked": "bool", "leaving": "int64", "share": "float64", "cumulative": "float64",
        "layer_accuracy": "float64", "layer_agreement": "float64",
    },
    "depths": {
        "layer": "int64", "accuracy": "float64", "disagreement": "float64", "measured": "float64",
        "parameters": "int64",
    },
}  # fmt: skip
"""The columns of each table: shares in 0 … 1, speed-ups as factors, a threshold of infinity for never leaving."""
AGAIN = "run layerscope exits again"


@dataclass(frozen=True, eq=False)
class ExitReport(Shown):
    """What exits do to one classifier on one data set and machine.

    `model` has `depth` layers (L) and `classes`; a sample leaves at the first of the `exits` whose `criterion` reaches
    the `threshold` (infinity: never). Measured on `samples` of `data` in batches of `batch_size`, the exits chosen on
    `design` samples. `goal` says in words what is guaranteed, `calibration` holds its numbers (None: none was made).
    `pays` and `verdict` are the answer; `predicted` and `measured` how many times faster than the plain model,
    `exit_speedup` the same by depth alone, Σ L·mᵢ / Σ i·mᵢ for mᵢ samples that leave at layer i (Jiang et al. 2025).
    `accuracy` and `plain_accuracy` are None without labels, `disagreement` is the share of predictions that are not the
    plain model's, `plain_milliseconds` a sample's share of its time. `alone` is `measured` where every sample comes
    alone, None where none leaves early. `path` is the folder of the exit model, `folder`
    the one this report was opened from.

    `curve` has a row for each threshold, `layers` for each layer 1 … L (which is checked, how many leave, and what all
    samples would score there), `depths` for the model truncated at each layer; their columns are those of `TABLES`,
    NaN where something is not known or was not measured.
    """

    model: str
    depth: int
    classes: int
    criterion: str
    exits: tuple[int, ...]
    threshold: float
    batch_size: int
    samples: int
    design: int
    data: str
    machine: str
    goal: str
    calibration: dict[str, Any] | None
    pays: bool
    verdict: str
    predicted: float
    measured: float
    exit_speedup: float
    path: str | None
    accuracy: float | None
    plain_accuracy: float | None
    disagreement: float
    plain_milliseconds: float
    curve: pd.DataFrame = field(repr=False)
    layers: pd.DataFrame = field(repr=False)
    depths: pd.DataFrame = field(repr=False)
    notes: tuple[str, ...] = ()
    alone: float | None = None
    folder: Path | None = None

    def __post_init__(self) -> None:
        for name, columns in TABLES.items():
            object.__setattr__(self, name, _typed(getattr(self, name), columns))

    @property
    def labelled(self) -> bool:
        """Whether accuracy is known; else agreement with the plain model stands in its place."""
        return self.accuracy is not None

    @property
    def chosen(self) -> pd.Series | None:  # type: ignore[type-arg]
        """The row of the curve that was chosen, None where none is marked."""
        rows = self.curve[self.curve["chosen"]]
        return rows.iloc[0] if len(rows) else None

    def document(self) -> Document:
        """Return the report as it is shown."""
        return document(self)

    def as_dict(self) -> dict[str, Any]:
        """Return everything as JSON can hold it: tables as lists of rows; null is what is not known.

        Of a threshold null is infinity: no sample leaves early.
        """
        tables = {name: _jsonable(getattr(self, name).to_dict(orient="records")) for name in TABLES}
        return self._facts() | tables

    def save(self, folder: str | Path) -> Path:
        """Write `exits.json` and a CSV for each table into a folder that `open_exit_report` reads, and return it.

        A report that is there is replaced. Raises `LayerscopeError` where the folder holds something else, or cannot be
        written.
        """
        place = own_folder(folder, "report of exits", MANIFEST)
        with writing(place):
            checks = {}
            for name in TABLES:
                text = getattr(self, name).to_csv(index=False)
                _write(place / f"{name}.csv", text)
                checks[name] = digest(place / f"{name}.csv")
            told = {"format": FORMAT, **self._facts(), "sha256": checks}
            _write(place / MANIFEST, json.dumps(told, indent=2, ensure_ascii=False, allow_nan=False))
        return place

    def _facts(self) -> dict[str, Any]:
        return {name: _jsonable(getattr(self, name)) for name in KINDS}


_TYPES: dict[str, tuple[type, ...]] = {
    "str": (str,), "int": (int,), "float": (int, float, type(None)), "bool": (bool,), "str | None": (str, type(None)),
    "float | None": (int, float, type(None)), "tuple[int, ...]": (list,), "tuple[str, ...]": (list,),
    "dict[str, Any] | None": (dict, type(None)),
}  # fmt: skip
KINDS = {f.name: str(f.type) for f in fields(ExitReport) if f.name not in (*TABLES, "folder")}
"""The facts beside the tables, and what each is in Python."""


def is_exit_report(folder: Path) -> bool:
    """Return whether a folder holds a report of exits."""
    return (folder / MANIFEST).is_file()


def open_exit_report(folder: str | Path) -> ExitReport:
    """Return the report of exits that was saved into a folder.

    Raises `LayerscopeError` for a folder without one, and for files that are damaged or changed since.
    """
    place = Path(folder).expanduser()
    told = _manifest(place)
    checks = told.get("sha256")
    if told.get("format") != FORMAT or not isinstance(checks, dict):
        raise LayerscopeError(f"{str(place / MANIFEST)!r} is of another version of layerscope: {AGAIN}")
    wrong = next((name for name, kind in KINDS.items() if name not in told or not _is(told[name], kind)), None)
    if wrong is not None:
        raise LayerscopeError(f"{str(place / MANIFEST)!r} is not what was written there (its {wrong}): {AGAIN}")
    facts = {name: _back(name, told[name], kind) for name, kind in KINDS.items()}
    tables = {name: _table(place / f"{name}.csv", checks.get(name), columns) for name, columns in TABLES.items()}
    return ExitReport(**facts, **tables, folder=place)


def _manifest(place: Path) -> dict[str, Any]:
    path = place / MANIFEST
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        raise LayerscopeError(
            f"{str(place)!r} holds no report of exits ({MANIFEST}): give the --out of layerscope exits"
        ) from None
    except OSError as error:
        raise LayerscopeError(f"{str(path)!r} cannot be read ({error.strerror}): check its permissions") from error
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise LayerscopeError(f"{str(path)!r} is damaged: {AGAIN}")
    return found


def _table(path: Path, check: object, columns: dict[str, str]) -> pd.DataFrame:
    try:
        if digest(path) != check:
            raise LayerscopeError(f"{str(path)!r} is not what was written there: {AGAIN}")
        return _typed(pd.read_csv(path, float_precision="round_trip"), columns)
    except FileNotFoundError:
        raise LayerscopeError(f"{str(path)!r} is missing: {AGAIN}") from None
    except OSError as error:
        raise LayerscopeError(f"{str(path)!r} cannot be read ({error.strerror}): check its permissions") from error


def _typed(frame: pd.DataFrame, columns: dict[str, str]) -> pd.DataFrame:
    return frame[list(columns)].astype(columns).reset_index(drop=True)


def _write(path: Path, text: str) -> None:
    aside(path, lambda part: part.write_text(text, encoding="utf-8", newline=""))


def _is(value: object, kind: str) -> bool:
    if isinstance(value, bool) and kind != "bool":
        return False
    inside = {"tuple[int, ...]": int, "tuple[str, ...]": str}.get(kind)
    right = isinstance(value, _TYPES[kind])
    return right and (inside is None or all(type(entry) is inside for entry in value))  # type: ignore[attr-defined]


def _back(name: str, value: Any, kind: str) -> Any:
    """Return a fact as it was before it went into JSON, where what is not finite is null."""
    if kind == "float":
        return float(value) if value is not None else math.inf if name == "threshold" else math.nan
    return tuple(value) if kind.startswith("tuple") else value


def _jsonable(value: Any) -> Any:
    """Return a value as JSON can hold it: numpy's numbers as Python's, what is not finite as null."""
    if isinstance(value, dict):
        return {str(key): _jsonable(entry) for key, entry in value.items()}
    if isinstance(value, (list, tuple)):
        return [_jsonable(entry) for entry in value]
    value = value.item() if hasattr(value, "item") else value
    return None if isinstance(value, float) and not math.isfinite(value) else value
