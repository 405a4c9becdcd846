"""Figures: valid specifications over the results' own numbers, in files of the promised widths."""

import json
import math
import re

import pytest
import vl_convert
from exit_reports import made
from PIL import Image
from typed import refused

from layerscope.reports.figures import draw
from layerscope.show.drawing import figures
from layerscope.show.figure import COLUMN_WIDTH, TEXT_WIDTH
from layerscope.show.looks import numbered

LONG = "a name of a model that is far too long for the width of any column " * 3


def drawn(*results, names=None, width=TEXT_WIDTH):
    """Return the figures of results by name."""
    called = names or [str(number) for number in range(len(results))]
    given = list(zip(called, [result.document() for result in results], strict=True))
    return {name: drawer(width) for name, drawer in figures(given)}


def panels(figure):
    """Return the panels of a figure by title."""
    return {
        " ".join(panel.get("title", {}).get("text", [])): panel
        for panel in figure.spec["concat"]
    }


def fields(value):
    """Yield the fields that encodings of a specification read."""
    if isinstance(value, dict):
        if isinstance(value.get("field"), str):
            yield value["field"]
        for entry in value.values():
            yield from fields(entry)
    if isinstance(value, list):
        for entry in value:
            yield from fields(entry)


def width_of(figure):
    return float(re.search(r'width="([\d.]+)"', figure.svg)[1])


@pytest.fixture(scope="module")
def results(labelled, language):
    return {
        "run": [labelled],
        "runs": [labelled, language],
        "exits": [made()],
        "rivals": [made(), made(labelled=False)],
    }


@pytest.mark.parametrize(
    "kind, width",
    [
        ("run", COLUMN_WIDTH),
        ("runs", TEXT_WIDTH),
        ("exits", TEXT_WIDTH),
        ("rivals", COLUMN_WIDTH),
    ],
)
def test_every_specification_compiles_and_reads_what_its_rows_have(
    results, kind, width
):
    for name, figure in drawn(*results[kind], width=width).items():
        assert vl_convert.vegalite_to_vega(figure.spec)["marks"], name
        json.dumps(figure.spec, allow_nan=False)
        assert width_of(figure) == pytest.approx(72 * width, abs=6), name
        for panel in figure.spec["concat"]:
            computed = {step["as"] for step in panel.get("transform", [])}
            there = {column for row in panel["data"]["values"] for column in row}
            own = set(fields(panel["layer"])) - {"text", "name"}
            assert own <= there | computed, name


def test_lines_and_the_table_behind_them_are_the_runs_numbers(labelled):
    figure = labelled.plot("effective_rank")
    wanted = labelled.metric("effective_rank")
    assert figure.data["value"].tolist()[: len(wanted)] == pytest.approx(
        list(wanted), rel=1e-5
    )
    rows = figure.spec["concat"][0]["data"]["values"]
    assert [row["x"] for row in rows if row["mark"] != "after"] == list(wanted.index)
    square = labelled.plot("cka").data.pivot_table(
        index="layer", columns="layer_b", values="value", sort=False
    )
    assert square.to_numpy() == pytest.approx(
        labelled.metric("cka").to_numpy(), rel=1e-5
    )


def test_runs_lie_over_each_other_by_depth_and_each_has_a_look_of_its_own(
    labelled, bare
):
    figure = drawn(labelled, bare, names=["first", LONG])["curves"]
    assert figure.spec["params"] == [{"name": "percent", "value": True}]
    assert width_of(figure) == pytest.approx(72 * TEXT_WIDTH, abs=6)
    panel = panels(figure)["Effective rank"]
    assert {row["run"] for row in panel["data"]["values"]} == {"first", LONG}
    assert (
        "depth [%]" in figure.svg and ">first<" in figure.svg and LONG not in figure.svg
    )
    assert len({numbered(number) for number in range(35)}) == 35


def test_bands_end_within_the_axis_and_a_ring_marks_what_stands_out(written, by_layer):
    values, errors = [1.0, 2.0, 3.0, 2.0, 1.0], [0.9, 0.9, 1.8, 0.9, 1.9]
    (figure,) = drawn(written(by_layer("effective_rank", values, errors))).values()
    (panel,) = panels(figure).values()
    scene = vl_convert.vegalite_to_scenegraph(figure.spec)
    bands = [mark for mark in marks(scene["scenegraph"]) if mark["marktype"] == "area"]
    assert bands and all(
        0 <= y <= panel["height"]
        for band in bands
        for item in band["items"]
        for y in (item["y"], item["y2"])
    )
    (ringed,) = (row for row in panel["data"]["values"] if row.get("marked"))
    assert ringed["x"] == 2


def marks(group):
    """Yield every mark of a scene."""
    if "marktype" in group:
        yield group
    for entry in group.get("items", []):
        yield from marks(entry)


@pytest.mark.parametrize(
    "values, errors, ends",
    [
        ([0.0] * 5, None, [-0.05, 0.05]),
        ([5.0] * 5, None, [4.875, 5.125]),
        ([5.0] * 5, [0.01, *[math.nan] * 4], [4.98, 5.02]),
        ([1e-15, 0.0, 0.0, -1e-16, 0.0], None, [-0.05, 0.05]),
    ],
)
def test_an_axis_does_not_magnify_noise(written, by_layer, values, errors, ends):
    (figure,) = drawn(written(by_layer("effective_rank", values, errors))).values()
    (domain,) = {
        tuple(layer["encoding"]["y"]["scale"]["domain"])
        for layer in figure.spec["concat"][0]["layer"]
    }
    assert domain == pytest.approx(ends)


def test_values_that_are_not_finite_leave_gaps_and_none_says_so(written, by_layer):
    (figure,) = drawn(
        written(by_layer("effective_rank", [1.0, math.nan, math.inf, 2.0, 3.0]))
    ).values()
    assert [row["y"] for row in figure.spec["concat"][0]["data"]["values"]] == [
        1.0,
        None,
        None,
        2.0,
        3.0,
    ]
    (figure,) = drawn(written(by_layer("effective_rank", [math.nan] * 5))).values()
    assert ">no value<" in figure.svg


def test_a_pooling_has_one_look_in_all_figures_of_a_run(written, by_layer):
    rows = [
        row
        for pooling in ("mean", "last")
        for row in by_layer(
            "effective_rank", [1.0, 2.0, 3.0, 2.0, 1.0 + len(pooling)], pooling=pooling
        )
    ]
    rows += by_layer("dime", [1.0, 2.0, 3.0, 2.0, 2.0], pooling="last")
    run = written(rows, pooling=["mean", "last"])
    looks = []
    for panel in drawn(run)["curves"].spec["concat"]:
        scale = next(
            layer["encoding"]["color"]["scale"]
            for layer in panel["layer"]
            if "color" in layer["encoding"]
        )
        looks.append(
            dict(zip(scale["domain"], scale["range"], strict=True))["last pooling"]
        )
    assert len(looks) == 2 and len(set(looks)) == 1


def test_files_have_both_widths_real_fonts_and_the_same_bytes(
    written, by_layer, pairs, tmp_path
):
    rows = by_layer("effective_rank", [1.0, 2.0, 3.0])
    rows += pairs("cka", [[1, 0.5, 0.4], [0.5, 1, 0.95], [0.4, 0.95, 1]])
    run = written(rows, depth=2)
    paths = draw(run, tmp_path / "a")
    names = {path.stem for path in paths}
    assert {"curves", "curves-column", "cka", "cka-column"} <= names
    assert sorted(path.name for path in paths) == sorted(
        path.name for path in (tmp_path / "a").iterdir()
    )
    for name, width in (("curves", TEXT_WIDTH), ("cka-column", COLUMN_WIDTH)):
        pdf = (tmp_path / "a" / f"{name}.pdf").read_bytes()
        box = [
            float(size)
            for size in re.search(rb"MediaBox ?\[([^\]]+)\]", pdf)[1].split()
        ]
        assert box[2] == pytest.approx(72 * width, abs=6)
        assert b"FontFile" in pdf and b"CreationDate" not in pdf
        image = Image.open(tmp_path / "a" / f"{name}.png")
        assert image.width == pytest.approx(300 * width, abs=15)
        assert len(image.convert("RGB").getcolors(1 << 24)) > 10
    figure, again = run.plot("cka"), run.plot("cka")
    for kind in ("png", "svg"):
        assert (
            figure.save(tmp_path / f"x.{kind}").read_bytes()
            == again.save(tmp_path / f"y.{kind}").read_bytes()
        )


def test_exits_draw_their_numbers():
    report = made()
    data = {name: figure.data for name, figure in drawn(report).items()}
    speed = data["exits_accuracy_against_speed"]
    exits = speed[speed["series"].str.startswith("exits")]
    assert sorted(exits["accuracy (%)"]) == pytest.approx(
        sorted(100 * report.curve["accuracy"]), rel=1e-5
    )
    chosen = speed.loc[speed["chosen"].notna(), "measured speed-up (×)"]
    assert chosen.tolist() == [pytest.approx(report.measured, rel=1e-5)]


def test_what_cannot_be_drawn_or_written_is_told_in_one_line(
    written, labelled, tmp_path
):
    with refused("have no plot, so there is nothing to draw"):
        draw(written([]), tmp_path)
    (tmp_path / "file").write_text("")
    with refused("cannot be written to .*File exists"):
        draw(labelled, tmp_path / "file")
    figure = labelled.plot("effective_rank")
    with refused(r"let it end in \.pdf, \.png or \.svg"):
        figure.save(tmp_path / "x.jpg")
