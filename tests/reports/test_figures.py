import sys

import matplotlib
import numpy as np
import pytest
from PIL import Image

from layerscope.errors import LayerscopeError
from layerscope.reports.curves import curves
from layerscope.reports.figures import DPI, TEXT_WIDTH, draw, draw_curves, draw_pairs, draw_saturation


def pixels(path):
    with Image.open(path) as image:
        return np.asarray(image.convert("RGB")), image.info


@pytest.fixture(scope="module")
def drawn(labelled, tmp_path_factory):
    before = dict(matplotlib.rcParams)
    paths = draw(labelled, tmp_path_factory.mktemp("figures") / "deep" / "er")
    assert dict(matplotlib.rcParams) == before
    return {path.name: path for path in paths}


def test_a_labelled_run_with_a_head_has_all_four(drawn):
    assert list(drawn) == ["curves.png", "cosine_similarity.png", "cka.png", "saturation.png"]


def test_figures_are_as_wide_as_a_text_and_hold_a_picture(drawn):
    for path in drawn.values():
        image, info = pixels(path)
        assert image.shape[1] == round(TEXT_WIDTH * DPI)
        assert info["dpi"][0] == pytest.approx(DPI, abs=0.1)
        assert len(np.unique(image @ np.array([65536, 256, 1]))) > 50
        assert image.std() > 10


def test_lines_are_the_runs_numbers(labelled):
    known = curves(labelled)
    figure = draw_curves(labelled, known)
    axes = {axis.get_title(loc="left"): axis for axis in figure.axes if axis.get_visible()}
    assert len(axes) == len(known)
    np.testing.assert_array_equal(axes["effective rank"].lines[0].get_ydata(), labelled.metric("effective_rank"))
    np.testing.assert_allclose(axes["linear probe"].lines[0].get_ydata(), 100 * labelled.metric("linear_probe"))
    assert axes["linear probe"].get_ylabel() == "%"
    ring = axes["linear probe"].lines[-1]
    assert ring.get_xdata()[0] == next(c.stands_out for c in known if c.metric == "linear_probe")


def test_a_heat_map_prints_every_pair_and_names_its_axes(labelled):
    figure = draw_pairs(labelled, "cka")
    axis = figure.axes[0]
    square = labelled.metric("cka").to_numpy()
    np.testing.assert_array_equal(axis.images[0].get_array(), square)
    printed = [float(text.get_text()) for text in axis.texts]
    np.testing.assert_allclose(printed, square.reshape(-1), atol=0.0051)
    assert axis.get_xlabel() == axis.get_ylabel() == "layer"
    assert [tick.get_text() for tick in axis.get_xticklabels()] == ["0", "1", "2", "3", "final"]


def test_the_bars_of_saturation_add_up_to_all_predictions(labelled):
    axis = draw_saturation(labelled, curves(labelled)).axes[0]
    heights = [bar.get_height() for bar in axis.patches]
    assert len(heights) == 3 and sum(heights) == pytest.approx(100.0)
    assert heights[0] == pytest.approx(100 * labelled.metric("saturated")[1])


def test_one_metric_of_one_block(bare, tmp_path):
    assert [path.name for path in draw(bare, tmp_path)] == ["curves.png"]


def test_a_name_that_looks_like_mathematics_is_text(written, by_layer, tmp_path):
    run = written(
        by_layer("perplexity", [9.0, 3.0], site="normed"),
        depth=1,
        sites=("raw", "normed"),
        model="$x^{$ \\frac",
        data="日本 " + "n" * 200,
    )
    assert draw(run, tmp_path / "f")[0].stat().st_size > 5000


def test_nan_and_many_layers_are_drawn(written, by_layer, pairs, tmp_path):
    values = np.linspace(1, 3, 49)
    values[5] = np.nan
    square = np.full((49, 49), np.nan)
    square[:, -1] = 0.5
    run = written(by_layer("curvature", values, list(values / 50)) + pairs("cka", square), depth=48)
    assert len(draw(run, tmp_path / "f")) == 2


def test_nothing_to_draw_is_told(written, tmp_path):
    with pytest.raises(LayerscopeError, match="nothing to draw"):
        draw(written([]), tmp_path / "f")


def test_a_folder_that_cannot_be_is_told(labelled, tmp_path):
    (tmp_path / "file").write_text("x")
    with pytest.raises(LayerscopeError, match="cannot be written to"):
        draw(labelled, tmp_path / "file")


def test_without_matplotlib_the_mend_is_named(labelled, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(LayerscopeError, match=r'pip install "layerscope\[figures\]"'):
        draw(labelled, tmp_path)
