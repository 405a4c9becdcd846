"""Boxes, maps, bars and odd curves in figures hold the runs' numbers, on axes that show them."""

import re

import matplotlib.figure
import numpy as np
import pytest
from drawings import all_curves, drawing, headless, panels_of

from layerscope.profiling import profile
from layerscope.reports.figures import draw
from layerscope.runs.by_sample import boxes
from layerscope.show.figures.charts import Owned
from layerscope.show.figures.maps import draw_maps
from layerscope.show.figures.style import COLUMN_WIDTH, TEXT_WIDTH, layer_step, scale, styled
from layerscope.show.plots import Axis, HeatMap, ends


def test_boxes_tell_their_pooling_and_end_at_their_last_layer(labelled, rows, tmp_path):
    run = profile(
        headless(), rows[0], out=tmp_path / "run", metrics="cosine_similarity", progress=False
    )
    (axis,) = drawing("cosine_to_last", [run]).axes
    assert run.final == "raw" and axis.get_xlim() == (-0.5, run.depth - 0.5)
    pooling = run.folder.read_table("samples.cosine_to_last")["pooling"].unique()
    assert pooling.tolist() == ["mean"]
    assert axis.get_title(loc="left") == "Each sample's cosine to the last layer, mean pooling"
    assert [
        a.get_title(loc="left")
        for a in drawing("cosine_to_last", [run, labelled], names=["a", "b"]).axes
    ] == [
        "a\nmean pooling",
        "b\nmean pooling",
    ]


def test_a_heat_map_prints_every_pair_and_names_its_axes(labelled):
    axis = drawing("cka", [labelled]).axes[0]
    square = labelled.metric("cka").to_numpy()
    np.testing.assert_array_equal(
        np.asarray(axis.collections[0].get_array()).reshape(square.shape), square
    )
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


def test_a_logarithmic_colour_bar_has_its_numbers_in_digits():
    values = ((10.0, 1e4), (100.0, 1e3))
    heat = HeatMap(
        title="perplexity",
        rows=("0", "1"),
        columns=("0", "1"),
        values=values,
        low=None,
        high=None,
        log=True,
    )
    with styled():
        figure = draw_maps([Owned(heat, "run", 0, alone=True)], "", TEXT_WIDTH)
        figure.draw_without_rendering()
    bar = figure.axes[-1]
    texts = {
        label.get_text()
        for axis in (bar.xaxis, bar.yaxis)
        for label in axis.get_ticklabels(which="both")
    }
    assert {"10", "100", "1e3", "1e4"} <= texts and not any("$" in text for text in texts)


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
        assert (corners[:, 1].min(), corners[:, 1].max()) == pytest.approx(
            (quartiles[0.25], quartiles[0.75])
        )
    medians = [line.get_ydata()[0] for line in axis.lines if line.get_linewidth() == 1.2]
    np.testing.assert_allclose(medians, expected[0.5])
    (dots,) = [line for line in axis.lines if line.get_marker() == "."]
    (drawn,) = boxes(labelled, "samples.cosine_to_last").values()
    far = [(int(box.name), value) for box in drawn for _, value in box.outliers]
    assert len(far) and np.array(far) == pytest.approx(dots.get_xydata())


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
    assert names == [f"{stem}.{kind}" for stem in stems for kind in ("png", "pdf", "svg")]


def test_variants_and_strange_metrics_have_files_of_their_own_in_the_folder(
    written, by_layer, tmp_path
):
    rows = [
        row
        for v in ("alpha=1", "alpha=2")
        for row in by_layer("prompt_entropy", [1.0, 2.0], variant=v)
    ]
    run = written(rows + by_layer("../../x", [1.0, 2.0]), depth=1)
    paths = draw(run, tmp_path / "f")
    assert all(path.parent == tmp_path / "f" and path.is_file() for path in paths)
    assert [path.stem for path in paths[6::3]] == [
        "curve-prompt_entropy-alpha=1",
        "curve-prompt_entropy-alpha=2",
        "curve-..-..-x",
    ]


def test_values_that_are_not_finite_leave_gaps_and_single_ones_are_seen(
    written, by_layer, pairs, tmp_path
):
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
    assert len(draw(written(pairs("cka", square), depth=48), tmp_path / "f")) == 15


def test_a_constant_is_a_flat_line_in_the_middle_and_rounding_is_not_magnified(written, by_layer):
    run = written(by_layer("curvature", 2.0 + np.array([0.0, 3e-8, -1e-8])), depth=2)
    low, high = all_curves([run]).axes[0].get_ylim()
    assert (low, high) == pytest.approx((1.95, 2.05))


@pytest.mark.parametrize("spread", [0.0, 1.0, 3.5, 9.0], ids="spread of {} errors".format)
def test_an_axis_has_room_for_the_bands(written, by_layer, spread):
    run = written(by_layer("linear_probe", [0.7, 0.7 + 0.01 * spread, 0.7], [0.01] * 3), depth=2)
    low, high = all_curves([run]).axes[0].get_ylim()
    assert low <= 69.0 and 71.0 + spread <= high


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
        tick.get_text()
        for tick, at in zip(axis.get_yticklabels(), axis.get_yticks(), strict=True)
        if low <= at <= high
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


def test_values_that_do_not_differ_lie_in_the_middle_of_a_small_range():
    axis = matplotlib.figure.Figure().subplots()
    scale(axis, np.zeros(3), Axis(""))
    assert axis.get_ylim() == (-0.05, 0.05)
    assert ends(
        [HeatMap(title="", rows=("0",), columns=("0",), values=((0.0,),), low=None, high=None)]
    ) == (
        -0.05,
        0.05,
    )


def test_many_similarities_are_panels_of_one_sheet_and_can_be_drawn_alone(rows, tmp_path):
    metrics = ["cosine_similarity", "cka", "rsa", "procrustes"]
    run = profile(headless(), rows, out=tmp_path / "run", metrics=metrics, views=0, progress=False)
    names = {path.stem for path in draw([run], tmp_path / "figures")}
    assert {"similarity", "similarity-column"} <= names and not {"cka", "rsa"} & names
    titles = panels_of(drawing("similarity", [run]))
    assert (
        len([title for title in titles if title.startswith(("Cosine", "CKA", "RSA", "Procrustes"))])
        == 4
    )
    (panel, _bar) = run.plot("cka").axes
    assert panel.get_xlabel() == "layer"
