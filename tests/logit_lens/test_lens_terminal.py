"""Cells of the lens settle where the tables say, and what cannot be seen is made visible."""

import pytest
import tiny
from logit_lens.readers import PLAIN, TEXTS, odd_reading

from layerscope import lens
from layerscope.logit_lens.document import grids, visible
from layerscope.logit_lens.reading import open_reading


def test_cells_of_a_grid_settle_where_the_table_says():
    reading = lens(tiny.llama(), "w1 w2 w3", generate=20, processor=PLAIN, top=2)
    (grid,) = grids(reading)
    for x, row in enumerate(reading.saturation.itertuples()):
        column = [cells[x] for _, cells in grid.rows]
        assert [cell.settles for cell in column].index(True) == row.layer
        assert {cell.text for cell in column[row.layer :]} == {row.prediction}
    assert grid.continuation == reading.continuations[0]


@pytest.mark.parametrize(
    "text, seen",
    [(" the", "␣the"), ("\n", "↵"), ("\x1b[31m", "\\x1b[31m"), ("日本", "日本")],
)
def test_what_cannot_be_seen_is_made_visible(text, seen):
    assert visible(text) == seen


def test_a_reading_is_opened_with_its_tokens_as_they_were(tmp_path):
    written = odd_reading()
    found = open_reading(written.save(tmp_path / "lens"))
    assert found.grid["token"].tolist() == TEXTS * 3
    assert found.saturation["prediction"].tolist() == TEXTS[::-1]
    assert (
        found.as_dict() == written.as_dict() and found.document() == written.document()
    )
