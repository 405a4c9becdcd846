"""CSV files of numbers by layer, read with one clear line where they are not what they should be."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from layerscope.core.errors import LayerscopeError, near
from layerscope.inputs.tables import read_frame


def is_csv(path: Path) -> bool:
    """Return whether a file's name says CSV, packed or not."""
    return path.name.lower().endswith((".csv", ".csv.gz"))


def read_csv(path: Path, needed: Sequence[str], optional: Sequence[str] = ()) -> pd.DataFrame:
    """Return columns of a CSV (also `.csv.gz`): the last of `needed` holds numbers, `layer` layers, the others names.

    An empty number is NaN. Names of `needed` columns must be filled in; an `optional` one that is empty, or whose
    column is absent, is None. Raises `LayerscopeError` for a file that is no table, a missing column and wrong values.
    """
    rows = read_frame(path, ".csv", []).rename(columns=lambda name: str(name).strip())
    header, number = list(rows), needed[-1]
    for name in needed:
        if header.count(name) > 1:
            raise LayerscopeError(f"{path} has the column {name!r} twice: leave one")
        if name not in header:
            hint = near(name, header) or ":"
            raise LayerscopeError(
                f"{path} has no column {name!r}{hint} it needs {', '.join(needed)} and has {', '.join(header)}"
            )
    texts = rows.reindex(columns=[*needed, *optional], fill_value="").map(str.strip)
    for name in needed:
        if name not in ("layer", number):
            _refuse(texts[name] == "", texts[name], path, "fill it in")
    texts["layer"] = _layers(texts["layer"], path)
    texts[number] = _numbers(texts[number], path)
    return texts.assign(**{name: texts[name].where(texts[name] != "", None) for name in optional})


def _layers(column: pd.Series, path: Path) -> pd.Series:
    values = pd.to_numeric(column, errors="coerce").astype("float64")
    fine = np.isfinite(values) & (values >= 0) & (values == np.floor(values))
    _refuse(~fine, column, path, "give a whole number: 0 is the embedding output, 1 the first block's")
    return values.astype("Int64")


def _numbers(column: pd.Series, path: Path) -> pd.Series:
    values = pd.to_numeric(column, errors="coerce").astype("float64")
    _refuse((column != "") & ~np.isfinite(values), column, path, "give a number, or leave it empty where it is missing")
    if values.isna().all():
        raise LayerscopeError(f"{path} has no {column.name} at all: every row of that column is empty")
    return values


def _refuse(wrong: pd.Series, column: pd.Series, path: Path, mend: str) -> None:
    """Raise where a value of a column is wrong."""
    if wrong.any():
        row = int(np.flatnonzero(wrong.to_numpy())[0])
        value = f"the {column.name} {column.iloc[row]!r}" if column.iloc[row] else f"no {column.name}"
        raise LayerscopeError(f"{path}: row {row + 1} has {value}: {mend}")


def refuse_duplicates(frame: pd.DataFrame, keys: Sequence[str], where: object) -> None:
    """Raise `LayerscopeError` where two rows are about the same thing."""
    twice = np.flatnonzero(frame.duplicated(list(keys)).to_numpy())
    if len(twice):
        row = frame.iloc[twice[0]]
        what = ", ".join(f"{key} {row[key]}" for key in keys if pd.notna(row[key]))
        raise LayerscopeError(f"{where} has two rows for {what}: leave one")
