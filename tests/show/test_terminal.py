"""Documents in a terminal: what fits, what folds, what is escaped."""

import io
import math

import pytest
from rich.console import Console

from layerscope.show.document import (
    Column,
    Document,
    Facts,
    Head,
    Prediction,
    Table,
    TokenGrid,
    columns,
    row,
)
from layerscope.show.numbers import percent
from layerscope.show.terminal import show


def printed(*parts, width=80, long=True, **more):
    stream = io.StringIO()
    document = Document("The answer.", parts=parts, **more)
    show(document, Console(file=stream, width=width), long=long)
    return stream.getvalue()


def test_the_answer_is_the_first_line_and_commands_are_the_last():
    lines = printed(
        Facts((("a", "b"),)),
        title=("x", "y"),
        notes=("small",),
        commands=("one", "two"),
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
    short = printed(rest, answer, lead=(answer,), commands=("go",), long=False)
    assert "Answer" in short and "b" not in short.splitlines()
    assert short.splitlines()[-2:] == ["--long shows all of it", "next: go"]
    whole = printed(rest, answer, lead=(answer,))
    assert "--long" not in whole and "Rest of it" in whole


def test_no_column_of_a_table_is_empty():
    cells = [
        row("x", "1", "", *["12345678"] * 4, ""),
        row("y", "2", "", *["12345678"] * 4, ""),
    ]
    table = Table(
        "Some", columns(["name", "a", "never", *"bcde", "nothing"]), tuple(cells)
    )
    text = printed(table, width=40)
    assert "continued" in text and "never" not in text and "nothing" not in text


def test_of_long_names_only_those_of_the_rows_are_folded():
    long = "x" * 30
    heads = columns(["name", "other"], "left")
    line = next(
        line
        for line in printed(Table("", heads, (row(long, long),)), width=80).splitlines()
        if "x" in line
    )
    assert [len(word) for word in line.split()] == [24, 30]


def test_texts_are_neither_markup_nor_commands_to_the_terminal():
    text = printed(
        Facts((("[red]a", "\x1b[2J"),), "[b]\x07"),
        notes=("[/]",),
        commands=("\x1b[1m",),
    )
    assert (
        "[red]a" in text
        and "\\x1b[2J" in text
        and "[b]\\x07" in text
        and "[/]" in text
        and "\x1b" not in text
    )


def test_sentences_in_a_column_wrap():
    why = "a reason of more words than a line of so narrow a screen can hold beside the other columns"
    heads = (Column("layer"), Column("why", "left", wraps=True))
    text = printed(Table("", heads, (row("1", why),)), width=60)
    assert max(map(len, text.splitlines())) <= 60 and "continued" not in text


def test_a_share_is_shown_in_percent():
    assert [*map(percent, (0.123, math.nan))] == ["12.3 %", "–"]


@pytest.mark.parametrize(
    "title, text, line",
    [("s1", "good", "s1: good"), ("s1", "", "s1"), ("", "good", "good")],
)
def test_a_grid_stands_below_its_title_and_text(title, text, line):
    cell = Prediction("food", 0.5, (), settles=False)
    rows = ((Head("1"), (cell,)),)
    grid = TokenGrid(title, text, "", "layer", (Head("good"),), rows)
    assert line in map(str.strip, printed(grid).splitlines())
