import re
import sys

import matplotlib.figure
import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

from layerscope.core.errors import LayerscopeError
from layerscope.profiling import profile
from layerscope.reports.figures import draw
from layerscope.runs.curves import curves
from layerscope.runs.details import run_names
from layerscope.show.figures.draw import figures, singles
from layerscope.show.figures.style import COLUMN_WIDTH, DPI, TEXT_WIDTH, layer_step, look, save, scale, styled
from layerscope.show.plots import Axis, HeatMap, ends

FIGURES = ["curves", "cosine_similarity", "cka", "cosine_to_last", "saturation"]


@pytest.fixture(scope="module")
def drawn(labelled, tmp_path_factory):
    before = dict(matplotlib.rcParams)
    paths = draw(labelled, tmp_path_factory.mktemp("figures") / "deep" / "er")
    assert dict(matplotlib.rcParams) == before
    return {path.name: path for path in paths}


def headless():
    """Return a model of two blocks without a norm after them."""
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Linear(8, 16), nn.Sequential(*(nn.Sequential(nn.Linear(16, 16), nn.Tanh()) for _ in range(3)))
    )


def panels_of(figure):
    """Return a figure's panels by title."""
    return {axis.get_title(loc="left").replace("\n", " "): axis for axis in figure.axes}


def drawing(name, runs, width=TEXT_WIDTH, names=None):
    """Return one figure of runs, by its name."""
    given = [(called, run.document()) for called, run in zip(names or run_names(runs), runs, strict=True)]
    with styled():
        return dict(figures(given))[name](width)


def all_curves(runs, width=TEXT_WIDTH, names=None):
    return drawing("curves", runs, width, names)


def test_a_labelled_run_with_a_head_has_all_figures_at_both_widths(drawn, labelled):
    names = [f"{name}{suffix}" for name in FIGURES for suffix in ("", "-column")]
    names += [f"curve-{c.metric}" for c in curves(labelled) if c.metric != "infonce_bound"]  # in InfoNCE's panel
    assert sorted(drawn) == sorted(f"{name}.{kind}" for name in names for kind in ("png", "pdf"))


def test_figures_are_as_wide_as_a_text_or_a_column_and_hold_a_picture(drawn):
    for name, path in drawn.items():
        width = COLUMN_WIDTH if "-column" in name or name.startswith("curve-") else TEXT_WIDTH
        if path.suffix == ".png":
            with Image.open(path) as file:
                image, dpi = np.asarray(file.convert("RGB")), file.info["dpi"][0]
            assert image.shape[1] == pytest.approx(width * DPI, abs=1)
            assert dpi == pytest.approx(DPI, abs=0.1) and DPI >= 200
            assert len(np.unique(image @ np.array([65536, 256, 1]))) > 50 and image.std() > 10
        else:
            box = re.search(rb"/MediaBox \[ ?([\d. ]+)\]", path.read_bytes())[1].split()
            assert float(box[2]) == pytest.approx(72 * width, abs=0.01)


def test_pdf_has_its_fonts_in_it_and_no_date(drawn):
    for path in drawn.values():
        if path.suffix == ".pdf":
            data = path.read_bytes()
            assert b"/FontFile2" in data and b"/Type3" not in data
            assert b"CreationDate" not in data and b"/Subtype /Image" not in data.replace(b"/Image /", b"")


def test_the_same_runs_give_the_same_bytes(written, pairs, tmp_path):
    runs = [written(pairs("cka", np.eye(3)), depth=2, model=model) for model in ("one", "two")]
    first, second = draw(runs, tmp_path / "a"), draw(runs, tmp_path / "b")
    assert len(first) == 10
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


def test_runs_lie_over_each_other_by_depth_and_each_has_a_look_of_its_own(labelled, written, by_layer):
    deep = written(by_layer("effective_rank", np.arange(7.0), pooling="mean"), depth=6, model="deep")
    figure = all_curves([labelled, deep])
    axes = panels_of(figure)
    own, other = (line for line in axes["Effective rank"].lines if len(line.get_xdata()) > 1)
    np.testing.assert_allclose(own.get_xdata(), 100 * np.arange(4) / 3)
    np.testing.assert_allclose(other.get_xdata(), 100 * np.arange(7) / 6)
    np.testing.assert_array_equal(other.get_ydata(), np.arange(7.0))
    for looks in ("get_color", "get_linestyle", "get_marker"):
        assert getattr(own, looks)() != getattr(other, looks)()
    assert {line.get_color() for line in axes["Linear probe"].lines if len(line.get_xdata()) > 1} == {own.get_color()}
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
    rows = [row for p in ("mean", "last") for row in by_layer("effective_rank", [1.0, 2.0, 1.5], pooling=p)]
    runs = [written(rows, depth=2, pooling=["mean", "last"], model=name) for name in "ab"]
    figure = all_curves(runs)
    lines = [line for line in figure.axes[0].lines if len(line.get_xdata()) > 1]
    assert len({(line.get_color(), line.get_markerfacecolor()) for line in lines}) == 4
    assert len({line.get_color() for line in lines}) == 2
    assert {"mean pooling", "last pooling"} <= {text.get_text() for text in figure.legends[0].get_texts()}


def test_a_pooling_has_one_look_in_all_figures_of_a_run(written, by_layer):
    rows = by_layer("prompt_entropy", [1.0, 2.0, 1.5])
    rows += [row for p in ("mean", "last") for row in by_layer("effective_rank", [1.0, 2.0, 1.5], pooling=p)]
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
            assert [line.get_color() for line in axis.lines if len(line.get_xdata()) > 1] == own[title]
    legend = [text.get_text() for text in alone[-1].legends[0].get_texts()]
    assert "last pooling" in legend and "mean pooling" not in legend


def test_one_pooling_beside_what_is_by_token_needs_one_colour(written, by_layer):
    run = written(by_layer("prompt_entropy", [1.0, 2.0]) + by_layer("lidar", [1.0, 2.0], pooling="mean"), depth=1)
    figure = all_curves([run])
    assert {axis.lines[0].get_color() for axis in figure.axes} == {look(0)["color"]}
    assert "mean pooling" not in [text.get_text() for text in figure.legends[0].get_texts()]


def test_the_legend_of_one_metric_names_the_runs_that_have_it(labelled, bare):
    drawers = dict(singles([("ours", labelled.document()), ("theirs", bare.document())]))
    with styled():
        figure = drawers["curve-linear_probe"](COLUMN_WIDTH)
    texts = [text.get_text() for text in figure.legends[0].get_texts()]
    assert "ours" in texts and "theirs" not in texts


def test_boxes_tell_their_pooling_and_end_at_their_last_layer(labelled, rows, tmp_path):
    run = profile(headless(), rows[0], out=tmp_path / "run", metrics="cosine_similarity", progress=False)
    (axis,) = drawing("cosine_to_last", [run]).axes
    assert run.final == "raw" and axis.get_xlim() == (-0.5, run.depth - 0.5)
    pooling = run.folder.read_table("samples.cosine_to_last")["pooling"].unique()
    assert pooling.tolist() == ["mean"]
    assert axis.get_title(loc="left") == "Each sample's cosine to the last layer, mean pooling"
    assert [a.get_title(loc="left") for a in drawing("cosine_to_last", [run, labelled], names=["a", "b"]).axes] == [
        "a\nmean pooling", "b\nmean pooling",
    ]  # fmt: skip


def test_a_heat_map_prints_every_pair_and_names_its_axes(labelled):
    axis = drawing("cka", [labelled]).axes[0]
    square = labelled.metric("cka").to_numpy()
    np.testing.assert_array_equal(np.asarray(axis.collections[0].get_array()).reshape(square.shape), square)
    printed = [float(text.get_text()) for text in axis.texts]
    np.testing.assert_allclose(printed, square.reshape(-1), atol=0.0051)
    assert axis.get_xlabel() == axis.get_ylabel() == "layer"
    assert [tick.get_text() for tick in axis.get_xticklabels()] == ["0", "1", "2", "3", "final"]


def test_heat_maps_of_several_runs_stand_beside_each_other_with_one_scale(labelled, written, pairs):
    square = np.full((3, 3), -0.5) + 1.5 * np.eye(3)
    other = written(pairs("cka", square), depth=2, model="other")
    figure = drawing("cka", [labelled, other], width=COLUMN_WIDTH)
    first, second = figure.axes[:2]
    assert [a.get_title(loc="left") for a in (first, second)] == ["Sequential", "other"]
    assert {a.collections[0].get_clim() for a in (first, second)} == {(-0.5, 1.0)}
    assert first.get_position().y0 == pytest.approx(second.get_position().y0, abs=0.02)


def test_boxes_are_the_quartiles_of_the_samples(labelled, bare):
    figure = drawing("cosine_to_last", [labelled, bare])
    (axis,) = figure.axes
    rows = labelled.samples()
    rows = rows[(rows["metric"] == "cosine_to_last") & (rows["site"] == "raw")]
    expected = rows.groupby("layer")["value"].quantile([0.25, 0.5, 0.75]).unstack()
    assert len(axis.patches) == len(expected) == labelled.depth + 1
    for patch, (layer, quartiles) in zip(axis.patches, expected.iterrows(), strict=True):
        corners = patch.get_path().vertices
        assert corners[:, 0].min() < layer < corners[:, 0].max()
        assert (corners[:, 1].min(), corners[:, 1].max()) == pytest.approx((quartiles[0.25], quartiles[0.75]))
    medians = [line.get_ydata()[0] for line in axis.lines if line.get_linewidth() == 1.2]
    np.testing.assert_allclose(medians, expected[0.5])


def test_the_bars_of_saturation_add_up_to_all_predictions(labelled):
    axis = drawing("saturation", [labelled]).axes[0]
    heights = [bar.get_height() for bar in axis.patches]
    assert len(heights) == 3 and sum(heights) == pytest.approx(100.0)
    assert heights[0] == pytest.approx(100 * labelled.metric("saturated")[1])


def test_saturation_of_several_runs_has_a_panel_for_each_that_has_one(labelled, bare):
    figure = drawing("saturation", [labelled, bare, labelled], names=["a", "b", "c"])
    assert list(panels_of(figure)) == ["a", "c"]


def test_one_metric_of_one_block(bare, tmp_path):
    names = [path.name for path in draw(bare, tmp_path)]
    stems = ["curves", "curves-column", "curve-effective_rank"]
    assert names == [f"{stem}.{kind}" for stem in stems for kind in ("png", "pdf")]


def test_variants_and_strange_metrics_have_files_of_their_own_in_the_folder(written, by_layer, tmp_path):
    rows = [row for v in ("alpha=1", "alpha=2") for row in by_layer("prompt_entropy", [1.0, 2.0], variant=v)]
    run = written(rows + by_layer("../../x", [1.0, 2.0]), depth=1)
    paths = draw(run, tmp_path / "f")
    assert all(path.parent == tmp_path / "f" and path.is_file() for path in paths)
    assert [path.stem for path in paths[4::2]] == [
        "curve-prompt_entropy-alpha=1", "curve-prompt_entropy-alpha=2", "curve-..-..-x",
    ]  # fmt: skip


def test_values_that_are_not_finite_leave_gaps_and_single_ones_are_seen(written, by_layer, pairs, tmp_path):
    values = np.full(49, np.nan)
    values[[7, 20, 21, 30]] = [1.0, 2.0, 3.0, np.inf]
    run = written(by_layer("curvature", values) + by_layer("infonce", values * np.nan), depth=48)
    axes = panels_of(all_curves([run]))
    line = axes["Curvature"].lines[0]
    np.testing.assert_array_equal(line.get_ydata(), np.where(np.isfinite(values), values, np.nan))
    assert 7 in line.get_markevery()
    assert [text.get_text() for text in axes["InfoNCE"].texts] == ["no value"]
    square = np.full((49, 49), np.nan)
    square[:, -1] = 0.5
    assert len(draw(written(pairs("cka", square), depth=48), tmp_path / "f")) == 10


def test_a_constant_is_a_flat_line_in_the_middle_and_rounding_is_not_magnified(written, by_layer):
    run = written(by_layer("curvature", 2.0 + np.array([0.0, 3e-8, -1e-8])), depth=2)
    low, high = all_curves([run]).axes[0].get_ylim()
    assert (low, high) == pytest.approx((1.95, 2.05))


def test_half_a_figure_never_takes_the_place_of_a_whole_one(tmp_path):
    from matplotlib.figure import Figure

    png, pdf = save(Figure(), tmp_path, "x")
    whole = pdf.read_bytes()
    (tmp_path / ".x.pdf.part").mkdir()
    with pytest.raises(LayerscopeError, match="x.pdf' cannot be written .Is a directory"):
        save(Figure(), tmp_path, "x")
    assert pdf.read_bytes() == whole and png.is_file() and not (tmp_path / ".x.png.part").exists()


def test_what_is_nil_but_for_rounding_is_nothing_in_a_figure(written, by_layer):
    axis = all_curves([written(by_layer("dime", [1e-14, -3e-14, 0.0]), depth=2)]).axes[0]
    assert axis.lines[0].get_ydata().tolist() == [0.0, 0.0, 0.0]
    axis.figure.draw_without_rendering()
    assert not any("e" in tick.get_text() for tick in axis.get_yticklabels())


@pytest.mark.parametrize("values", [[2e10, 4e6, 150.0], [3.1, 3.3, 3.2], [900.0, 40.0, 12.0]])
def test_perplexity_has_a_readable_scale(written, by_layer, values):
    axis = all_curves([written(by_layer("perplexity", values), depth=2)]).axes[0]
    low, high = axis.get_ylim()
    ticks = [
        tick.get_text() for tick, at in zip(axis.get_yticklabels(), axis.get_yticks(), strict=True) if low <= at <= high
    ]
    assert axis.get_yscale() == "log" and 2 <= len(set(ticks)) == len(ticks) <= 7
    assert all(re.fullmatch(r"[\d.]+(e\d+)?", tick) for tick in ticks)


@pytest.mark.parametrize(
    ("depth", "most", "step"),
    [
        (1, 8, 1),
        (6, 8, 1),
        (6, 5, 2),
        (12, 8, 2),
        (24, 8, 3),
        (36, 8, 6),
        (50, 8, 10),
        (50, 5, 10),
        (23, 8, 5),
        (97, 5, 20),
    ],
)
def test_ticks_end_at_the_last_layer_where_they_can(depth, most, step):
    assert layer_step(depth, most) == step


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


def test_values_that_do_not_differ_lie_in_the_middle_of_a_small_range():
    axis = matplotlib.figure.Figure().subplots()
    scale(axis, np.zeros(3), Axis(""))
    assert axis.get_ylim() == (-0.05, 0.05)
    assert ends([HeatMap(title="", rows=("0",), columns=("0",), values=((0.0,),), low=None, high=None)]) == (
        -0.05,
        0.05,
    )


def test_without_matplotlib_the_mend_is_named(labelled, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    for name in [n for n in sys.modules if n.startswith("layerscope.show.figures.")]:
        monkeypatch.delitem(sys.modules, name)
    for name in ("draw", "style"):
        monkeypatch.delattr(f"layerscope.show.figures.{name}")
    with pytest.raises(LayerscopeError, match=r'pip install "layerscope\[figures\]"'):
        draw(labelled, tmp_path)
