"""What an eye would see: no text over another, none cut at the figure's edge, at both widths."""

import itertools
import warnings

import numpy as np
import pytest
from matplotlib.text import Text

from layerscope.reports.figures import draw
from layerscope.runs.details import run_names
from layerscope.show.figures.draw import figures, singles
from layerscope.show.figures.style import COLUMN_WIDTH, TEXT_WIDTH, fitted, sheet, styled

pytestmark = pytest.mark.filterwarnings("error:constrained_layout")
HOSTILE = [
    "$x^{$ \\frac",
    "_hidden",
    "日本語 العربية \U0001f600",
    "[red]a[/red] <b>&",
    "n" * 3000,
    "a b " * 60,
    "tab\tline\n",
    "%",
]


def texts_of(figure):
    """Return the texts one sees, with their boxes in pixels."""
    figure.draw_without_rendering()
    renderer = figure.canvas.get_renderer()
    hidden = set()
    for axis in figure.axes:
        for line, (low, high) in (
            (axis.xaxis, sorted(axis.get_xlim())),
            (axis.yaxis, sorted(axis.get_ylim())),
        ):
            ticks = [*line.get_major_ticks(), *line.get_minor_ticks()]
            outside = [t for t in ticks if not low - 1e-9 <= t.get_loc() <= high + 1e-9]
            hidden |= {label for t in outside for label in (t.label1, t.label2)}
    seen = [
        t
        for t in figure.findobj(Text)
        if t.get_visible() and t.get_text().strip() and t not in hidden
    ]
    return [(t.get_text(), t.get_window_extent(renderer)) for t in seen]


def faults(figure):
    texts = texts_of(figure)
    width, height = figure.bbox.width, figure.bbox.height
    cut = [t for t, b in texts if b.x0 < -1 or b.y0 < -1 or b.x1 > width + 1 or b.y1 > height + 1]
    over = [
        (s, t)
        for (s, a), (t, b) in itertools.combinations(texts, 2)
        if min(a.x1, b.x1) - max(a.x0, b.x0) > 1 and min(a.y1, b.y1) - max(a.y0, b.y0) > 1
    ]
    return cut, over


def documents(runs, names=None):
    return [
        (name, run.document()) for name, run in zip(names or run_names(runs), runs, strict=True)
    ]


def drawings(runs, names=None):
    given = documents(runs, names)
    with styled():
        for name, drawer in figures(given):
            for width in (TEXT_WIDTH, COLUMN_WIDTH):
                yield f"{name} {width}", drawer(width)
        for name, drawer in singles(given):
            yield name, drawer(COLUMN_WIDTH)


def assert_clear(runs, names=None):
    for name, figure in drawings(runs, names):
        assert faults(figure) == ([], []), name
        panels = [axis for axis in figure.axes if axis.get_title(loc="left")]
        assert all(axis.get_window_extent().height > 50 for axis in panels), name


@pytest.fixture
def synthetic(written, by_layer, pairs):
    """Return a function that writes a run of a depth: curves with errors, two poolings, pairs with a final norm."""

    def write(depth, **names):
        x = np.arange(depth + 1)
        rows = by_layer("prompt_entropy", 3 + np.sin(x / 5), list(0.1 + 0 * x), variant="alpha=1")
        rows += by_layer("prompt_entropy", 1 / (1 + x), variant="alpha=2")
        rows += by_layer(
            "perplexity", 5e4 * np.exp(-x / 9), list(300 * np.exp(-x / 9)), site="normed"
        )
        rows += by_layer(
            "saturated", np.linspace(0.1, 1, depth), first=1, site="normed", n=12_345_678
        )
        for pooling in ("mean", "last"):
            rows += by_layer("effective_rank", 1e5 * (1 + x), pooling=pooling)
            rows += by_layer("effective_rank", [3.0], pooling=pooling, site="normed", first=depth)
            rows += by_layer(
                "linear_probe", np.full(depth + 1, 0.5), list(0.03 + 0 * x), pooling=pooling
            )
            rows += pairs("cka", np.exp(-abs(x[:, None] - x) / 9) - 0.2, pooling=pooling)
        return written(rows, depth=depth, pooling=["mean", "last"], language_model=True, **names)

    return write


def test_a_real_run_alone_and_over_another(labelled, bare):
    assert_clear([labelled])
    assert_clear([labelled, bare])


@pytest.mark.parametrize("depth", [1, 24, 50])
def test_depths(synthetic, depth):
    assert_clear([synthetic(depth)])


def test_runs_of_unequal_depth_with_hostile_names(synthetic, labelled):
    assert_clear([synthetic(1), synthetic(50), labelled, synthetic(24)], names=HOSTILE[:4])
    assert_clear([synthetic(6), labelled], names=HOSTILE[4:6])


@pytest.mark.parametrize("name", ["a", "pythia-160m at step one thousand on wikitext"])
def test_maps_of_poolings_below_titles_of_several_lines(written, pairs, name):
    poolings = ("position", "mean")
    runs = []
    for depth in (6, 12, 24):
        x = np.arange(depth + 1)
        square = np.exp(-abs(x[:, None] - x) / 9)
        rows = [row for p in poolings for row in pairs("cosine_similarity", square, pooling=p)]
        runs.append(written(rows, depth=depth, pooling=["mean"], data=f"data{depth}"))
    drawer = dict(figures(documents(runs, [f"{name} {i}" for i in range(3)])))["cosine_similarity"]
    with styled():
        assert faults(drawer(COLUMN_WIDTH)) == ([], [])


@pytest.mark.parametrize(("name", "other"), zip(HOSTILE[::2], HOSTILE[1::2], strict=True))
def test_hostile_names_of_model_and_data_are_texts_and_do_not_warn(
    written, by_layer, name, other, tmp_path
):
    values = by_layer("perplexity", [9.0, 3.0], site="normed")
    run, second = (written(values, depth=1, model=name, data=other) for _ in range(2))
    assert_clear([run])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert draw([run, second], tmp_path / "f", names=[name, other])[0].stat().st_size > 5000


def test_a_name_that_is_too_long_keeps_its_ends_and_one_that_fits_is_as_it_is(labelled):
    figure, _ = sheet(COLUMN_WIDTH, 1, 1, 2.0, "")
    cut = fitted(figure, "start " + "x" * 400 + " end", 0.5, 7)
    assert cut.startswith("start ") and cut.endswith(" end") and "…" in cut and len(cut) < 60
    assert fitted(figure, "$a_b$", 0.5, 7) == "$a_b$"
