"""Early exit on the page, in a real browser: the values, what is marked, and what a hostile name cannot do."""

import math

import pytest
from exit_reports import made, never

from layerscope import LayerscopeError
from layerscope.reports.verb import report
from layerscope.runs.registry import capital


@pytest.mark.parametrize(
    "make",
    [
        lambda: made(labelled=False),
        never,
        lambda: made(curve=made().curve.assign(measured=math.nan), measured=math.nan),
    ],
    ids=["unlabelled", "never", "not measured"],
)
def test_what_has_no_labels_never_exits_or_was_not_tried_is_shown(
    browser, make, tmp_path
):
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
