"""CSV files of numbers by layer, read with one clear line where they are not what they should be.

A row is about one layer of one model, and has one number, such as a score on a task:

    model,layer,task,main_score
    small,3,topics,0.61

What is wrong is named with its row, as `scores.csv: row 4 has the layer '3.5'`.
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from layerscope.core import LayerscopeError, near
from layerscope.inputs.rows import file_rows


def is_csv(path: Path) -> bool:
    """Return whether a file's name says CSV, packed or not.

    >>> is_csv(Path("scores.CSV.gz")), is_csv(Path("scores.tsv"))
    (True, False)
    """
    return path.name.lower().endswith((".csv", ".csv.gz"))


def read_csv(
    path: Path, needed: Sequence[str], optional: Sequence[str]
) -> pd.DataFrame:
    """Return columns of a CSV (also `.csv.gz`): the last of `needed` holds numbers, `layer` layers, the others names.

    An empty number is NaN. Names of `needed` columns must be filled in; an `optional` one that is
    empty, or whose column is absent, is None. Raises `LayerscopeError` for a file that is no table,
    a missing column and wrong values.
    """
    rows = file_rows([path], ".csv").frame()
    rows = rows.rename(columns=str.strip)
    refuse_columns(rows, needed, path)
    number = needed[-1]
    texts = rows.reindex(columns=[*needed, *optional], fill_value="").map(str.strip)
    for name in needed:
        if name not in ("layer", number):
            refuse_rows(texts[name] == "", texts[name], path, "fill it in")
    layers = as_numbers(texts["layer"])
    whole = np.isfinite(layers) & (layers >= 0) & (layers == np.floor(layers))
    mend = "give a whole number: 0 is the embedding output, 1 the first block's"
    refuse_rows(~whole, texts["layer"], path, mend)
    numbers = as_numbers(texts[number])
    wrong = (texts[number] != "") & ~np.isfinite(numbers)
    mend = "give a number, or leave it empty where it is missing"
    refuse_rows(wrong, texts[number], path, mend)
    if numbers.isna().all():
        raise LayerscopeError(
            f"{path} has no {number} at all: every row of that column is empty"
        )
    texts["layer"] = layers.astype("Int64")
    texts[number] = numbers
    for name in optional:
        texts[name] = texts[name].where(texts[name] != "", None)
    return texts


def as_numbers(column: pd.Series) -> pd.Series:
    """Return a column as floats, with NaN for values that are not numbers."""
    return pd.to_numeric(column, errors="coerce").astype("float64")


def refuse_columns(frame: pd.DataFrame, needed: Sequence[str], source: object) -> None:
    """Raise `LayerscopeError` where a needed column is missing, or there twice."""
    header = list(frame)
    for name in needed:
        if header.count(name) > 1:
            raise LayerscopeError(
                f"{source} has the column {name!r} twice: leave one out, or rename it"
            )
        if name not in header:
            hint = near(name, header) or ":"
            raise LayerscopeError(
                f"{source} has no column {name!r}{hint} it needs {', '.join(needed)} and has {', '.join(header)}"
            )


def refuse_rows(wrong: pd.Series, column: pd.Series, source: object, mend: str) -> None:
    """Raise `LayerscopeError` for the first value of a column that is wrong, or missing, with the `mend`."""
    if wrong.any():
        row = int(np.flatnonzero(wrong.to_numpy())[0])
        value = column.iloc[row]
        empty = pd.isna(value) or not str(value).strip()
        what = f"no {column.name}" if empty else f"the {column.name} {value!r}"
        raise LayerscopeError(f"{source}: row {column.index[row]} has {what}: {mend}")


def refuse_duplicates(frame: pd.DataFrame, keys: Sequence[str], where: object) -> None:
    """Raise `LayerscopeError` where two rows are about the same thing."""
    twice = np.flatnonzero(frame.duplicated(list(keys)).to_numpy())
    if len(twice):
        row = frame.iloc[twice[0]]
        what = ", ".join(f"{key} {row[key]}" for key in keys if pd.notna(row[key]))
        raise LayerscopeError(f"{where} has two rows for {what}: leave one")
