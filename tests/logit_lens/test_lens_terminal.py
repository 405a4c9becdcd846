"""The lens in a terminal and on paper: colours by probability, wide characters, lines that fit."""

import io

import pytest
import tiny
from logit_lens.readers import PLAIN, read
from rich.cells import cell_len
from rich.console import Console
from tiny import one_thread  # noqa: F401  a fixture

from layerscope.logit_lens.reading import grids, visible
from layerscope.reports.figures import draw
from layerscope.show.numbers import chance
from layerscope.show.terminal import show


@pytest.fixture(scope="module")
def reading():
    found = read(tiny.llama(), "w1 w2 w3", tokens=20, processor=PLAIN, top=2)
    found.saturation["token"] = ["日本語の長い言葉です", " x\n", *found.saturation["token"][2:]]
    return found


def printed(reading, width, **how):
    console = Console(width=width, record=True, file=io.StringIO(), **how)
    show(reading.document(), console)
    return console.export_text(styles="color_system" in how)


@pytest.mark.parametrize("width", [40, 80, 200])
def test_every_line_fits_and_every_token_is_there_once(reading, width):
    text = printed(reading, width)
    assert text.startswith(reading.summary[: width // 2])
    assert all(cell_len(line) <= width for line in text.splitlines())
    heads = [
        line for line in text.splitlines() if line.startswith("layer") and "settled" not in line
    ]
    assert sum(line.count("»") for line in heads) == reading.saturation["generated"].sum()
    assert sum(line.count("*") for line in text.splitlines() if line[:1] in "123") == len(
        reading.saturation
    )
    assert "␣x↵" in text and (len(heads) > 1) == (width < 200)
    first = reading.grid[(reading.grid["rank"] == 1) & (reading.grid["layer"] == 0)].iloc[0]
    assert f"{first['prediction']} {100 * first['probability']:.0f}" in text


def test_colours_stand_for_probabilities_in_a_terminal_alone(reading):
    coloured = printed(reading, 120, force_terminal=True, color_system="truecolor")
    shades = {part for part in coloured.split("\x1b[") if "48;2;" in part}
    assert len(shades) > 10 and "»" not in coloured
    assert "\x1b" not in printed(reading, 120)


def test_cells_of_a_grid_settle_where_the_table_says(reading):
    (grid,) = grids(reading)
    for x, row in enumerate(reading.saturation.itertuples()):
        column = [cells[x] for _, cells in grid.rows]
        assert [cell.settles for cell in column].index(True) == row.layer
        assert {cell.text for cell in column[row.layer :]} == {row.prediction}
    assert grid.continuation == reading.continuations[0]


@pytest.mark.parametrize(
    ("text", "seen"), [(" the", "␣the"), ("\n", "↵"), ("\x1b[31m", "\\x1b[31m"), ("日本", "日本")]
)
def test_what_cannot_be_seen_is_made_visible(text, seen):
    assert visible(text) == seen


@pytest.mark.parametrize(
    ("share", "told"), [(1.0, "100%"), (0.42, "42%"), (0.042, "4.2%"), (0.0, "0%")]
)
def test_percent(share, told):
    assert chance(share) == told


def test_figures_for_a_paper(reading, tmp_path):
    drawn = draw(reading, tmp_path / "figures")
    assert len(drawn) == 12 and all(path.stat().st_size > 5_000 for path in drawn)
    assert {path.stem for path in drawn} == {
        "lens",
        "lens-column",
        "lens_saturation",
        "lens_saturation-column",
    }
