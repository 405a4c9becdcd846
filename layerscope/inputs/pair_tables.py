"""Tables of pairs of texts, with a score each or without."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from layerscope.core import LayerscopeError, existing, near
from layerscope.inputs.columns import PAIR_COLUMNS, missing
from layerscope.inputs.corpus import Corpus, row_numbers
from layerscope.inputs.pairs import Pair
from layerscope.inputs.tables import table_of

PAIRS = (*PAIR_COLUMNS.items(), ("anchor", "positive"))
SCORE = "score"


def pair_corpus(data: Any, score_column: str | None, reader: str) -> Corpus:
    """Return the pairs of texts of a table; their labels are scores, None where it has no such column.

    Raises `LayerscopeError` for data that are no table, without columns of pairs, and with empty or
    odd cells; `reader` is who needs pairs.
    """
    source = "the data frame"
    name = "frame"
    if isinstance(data, (str, Path)):
        path = existing(data, "data")
        source = str(path)
        name = path.name.partition(".")[0]
    frame = table_of(data)
    if frame is None:
        raise LayerscopeError(
            f"{data} is no table: {reader} reads pairs of texts from CSV, TSV, JSONL or Parquet"
        )
    frame = frame.rename(columns=str.strip)
    pairs = [pair for pair in PAIRS if {*pair} <= {*frame}]
    if not pairs:
        raise LayerscopeError(
            f"{source} has no pairs of texts: it needs text_a and text_b, or anchor and positive, and has "
            f"{', '.join(frame)}"
        )
    pair = pairs[0]
    for side in pair:
        _refuse_rows(missing(frame[side].tolist()), side, source)
    texts = frame[[*pair]].astype(str).itertuples(index=False)
    samples = tuple(map(Pair._make, texts))
    scores = None
    column = score_column or SCORE
    if column in frame:
        scores = _scores(frame[column], source)
    elif score_column is not None:
        hint = near(score_column, frame) or ":"
        raise LayerscopeError(
            f"{source} has no column {score_column!r}{hint} it has {', '.join(frame)}"
        )
    return Corpus(name, "text", samples, row_numbers(len(frame)), scores)


def _scores(column: pd.Series, source: str) -> Any:
    """Return the scores of pairs as numbers, of which two must differ."""
    scores = pd.to_numeric(column, errors="coerce").astype("float64")
    _refuse_rows(~np.isfinite(scores.to_numpy()), "number as its score", source)
    if scores.nunique() < 2:
        raise LayerscopeError(
            f"every score of {source} is {scores.iloc[0]:g}: give two different ones"
        )
    return tuple(scores.tolist())


def _refuse_rows(wrong: NDArray[np.bool_], lacks: str, source: str) -> None:
    """Raise where a row of a table lacks something."""
    if wrong.any():
        raise LayerscopeError(
            f"{source}: row {wrong.argmax()} has no {lacks}: fill it in, or leave the row out"
        )
