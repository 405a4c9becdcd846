"""Documents in a terminal: what fits, what folds, what is escaped."""

import io
import math

import pytest
from rich.console import Console

from layerscope.show.document import MARK, Cell, Column, Document, Facts, Row, Table, columns, row
from layerscope.show.numbers import spark
from layerscope.show.plots import HeatMap
from layerscope.show.terminal import show


def printed(*parts, width=80, **more):
    stream = io.StringIO()
    show(Document("The answer.", parts=parts, **more), Console(file=stream, width=width))
    return stream.getvalue()


@pytest.mark.parametrize(
    ("values", "line"),
    [
        ([0, 1, 2, 3, 4, 5, 6, 7], "▁▂▃▄▅▆▇█"),
        ([5.0, 5.5, 6.0, 5.0], "▁▅█▁"),
        ([1.0, math.nan, 2.0], "▁ █"),
        ([1.0, math.inf, 2.0], "▁ █"),
        ([3.0, 3.0], "▅▅"),
        ([math.nan, math.nan], "  "),
        ([], ""),
    ],
)
def test_the_shape_of_a_spark_line(values, line):
    assert spark(values) == line


def test_a_logarithmic_spark_line_shows_what_a_linear_one_hides():
    assert spark([1e7, 1e4, 1e2, 1e0]) == "█▁▁▁"
    assert spark([1e7, 1e4, 1e2, 1e0], log=True) == "█▅▃▁"


def test_a_deep_model_has_a_short_spark_line():
    line = spark(range(49))
    assert len(line) == 16 and line[0] == "▁" and line[-1] == "█" and list(line) == sorted(line)


def test_the_answer_is_the_first_line_and_commands_are_the_last():
    lines = printed(
        Facts((("a", "b"),)), title=("x", "y"), notes=("small",), commands=("one", "two")
    ).splitlines()
    assert (
        lines[0] == "The answer."
        and lines[1] == "x on y"
        and lines[-3:] == ["small", "next: one", "      two"]
    )


def test_columns_that_do_not_fit_stand_below_with_the_first_one_again():
    wide = Table(
        "Wide",
        columns(["name", *(f"heading{i}" for i in range(9))]),
        (row("n", *["0.123 ±0.01"] * 9),),
    )
    lines = printed(wide, width=60).splitlines()
    assert max(map(len, lines)) <= 60 and lines.count("Wide, continued") == 2
    assert sum(line.startswith("   n  ") for line in lines) == 3
    assert "continued" not in printed(wide, width=200)


def test_only_what_answers_is_shown_unless_all_is_asked_for():
    answer, rest = (
        Table("Answer", columns(["a"]), (row("1"),)),
        Facts((("b", "2"),), f"Rest {'of it ' * 9}· more"),
    )
    document, stream = (
        Document("Yes.", parts=(rest, answer), lead=(answer,), commands=("go",)),
        io.StringIO(),
    )
    show(document, Console(file=stream, width=80), long=False)
    short = stream.getvalue()
    assert "Answer" in short and "b" not in short.splitlines()
    assert short.splitlines()[-2:] == [
        f"--long also shows: Rest {'of it ' * 9}"[:58] + "…",
        "next: go",
    ]
    assert "--long" not in printed(rest, answer, lead=(answer,)) and "Rest of it" in printed(
        rest, answer, lead=(answer,)
    )


def test_the_short_form_of_a_wide_table_is_its_first_columns():
    wide = Table(
        "Wide",
        columns(["name", *(f"heading{i}" for i in range(9))]),
        (row("n", *["0.123 ±0.01"] * 9),),
    )
    stream = io.StringIO()
    show(Document("Yes.", parts=(wide,)), Console(file=stream, width=60), long=False)
    assert (
        "continued" not in stream.getvalue()
        and "--long also shows 5 more columns." in stream.getvalue()
    )


def test_no_column_of_a_table_is_empty():
    cells = [row("x", "1", "", *["12345678"] * 4, ""), row("y", "2", "", *["12345678"] * 4, "")]
    table = Table("Some", columns(["name", "a", "never", *"bcde", "nothing"]), tuple(cells))
    text = printed(table, width=40)
    assert "continued" in text and "never" not in text and "nothing" not in text


def test_a_narrow_form_replaces_what_does_not_fit():
    parts = tuple(
        Table(f"Part {i}", columns(["a"]), (row("1"),), (f"legend {i}",)) for i in range(2)
    )
    wide = Table("Whole", columns(["x" * 16] * 9), (row(*["1"] * 9),), ("legend",), parts)
    text = printed(wide, width=60)
    assert "Part 0" in text and "legend 0" in text and "Part 1" in text and "Whole" not in text
    assert "Whole" in printed(wide, width=300) and "Part" not in printed(wide, width=300)


def test_where_room_is_short_a_heading_folds_to_the_width_of_its_column_but_not_inside_a_word():
    table = Table("", columns(["layer", "effective rank", "LiDAR"]), (row("0", "1.23", "1"),))
    assert printed(table, width=30).splitlines()[2].split() == [
        "layer",
        "effective",
        "rank",
        "LiDAR",
    ]
    lines = printed(table, width=28).splitlines()
    assert [line.split() for line in lines[2:4]] == [["effective"], ["layer", "rank", "LiDAR"]]


def test_numbers_stand_at_their_points_and_marks_beside_them():
    cells = [Cell("1.5", "±0.1"), Cell("10", marked=True), Cell("–")]
    table = Table(
        "",
        (Column("layer"), Column("value", "decimal")),
        tuple(Row((Cell("0"), cell)) for cell in cells),
    )
    lines = printed(table).splitlines()[4:]
    assert [line.rstrip() for line in lines] == [
        "    0    1.5 ±0.1",
        f"    0   10        {MARK}",
        "    0    –",
    ]


def test_texts_are_neither_markup_nor_commands_to_the_terminal():
    text = printed(
        Facts((("[red]a", "\x1b[2J"),), "[b]\x07"), notes=("[/]",), commands=("\x1b[1m",)
    )
    assert (
        "[red]a" in text
        and "\\x1b[2J" in text
        and "[b]\\x07" in text
        and "[/]" in text
        and "\x1b" not in text
    )


def test_a_map_has_digits_where_there_is_room_and_shades_where_not():
    values = tuple(tuple(float(i == j) for j in range(20)) for i in range(2))
    names = tuple(map(str, range(20)))
    part = HeatMap(
        title="near",
        corner="layer",
        rows=("0", "final"),
        columns=names,
        values=values,
        aside=("best", ("", "1")),
    )
    wide, narrow = printed(part, width=200), printed(part)
    assert "1.00  0.00" in wide and "best" in wide and wide.rstrip().endswith("   1")
    assert "0 to 19 across, ·░▒▓█ from 0 to 1" in narrow and "    0 █" + "·" * 19 in narrow


def test_a_cell_draws_its_own_spark_line_and_sentences_wrap():
    why = (
        "a reason of more words than a line of so narrow a screen can hold beside the other columns"
    )
    heads = (Column("layer"), Column("course", "left"), Column("why", "left", wraps=True))
    text = printed(Table("", heads, (row("1", Cell("3.0", shape=(1.0, 2.0, 3.0)), why),)), width=60)
    assert "▁▅█ 3.0" in text and " ".join(text.split()[-8:]) != why
    assert max(map(len, text.splitlines())) <= 60 and "continued" not in text
