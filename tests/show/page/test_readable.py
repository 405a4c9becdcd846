"""What a reader is spared on a page: noise drawn large, axes without points, sixty plots at once, cut columns."""

import math

import numpy as np
import pytest

from layerscope.reports.verb import report
from layerscope.runs.registry import METRICS

PLOT = "(file) => cards.find(c => c.figure.file === file).plots[0]"
QUALITY = [
    name
    for name, metric in METRICS.items()
    if metric.needs in ("tokens", "pooled", "views") and metric.curve
]


@pytest.fixture
def page(written, by_layer, pairs, tmp_path):
    """Return the page of a run of five layers whose metrics hardly differ, or have no value."""
    rows = [row for name in QUALITY for row in by_layer(name, [20.59, 20.62, 20.6, 20.61, 20.6])]
    rows = [row for row in rows if row["metric"] not in ("curvature", "dime", "prompt_entropy")]
    rows += by_layer("curvature", [math.nan] * 5) + by_layer(
        "dime", [0.5, 0.9, 0.4, 0.3, 0.2], [0.01] * 5
    )
    rows += by_layer("prompt_entropy", [0.5, 0.52, 0.49, 0.5, 0.51], [0.1] * 5)
    rows += by_layer("linear_probe", [0.68, 0.7, 0.73, 0.77, 0.75], [0.027] * 5)
    rows += pairs("cka", np.full((5, 5), 0.97) + 0.03 * np.eye(5))
    return report(written(rows), tmp_path / "readable.html")


def test_an_axis_does_not_magnify_noise_and_a_ring_marks_only_a_difference(browser, page):
    with browser.open(page) as opened:
        opened.ask("document.querySelectorAll('details.group').forEach(g => { g.open = true; })")
        opened.until("cards.every(card => card.drawn)")
        for file, least in (("effective-rank", 1.0), ("prompt-entropy", 0.4)):
            low, high = opened.ask(f"({PLOT})('{file}').layout.yaxis.range")
            assert high - low == pytest.approx(least, rel=0.05)
            assert "circle-open" not in str(
                opened.ask(f"({PLOT})('{file}').data.map(t => t.marker?.symbol)")
            )
        assert "circle-open" in str(opened.ask(f"({PLOT})('dime').data.map(t => t.marker?.symbol)"))
        low, high = opened.ask(
            f"(m => [m.zmin, m.zmax])(({PLOT})('cka-of-every-two-layers').data[0])"
        )
        assert (low, high) == (pytest.approx(0.9), 1.0)


def test_an_axis_has_room_for_the_bands(browser, page):
    with browser.open(page) as opened:
        low, high = opened.ask(f"({PLOT})('linear-probe').layout.yaxis.range")
        band = opened.ask(f"({PLOT})('linear-probe').data.find(t => t.fill === 'toself').y")
        assert [min(band), max(band)] == pytest.approx([65.3, 79.7])
        assert low <= min(band) and max(band) <= high


def test_a_plot_without_values_says_so_and_draws_no_axes(browser, page):
    with browser.open(page) as opened:
        assert opened.ask(f"({PLOT})('curvature').textContent").startswith("no value")
        assert opened.ask(f"({PLOT})('curvature').querySelectorAll('.main-svg').length") == 0


def test_a_long_section_is_folded_and_draws_what_is_opened(browser, page):
    with browser.open(page) as opened:
        groups = "[...document.querySelectorAll('#quality details.group')]"
        assert opened.ask(f"{groups}.map(g => g.open)") == [True, False, False]
        drawn = f"{groups}.map(g => g.querySelectorAll('.main-svg').length > 0)"
        assert opened.ask(drawn) == [True, False, False]
        opened.tab.click("#quality details.group:nth-of-type(2) > summary")
        opened.until(f"{drawn}[1]")
        assert opened.console == []


def test_a_table_that_is_cut_says_that_it_has_more_columns(browser, page):
    cue = "getComputedStyle(document.querySelector('#layers .table'), '::after').content"
    with browser.open(page, width=360) as opened:
        assert opened.ask(cue) == '"more columns →"'
        opened.ask("document.querySelector('#layers .scroll').scrollLeft = 1e6")
        opened.until(f"{cue} === 'none'")
