"""CSV files of numbers by layer, read with one clear line where they are not what they should be."""

from __future__ import annotations

import csv
import gzip
import io
import zlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from layerscope.core.errors import LayerscopeError, near, refuse_dangling, unreadable


def existing(path: str | Path, what: str) -> Path:
    """Return the path of a file or folder that is there; raises `LayerscopeError` with the near name where not."""
    place = Path(path)
    try:
        place = place.expanduser()
        if place.exists():
            return place
        refuse_dangling(place)
        siblings = [other.name for other in place.parent.iterdir()] if place.parent.is_dir() else []
    except LayerscopeError:
        raise
    except (OSError, RuntimeError, ValueError) as error:  # RuntimeError: ~ of nobody; ValueError: a zero byte
        raise LayerscopeError(f"{what} {str(path)[:80]!r} is not a path: give a file or a folder") from error
    raise LayerscopeError(f"{what} {str(path)!r} does not exist{near(place.name, siblings) or ': check the path'}")


def is_csv(path: Path) -> bool:
    """Return whether a file's name says CSV, packed or not."""
    return path.name.lower().endswith((".csv", ".csv.gz"))


def read_csv(path: Path, columns: Sequence[str]) -> pd.DataFrame:
    """Return a CSV (also `.csv.gz`) as a frame of texts; `columns` must be there.

    Raises `LayerscopeError` for a file that is empty, not whole, not UTF-8 or ragged, and for a missing column.
    """
    rows = _rows(_text(path), path)
    header = [name.strip() for name in rows[0]]
    twice = next((name for name in header if header.count(name) > 1), None)
    if twice is not None:
        raise LayerscopeError(f"{path} has the column {twice!r} twice: leave one")
    for name in columns:
        if name not in header:
            hint = near(name, header)
            raise LayerscopeError(
                f"{path} has no column {name!r}{hint or ':'} it needs {', '.join(columns)} and has {', '.join(header)}"
            )
    if len(rows) == 1:
        raise LayerscopeError(f"{path} has a header but no rows: give at least one")
    return pd.DataFrame([[cell.strip() for cell in row] for row in rows[1:]], columns=header, dtype=object)


def named(frame: pd.DataFrame, column: str, path: Path) -> pd.Series:
    """Return a column of names, none of which may be empty."""
    empty = np.flatnonzero((frame[column] == "").to_numpy())
    if len(empty):
        raise LayerscopeError(f"{path}: row {empty[0] + 1} has no {column}: fill it in")
    return frame[column]


def optional(frame: pd.DataFrame, column: str) -> pd.Series:
    """Return a column of names that may be empty or absent, which is None."""
    if column not in frame:
        return pd.Series([None] * len(frame), index=frame.index, dtype=object)
    return frame[column].where(frame[column] != "", None)


def layers(frame: pd.DataFrame, path: Path) -> pd.Series:
    """Return the column `layer` as Int64; anything but whole numbers from 0 on is an error."""
    values = pd.to_numeric(frame["layer"], errors="coerce").astype("float64").to_numpy()
    wrong = np.flatnonzero(~(np.isfinite(values) & (values >= 0) & (values == np.floor(values))))
    if len(wrong):
        value = frame["layer"].iloc[wrong[0]]
        raise LayerscopeError(
            f"{path}: row {wrong[0] + 1} has the layer {value!r}, not a whole number: 0 is the embedding output, "
            "1 the first block's"
        )
    return pd.Series(values, index=frame.index).astype("Int64")


def numbers(frame: pd.DataFrame, column: str, path: Path) -> pd.Series:
    """Return a column of numbers, an empty cell as NaN; every other cell that is no finite number is an error."""
    texts = frame[column]
    values = pd.to_numeric(texts, errors="coerce").astype("float64")
    wrong = np.flatnonzero(((texts != "") & ~np.isfinite(values)).to_numpy())
    if len(wrong):
        row, value = wrong[0], texts.iloc[wrong[0]]
        raise LayerscopeError(
            f"{path}: row {row + 1} has the {column} {value!r}, not a number: leave it empty where it is missing"
        )
    if values.isna().all():
        raise LayerscopeError(f"{path} has no {column} at all: every row of that column is empty")
    return values


def refuse_duplicates(frame: pd.DataFrame, keys: Sequence[str], where: object) -> None:
    """Raise `LayerscopeError` where two rows are about the same thing."""
    twice = np.flatnonzero(frame.duplicated(list(keys)).to_numpy())
    if len(twice):
        row = frame.iloc[twice[0]]
        what = ", ".join(f"{key} {row[key]}" for key in keys if pd.notna(row[key]))
        raise LayerscopeError(f"{where} has two rows for {what}: leave one")


def _text(path: Path) -> str:
    try:
        data = path.read_bytes()
        data = gzip.decompress(data) if path.suffix.lower() == ".gz" and data else data
        text = data.decode("utf-8-sig")
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise LayerscopeError(f"{path} is not a whole gzip file ({error}): pack it again") from error
    except UnicodeDecodeError as error:
        raise LayerscopeError(f"{path} is not UTF-8 text (byte {error.start:,}): save it as CSV in UTF-8") from error
    except OSError as error:
        raise unreadable(path, error) from error
    if not text.strip():
        raise LayerscopeError(f"{path} is empty: give a CSV with a header and at least one row")
    return text


def _rows(text: str, path: Path) -> list[list[str]]:
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    rows: list[list[str]] = []
    try:
        for row in reader:
            if not row:
                continue
            if rows and len(row) != len(rows[0]):
                raise LayerscopeError(
                    f"{path}: line {reader.line_num} has {len(row)} fields where the header has {len(rows[0])}: "
                    "separate by commas, and quote names that hold one"
                )
            rows.append(row)
    except csv.Error as error:
        raise LayerscopeError(f"{path}: line {reader.line_num} is broken ({error}): write it as CSV again") from error
    return rows
