import re
import sys

import matplotlib.figure
import numpy as np
import pytest
from drawings import all_curves, panels_of
from PIL import Image

from layerscope.core.errors import LayerscopeError
from layerscope.reports.figures import draw
from layerscope.runs.curves import curves
from layerscope.show.figures.draw import singles
from layerscope.show.figures.style import COLUMN_WIDTH, DPI, TEXT_WIDTH, look, save, styled

FIGURES = ["curves", "cosine_similarity", "cka", "cosine_to_last", "saturation"]


@pytest.fixture(scope="module")
def drawn(labelled, tmp_path_factory):
    before = dict(matplotlib.rcParams)
    paths = draw(labelled, tmp_path_factory.mktemp("figures") / "deep" / "er")
    assert dict(matplotlib.rcParams) == before
    return {path.name: path for path in paths}


def test_a_labelled_run_with_a_head_has_all_figures_at_both_widths(drawn, labelled):
    names = [f"{name}{suffix}" for name in FIGURES for suffix in ("", "-column")]
    names += [
        f"curve-{c.metric}" for c in curves(labelled) if c.metric != "infonce_bound"
    ]  # in InfoNCE's panel
    assert sorted(drawn) == sorted(
        f"{name}.{kind}" for name in names for kind in ("png", "pdf", "svg")
    )


def test_figures_are_as_wide_as_a_text_or_a_column_and_hold_a_picture(drawn):
    for name, path in drawn.items():
        width = COLUMN_WIDTH if "-column" in name or name.startswith("curve-") else TEXT_WIDTH
        if path.suffix == ".png":
            with Image.open(path) as file:
                image, dpi = np.asarray(file.convert("RGB")), file.info["dpi"][0]
            assert image.shape[1] == pytest.approx(width * DPI, abs=1)
            assert dpi == pytest.approx(DPI, abs=0.1) and DPI >= 200
            assert len(np.unique(image @ np.array([65536, 256, 1]))) > 50 and image.std() > 10
        elif path.suffix == ".svg":
            assert f'width="{72 * width:g}pt"' in path.read_text("utf-8")
        else:
            box = re.search(rb"/MediaBox \[ ?([\d. ]+)\]", path.read_bytes())[1].split()
            assert float(box[2]) == pytest.approx(72 * width, abs=0.01)


def test_pdf_has_its_fonts_in_it_and_no_date(drawn):
    for path in drawn.values():
        if path.suffix == ".pdf":
            data = path.read_bytes()
            assert b"/FontFile2" in data and b"/Type3" not in data
            assert b"CreationDate" not in data and b"/Subtype /Image" not in data.replace(
                b"/Image /", b""
            )


def test_the_same_runs_give_the_same_bytes(written, pairs, tmp_path):
    runs = [written(pairs("cka", np.eye(3)), depth=2, model=model) for model in ("one", "two")]
    first, second = draw(runs, tmp_path / "a"), draw(runs, tmp_path / "b")
    assert len(first) == 15
    assert [path.read_bytes() for path in first] == [path.read_bytes() for path in second]


def test_lines_are_the_runs_numbers(labelled):
    axes = panels_of(all_curves([labelled]))
    assert len(axes) == len(curves(labelled)) - 1 and "InfoNCE and its bound" in axes
    line = axes["Effective rank"].lines[0]
    np.testing.assert_array_equal(line.get_ydata(), labelled.metric("effective_rank"))
    np.testing.assert_array_equal(line.get_xdata(), [0, 1, 2, 3])
    probe = axes["Linear probe"]
    np.testing.assert_allclose(probe.lines[0].get_ydata(), 100 * labelled.metric("linear_probe"))
    assert probe.get_ylabel() == "%"
    curve = next(c for c in curves(labelled) if c.metric == "effective_rank")
    assert axes["Effective rank"].lines[-1].get_xdata()[0] == curve.stands_out


def test_a_ring_marks_only_what_differs_by_more_than_its_error(written, by_layer):
    rows = by_layer("linear_probe", [0.5, 0.6, 0.52], [0.1] * 3, pooling="mean")
    rows += by_layer("knn_probe", [0.5, 0.9, 0.52], [0.01] * 3, pooling="mean")
    axes = panels_of(all_curves([written(rows, depth=2)]))
    assert len(axes["Linear probe"].lines) == 1
    assert axes["kNN probe"].lines[-1].get_xdata()[0] == 1


def test_runs_lie_over_each_other_by_depth_and_each_has_a_look_of_its_own(
    labelled, written, by_layer
):
    deep = written(
        by_layer("effective_rank", np.arange(7.0), pooling="mean"), depth=6, model="deep"
    )
    figure = all_curves([labelled, deep])
    axes = panels_of(figure)
    own, other = (line for line in axes["Effective rank"].lines if len(line.get_xdata()) > 1)
    np.testing.assert_allclose(own.get_xdata(), 100 * np.arange(4) / 3)
    np.testing.assert_allclose(other.get_xdata(), 100 * np.arange(7) / 6)
    np.testing.assert_array_equal(other.get_ydata(), np.arange(7.0))
    for looks in ("get_color", "get_linestyle", "get_marker"):
        assert getattr(own, looks)() != getattr(other, looks)()
    assert {
        line.get_color() for line in axes["Linear probe"].lines if len(line.get_xdata()) > 1
    } == {own.get_color()}
    assert {axis.get_xlabel() for axis in axes.values()} == {"", "depth (%)"}
    texts = [text.get_text() for text in figure.legends[0].get_texts()]
    assert texts[:2] == ["Sequential", "deep"]


def test_names_that_are_given_are_those_of_the_legend(labelled, bare, tmp_path):
    figure = all_curves([labelled, bare], names=["_ours", "theirs"])
    assert [text.get_text() for text in figure.legends[0].get_texts()][:2] == ["_ours", "theirs"]
    with pytest.raises(LayerscopeError, match="2 runs have 1 names"):
        draw([labelled, bare], tmp_path, names=["one"])


def test_looks_of_many_runs_differ():
    looks = {(look(i)["color"], look(i)["linestyle"], look(i)["marker"]) for i in range(35)}
    assert len(looks) == 35


def test_poolings_of_several_runs_are_told_by_their_markers(written, by_layer):
    rows = [
        row
        for p in ("mean", "last")
        for row in by_layer("effective_rank", [1.0, 2.0, 1.5], pooling=p)
    ]
    runs = [written(rows, depth=2, pooling=["mean", "last"], model=name) for name in "ab"]
    figure = all_curves(runs)
    lines = [line for line in figure.axes[0].lines if len(line.get_xdata()) > 1]
    assert len({(line.get_color(), line.get_markerfacecolor()) for line in lines}) == 4
    assert len({line.get_color() for line in lines}) == 2
    assert {"mean pooling", "last pooling"} <= {
        text.get_text() for text in figure.legends[0].get_texts()
    }


def test_a_pooling_has_one_look_in_all_figures_of_a_run(written, by_layer):
    rows = by_layer("prompt_entropy", [1.0, 2.0, 1.5])
    rows += [
        row
        for p in ("mean", "last")
        for row in by_layer("effective_rank", [1.0, 2.0, 1.5], pooling=p)
    ]
    rows += by_layer("lidar", [1.0, 2.0, 1.5], pooling="last")
    run = written(rows, depth=2, pooling=["mean", "last"])
    own = {
        "Prompt entropy": [look(0)["color"]],
        "Effective rank": [look(1)["color"], look(2)["color"]],
        "LiDAR": [look(2)["color"]],
    }
    with styled():
        alone = [drawer(COLUMN_WIDTH) for _, drawer in singles([("one", run.document())])]
    for figure in (all_curves([run]), *alone):
        for title, axis in panels_of(figure).items():
            assert [line.get_color() for line in axis.lines if len(line.get_xdata()) > 1] == own[
                title
            ]
    legend = [text.get_text() for text in alone[-1].legends[0].get_texts()]
    assert "last pooling" in legend and "mean pooling" not in legend


def test_one_pooling_beside_what_is_by_token_needs_one_colour(written, by_layer):
    run = written(
        by_layer("prompt_entropy", [1.0, 2.0]) + by_layer("lidar", [1.0, 2.0], pooling="mean"),
        depth=1,
    )
    figure = all_curves([run])
    assert {axis.lines[0].get_color() for axis in figure.axes} == {look(0)["color"]}
    assert "mean pooling" not in [text.get_text() for text in figure.legends[0].get_texts()]


def test_the_legend_of_one_metric_names_the_runs_that_have_it(labelled, bare):
    drawers = dict(singles([("ours", labelled.document()), ("theirs", bare.document())]))
    with styled():
        figure = drawers["curve-linear_probe"](COLUMN_WIDTH)
    texts = [text.get_text() for text in figure.legends[0].get_texts()]
    assert "ours" in texts and "theirs" not in texts


def test_half_a_figure_never_takes_the_place_of_a_whole_one(tmp_path):
    from matplotlib.figure import Figure

    png, pdf, _ = save(Figure(), tmp_path, "x")
    whole = pdf.read_bytes()
    (tmp_path / ".x.pdf.part").mkdir()
    with pytest.raises(LayerscopeError, match="x.pdf' cannot be written .Is a directory"):
        save(Figure(), tmp_path, "x")
    assert pdf.read_bytes() == whole and png.is_file() and not (tmp_path / ".x.png.part").exists()


def test_nothing_to_draw_is_told(written, labelled, tmp_path):
    for runs in (written([]), [written([]), written([])]):
        with pytest.raises(LayerscopeError, match="nothing to draw"):
            draw(runs, tmp_path / "f")
    with pytest.raises(LayerscopeError, match="no result is named"):
        draw([], tmp_path / "f")
    assert not (tmp_path / "f").exists()


def test_a_folder_or_file_that_cannot_be_is_told_in_one_line(bare, tmp_path):
    (tmp_path / "file").write_text("x")
    (tmp_path / "folder" / "curves.png").mkdir(parents=True)
    for target in (tmp_path / "file", tmp_path / "file" / "below", tmp_path / "folder"):
        with pytest.raises(LayerscopeError, match="cannot be written") as caught:
            draw(bare, target)
        assert "\n" not in str(caught.value)


def test_without_matplotlib_the_mend_is_named(labelled, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    for name in [n for n in sys.modules if n.startswith("layerscope.show.figures.")]:
        monkeypatch.delitem(sys.modules, name)
    for name in ("draw", "style"):
        monkeypatch.delattr(f"layerscope.show.figures.{name}")
    with pytest.raises(LayerscopeError, match=r'pip install "layerscope\[figures\]"'):
        draw(labelled, tmp_path)
