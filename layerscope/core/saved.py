"""Results in folders: facts as JSON and frames beside them, all with checksums; opened again or refused in one line."""

import math
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, fields, is_dataclass
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from platform import python_version
from typing import Any, TypeVar

import pandas as pd

from layerscope.core.checked_json import unchanged
from layerscope.core.errors import LayerscopeError, unreadable
from layerscope.core.files import (
    aside,
    digest,
    json_object,
    read_parquet,
    write_json,
    write_parquet,
)
from layerscope.core.folders import own_folder, writing
from layerscope.core.hub import on_this_machine

FORMAT = 4
"""Of every saved result; it rises when an older one could not be read. A new field that has a default can."""
PACKAGES = (
    "torch",
    "transformers",
    "sentence-transformers",
    "tokenizers",
    "numpy",
    "scipy",
    "scikit-learn",
)
"""Packages that compute: a result keeps their versions."""
Frames = Mapping[str, Mapping[str, str]]
PLAIN = frozenset((str, int, bool, type(None)))
T = TypeVar("T")


@dataclass(frozen=True)
class Store:
    """How results of one kind lie in a folder, and how they are made again where they cannot be opened.

    `what` is their name in a sentence; `manifest` is the file that holds the facts. `frames` has
    the columns of each frame with their dtypes; a frame's file has its name, and `suffix` says
    whether that is CSV or Parquet.
    """

    what: str
    manifest: str
    again: str
    frames: Frames
    suffix: str = "parquet"

    def is_in(self, folder: Path) -> bool:
        """Return whether a folder holds such a result."""
        return (folder / self.manifest).is_file()

    def folder(self, out: str | Path) -> Path:
        """Return a folder to save to: new, empty, or with an earlier result of this kind."""
        return own_folder(out, self.what, self.manifest)

    def save(
        self,
        out: str | Path,
        facts: Mapping[str, Any],
        frames: Mapping[str, pd.DataFrame],
    ) -> Path:
        """Write a result, replacing one that is there, and return the folder.

        Killed on the way, it leaves files that do not fit each other and are refused. Raises
        `LayerscopeError` where the folder holds something else, or cannot be written.
        """
        folder = self.folder(out)
        with writing(folder):
            sums: dict[str, str] = {}
            for name, frame in frames.items():
                path = folder / f"{name}.{self.suffix}"
                aside(path, partial(self._write, frame))
                sums[name] = digest(path)
            write_facts(folder / self.manifest, self.what, {**facts, "sha256": sums})
        return folder

    def open(
        self,
        folder: str | Path,
        make: Callable[[dict[str, Any], dict[str, pd.DataFrame], Path], T],
    ) -> T:
        """Return what `make` makes of the facts, frames and folder of a saved result.

        Raises `LayerscopeError` for a folder without one, for files that are damaged or were
        changed, and for a result of another version.
        """
        path = on_this_machine(folder)
        if not self.is_in(path):
            raise LayerscopeError(
                f"{str(path)!r} holds no {self.what} ({self.manifest}): give the folder of one"
            )
        facts = read_facts(path / self.manifest, self.what, self.again)
        try:
            sums = facts.pop("sha256")
            frames = {}
            for name, columns in self.frames.items():
                file = path / f"{name}.{self.suffix}"
                frames[name] = typed(self._read(columns, file, sums[name]), columns)
            return make(facts, frames, path)
        except LayerscopeError:
            raise
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise _damaged(path / self.manifest, self.what, self.again) from error

    def _write(self, frame: pd.DataFrame, path: Path) -> None:
        if self.suffix == "csv":
            frame.to_csv(path, index=False, errors="replace")
        else:
            write_parquet(path, frame)

    def _read(
        self, columns: Mapping[str, str], path: Path, checksum: str
    ) -> pd.DataFrame:
        """Return a frame that fits its checksum."""
        if not path.is_file():
            raise LayerscopeError(f"{str(path)!r} is missing: {self.again}")
        try:
            intact = digest(path) == checksum
        except OSError as error:
            raise unreadable(path, error) from error
        if not intact:
            raise _changed(path, self.again)
        if self.suffix != "csv":
            return read_parquet(path, set())
        # "NA" and "12" are texts in a column of texts
        texts = dict.fromkeys(_texts_of(columns), str)
        return pd.read_csv(
            path,
            float_precision="round_trip",
            dtype=texts,
            keep_default_na=False,
            na_values=[""],
        )


def versions() -> dict[str, Any]:
    """Return the versions a manifest keeps: ours, Python's and those of the packages that compute."""
    installed = dict.fromkeys(("layerscope", *PACKAGES), "unknown")
    for name in installed:
        with suppress(PackageNotFoundError):
            installed[name] = version(name)
    return {
        "layerscope": installed.pop("layerscope"),
        "versions": {"python": python_version(), **installed},
    }


def write_facts(path: Path, what: str, facts: Mapping[str, Any]) -> None:
    """Write the facts of a result into a JSON file, with the format, the kind of result and a checksum."""
    kept = jsonable(facts, lost=lambda number: {"float": str(number)})
    write_json(path, {"format": FORMAT, "kind": what, **kept})


def read_facts(path: Path, what: str, again: str) -> dict[str, Any]:
    """Return the facts in a file that `write_facts` wrote, lists as tuples; any other is refused in one line."""
    try:
        facts = json_object(path)
    except FileNotFoundError as error:
        raise unreadable(path, error) from error
    if facts is None or not isinstance(version := facts.get("format"), int):
        raise _damaged(path, what, again)
    if version != FORMAT:
        raise LayerscopeError(
            f"{str(path)!r} was written by another version of layerscope (format {version}, and this one reads "
            f"{FORMAT}): {again}"
        )
    if facts.get("kind") != what:
        raise _damaged(path, what, again)
    if not unchanged(facts):
        raise _changed(path, again)
    del facts["format"], facts["kind"]
    return {name: _back(value) for name, value in facts.items()}


def jsonable(value: Any, lost: Callable[[float], Any] = lambda number: None) -> Any:
    """Return a value as JSON can hold it: a frame as its rows, a dataclass as an object, numpy's numbers as Python's.

    A number that is not finite is what `lost` makes of it, by default null, as is what is missing.
    """
    kind = type(value)
    if kind in PLAIN:  # most of what a page holds: a million of them
        return value
    if kind is float:
        if math.isfinite(value):
            return value
        return lost(value)
    if isinstance(value, pd.DataFrame):
        value = value.to_dict(orient="records")
    if is_dataclass(value):
        value = {field.name: getattr(value, field.name) for field in fields(value)}
    if isinstance(value, Mapping):
        return {str(key): jsonable(entry, lost) for key, entry in value.items()}
    if isinstance(value, (list, tuple)):
        return [jsonable(entry, lost) for entry in value]
    if value is pd.NA:
        return None
    if hasattr(value, "item"):
        return jsonable(value.item(), lost)
    return value


def typed(frame: pd.DataFrame, columns: Mapping[str, str]) -> pd.DataFrame:
    """Return rows with these columns and dtypes, what is empty among the texts as None."""
    rows = frame.reindex(columns=list(columns)).astype(dict(columns))
    rows = rows.reset_index(drop=True)
    texts = rows[_texts_of(columns)]
    return rows.assign(**texts.where(texts.notna(), None))


def _texts_of(columns: Mapping[str, str]) -> list[str]:
    return [name for name, dtype in columns.items() if dtype == "object"]


def _back(value: Any) -> Any:
    if isinstance(value, dict):
        if value.keys() == {"float"}:
            return float(value["float"])
        return {key: _back(entry) for key, entry in value.items()}
    if isinstance(value, list):
        return tuple(map(_back, value))
    return value


def _changed(path: Path, again: str) -> LayerscopeError:
    return LayerscopeError(f"{str(path)!r} has changed since it was written: {again}")


def _damaged(path: Path, what: str, again: str) -> LayerscopeError:
    return LayerscopeError(f"{str(path)!r} is damaged, or no {what}: {again}")
