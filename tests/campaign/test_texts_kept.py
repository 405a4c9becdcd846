"""Texts and labels of any characters, in every format of tables: read as they were written."""

import csv
import json
from pathlib import Path

import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st
from trials import MINUTES, SEED

from layerscope.core.errors import LayerscopeError
from layerscope.inputs import open_corpus

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=40).map(
    lambda text: f"w{text}w"
)
ROWS = st.lists(st.tuples(TEXTS, TEXTS), min_size=1, max_size=12)
NO_TEXT = ("no text in UTF-8",)
"""What a file of control characters is taken for."""


def write(rows: list[tuple[str, str]], path: Path) -> None:
    frame = pd.DataFrame(rows, columns=["text", "label"])
    if path.suffix == ".jsonl":
        path.write_text(
            "\n".join(json.dumps(dict(zip(frame, row, strict=True))) for row in rows)
        )
    elif path.suffix == ".parquet":
        frame.to_parquet(path)
    else:
        frame.to_csv(
            path,
            index=False,
            sep="\t" if path.suffix == ".tsv" else ",",
            quoting=csv.QUOTE_ALL,
        )


@pytest.mark.parametrize("suffix", [".csv", ".tsv", ".jsonl", ".parquet"])
def test_texts_are_read_as_they_were_written(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"table{suffix}"

    @settings(
        max_examples=int(40 + 20 * MINUTES),
        deadline=None,
        derandomize=SEED == 0,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(rows=ROWS)
    def kept(rows: list[tuple[str, str]]) -> None:
        write(rows, path)
        try:
            found = open_corpus(path)
        except LayerscopeError as error:
            assert any(word in str(error) for word in NO_TEXT), error
            return
        if suffix in (".csv", ".tsv"):  # whose line ends may be those of another system
            rows = [
                (text.replace("\r\n", "\n"), label.replace("\r\n", "\n"))
                for text, label in rows
            ]
        assert list(zip(found.samples, found.labels, strict=True)) == rows

    kept()
