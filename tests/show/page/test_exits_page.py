"""Early exit on the page, in a real browser: the values, what is marked, and what a hostile name cannot do."""

import csv
import math

import pytest
from exit_reports import HOSTILE, made, never

from layerscope import LayerscopeError
from layerscope.reports.verb import report
from layerscope.runs.registry import capital


@pytest.fixture(scope="module")
def single(tmp_path_factory):
    """Return the page of one report, and its folder."""
    folder = made(model=HOSTILE, notes=(HOSTILE,), machine=HOSTILE).save(
        tmp_path_factory.mktemp("exits") / "a"
    )
    return report(folder), folder


def test_tables_hold_everything_and_can_be_saved(browser, single, tmp_path):
    shown = made()
    with browser.open(single[0]) as opened:
        rows = opened.ask(
            "[...document.querySelectorAll('#exit-curve tbody tr')].map(r => [...r.cells].map(c => c.textContent))"
        )
        assert [row[0] for row in rows] == ["0.600", "0.800", "● 0.900", "0.970", "never"]
        assert rows[2][2:4] == [f"{shown.exit_speedup:.2f}×", f"{shown.predicted:.2f}×"]
        marked = opened.ask(
            "[...document.querySelectorAll('#exit-curve tr:has(.marked)')].map(r => r.cells[0].textContent)"
        )
        assert marked == ["● 0.900"]
        layers = opened.ask(
            "[...document.querySelectorAll('#exit-layers tr:has(.marked)')].map(r => r.cells[0].textContent)"
        )
        assert layers == ["2", "4"]
        with opened.save("#exit-depths [data-csv]", tmp_path).open(newline="") as file:
            depths = list(csv.DictReader(file))
        assert [row["layers"] for row in depths] == [f"{k} of 6" for k in range(1, 7)]
        assert [row["measured, speed-up"] for row in depths][:2] == ["", "3"]
        assert {row["run"] for row in depths} == {f"{HOSTILE} on held out"}


@pytest.mark.parametrize(
    "make",
    [
        lambda: made(labelled=False),
        never,
        lambda: made(curve=made().curve.iloc[:0]),
        lambda: made(curve=made().curve.assign(measured=math.nan), measured=math.nan),
    ],
    ids=["unlabelled", "never", "no curve", "not measured"],
)
def test_what_has_no_labels_never_exits_or_was_not_tried_is_shown(browser, make, tmp_path):
    made_here = make()
    with browser.open(report(made_here, tmp_path / "x.html")) as opened:
        assert opened.console == []
        assert opened.text("#findings .answer strong") == capital(made_here.verdict)
        assert opened.tab.locator(".plot canvas").count() >= 1
        head = opened.ask(
            "[...document.querySelectorAll('#exit-layers th[scope=col]')].map(h => h.textContent)"
        )
        assert any("accuracy" in text for text in head) == made_here.labelled


def test_a_damaged_report_makes_no_page(tmp_path):
    folder = made().save(tmp_path / "a")
    (folder / "curve.csv").write_text("threshold\n")
    with pytest.raises(
        LayerscopeError,
        match=r"curve.csv' has changed since it was written: run layerscope exits "
        "again",
    ):
        report(folder)
    assert not (folder / "report.html").exists()
