"""Early exit on the page, in a real browser: the values, what is marked, and what a hostile name cannot do."""

import csv
import json
import math

import pytest
from exit_reports import HOSTILE, made, never, recorded

from layerscope import LayerscopeError
from layerscope.reports.verb import report
from layerscope.runs.registry import capital

PLOTS = "(file) => cards.find(c => c.figure.file === file).plots"
FILES = ["accuracy-against-speed", "where-samples-leave", "predicted-and-measured-speed"]


def drawn(opened, file, plot=0):
    return opened.ask(f"({PLOTS})('{file}')[{plot}].data")


@pytest.fixture(scope="module")
def single(tmp_path_factory):
    """Return the page of one report, and its folder."""
    folder = made(model=HOSTILE, notes=(HOSTILE,), machine=HOSTILE).save(
        tmp_path_factory.mktemp("exits") / "a"
    )
    return report(folder), folder


@pytest.fixture(scope="module")
def several(tmp_path_factory):
    reports = [made(), made(labelled=False, model="other"), never()]
    return report(reports, tmp_path_factory.mktemp("page") / "all.html")


@pytest.mark.parametrize(("width", "scheme"), [(1300, "light"), (360, "dark")])
def test_opens_without_a_word_and_draws_everything(browser, single, width, scheme):
    page, folder = single
    assert page == folder / "report.html"
    with browser.open(page, width, scheme) as opened:
        assert opened.console == []
        assert [url for url in opened.requests if not url.startswith(("data:", "blob:"))] == [
            page.absolute().as_uri()
        ]
        assert opened.ask("document.documentElement.scrollWidth <= innerWidth"), (
            "the page is wider than the window"
        )
        assert opened.ask("window.hit") is None, "a name was run"
        assert "[object" not in opened.text("body")
        assert all(
            opened.ask(
                "cards.flatMap(c => c.plots).map(p => p.querySelectorAll('.main-svg').length)"
            )
        )
        assert opened.ask("cards.map(c => c.figure.file)") == FILES
        assert opened.texts("main section h2") == [
            "What stands out",
            "Early exit",
            "What was run",
            "How to cite",
        ]
        assert opened.text("h1") == f"{HOSTILE} on held out"
        assert opened.text("#findings .answer strong") == capital(made().verdict)
        assert opened.texts("#findings li")[0] == capital(made().goal)
        opened.tab.click("#runs summary")
        facts = opened.texts("#runs details dd")
        assert facts == ["300", "0.0130", "0.950", "–"]
        assert HOSTILE in opened.text("#runs") and opened.tab.locator("fieldset").count() == 0


def test_plots_are_the_values(browser, single):
    shown, rec = made(), recorded()
    with browser.open(single[0]) as opened:
        cut, exits, plain, chosen = drawn(opened, FILES[0])
        curve = shown.curve.iloc[::-1]  # the slowest first
        assert exits["x"] == pytest.approx(list(curve["measured"]))
        assert exits["y"] == pytest.approx([100 * value for value in curve["accuracy"]])
        leaves = rec.leaves((2, 4), 0.9)
        assert chosen["x"] == pytest.approx([0.98 / 1.02 * 6 * 400 / leaves.sum()])
        assert chosen["y"] == pytest.approx(
            [100 * float((rec.predicted(leaves) == rec.labels).mean())]
        )
        assert (cut["text"], cut["x"]) == (
            ["2", "3", "4", "5"],
            pytest.approx([3.0, 2.0, 1.5, 1.2]),
        )
        accuracy = [100 * float((rec.predictions[:, k] == rec.labels).mean()) for k in range(6)]
        assert cut["y"] == pytest.approx(accuracy[1:5])
        assert (plain["x"], plain["y"]) == ([1], pytest.approx([accuracy[5]]))
        bars, line = drawn(opened, FILES[1])
        shares = [100 * float((leaves == layer).mean()) for layer in range(1, 7)]
        assert bars["y"] == pytest.approx(shares) and bars["x"] == [1, 2, 3, 4, 5, 6]
        assert line["y"] == pytest.approx([sum(shares[: k + 1]) for k in range(6)])
        colors = bars["marker"]["color"]
        assert colors[1] == colors[3] != colors[5] == colors[0], "exits have a colour of their own"
        points, picked = drawn(opened, FILES[2])[-2:]
        assert points["y"] == pytest.approx([0.98 * value for value in points["x"]])
        assert picked["x"] == [points["x"][2]], "the chosen one is marked"


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
        with opened.save(
            "figure.card:has(h3:text-is('Accuracy against speed')) [data-csv]", tmp_path
        ).open() as file:
            points = list(csv.DictReader(file))
        kinds = (
            ["truncated at a layer"] * 4
            + ["exits, a point for each threshold"] * 5
            + ["plain model"]
        )
        assert [row["series"] for row in points] == kinds
        assert [
            float(row["measured speed-up (×)"]) for row in points if row["chosen"] == "true"
        ] == [pytest.approx(shown.measured)]
        image = opened.save(
            "figure.card:has(h3:text-is('Accuracy against speed')) [data-png]", tmp_path
        )
        assert image.read_bytes().startswith(b"\x89PNG")


def test_the_keyboard_reaches_tables_and_switches(browser, several):
    with browser.open(several) as opened:
        wanted = {
            "By threshold (● chosen)",
            "Where samples leave",
            "The model truncated instead",
            "Download Where samples leave as CSV",
        }
        for _ in range(80):
            opened.tab.keyboard.press("Tab")
            wanted.discard(opened.ask("document.activeElement.ariaLabel"))
            if not wanted:
                break
        assert not wanted, "out of the keyboard's reach"
        opened.tab.focus("#theme")
        opened.tab.keyboard.press("Enter")
        opened.drawn()
        assert opened.ask("document.documentElement.dataset.theme") == "dark"


def test_several_reports_stand_beside_each_other_by_what_all_have(browser, several):
    with browser.open(several) as opened:
        assert opened.console == [] and opened.text("h1") == "3 early exits compared"
        assert opened.texts("fieldset.runs bdi") == [
            "tiny on held out (1)",
            "other on held out",
            "tiny on held out (2)",
        ]
        files = opened.ask("cards.map(c => c.figure.file)")
        assert files == [FILES[0], "agreement-against-speed", FILES[1], FILES[2]], (
            "one has no labels"
        )
        rec = recorded()
        leaves = rec.leaves((2, 4), 0.9)
        agree = 100 * (1 - float(rec.disagrees(leaves).mean()))
        assert drawn(opened, "agreement-against-speed")[-1]["y"] == pytest.approx([agree])
        assert drawn(opened, FILES[0], 1)[-1]["x"] == pytest.approx([0.98 / 1.02])
        assert drawn(opened, FILES[1], 2)[0]["y"] == pytest.approx([0, 0, 0, 0, 0, 100])
        opened.tab.uncheck("input[data-run='1']")
        opened.drawn()
        assert opened.ask("cards[2].plots.map(p => p.closest('.slot').hidden)") == [
            False,
            True,
            False,
        ]
        assert "other" not in opened.text("#exit-layers tbody")


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
        assert all(
            opened.ask(
                "cards.flatMap(c => c.plots).map(p => p.querySelectorAll('.main-svg').length)"
            )
        )
        head = opened.ask(
            "[...document.querySelectorAll('#exit-layers th[scope=col]')].map(h => h.textContent)"
        )
        assert any("accuracy" in text for text in head) == made_here.labelled


def test_a_run_and_a_report_share_a_page(browser, language, tmp_path):
    with browser.open(report([language, made(exits=(2,))], tmp_path / "both.html")) as opened:
        assert opened.console == []
        sections = opened.texts("main section h2")
        assert sections[:2] == ["What stands out", "Early exit"] and "Every layer" in sections
        assert (
            opened.ask("page.runs.length") == 2
            and opened.tab.locator("input[name=axis]").count() == 2
        )
        opened.tab.check("input[name=axis][value=percent]")
        opened.drawn()
        assert drawn(opened, FILES[1])[0]["x"] == [1, 2, 3, 4, 5, 6], "bars stay at their layer"


def test_what_the_page_carries_is_json_without_infinities(single, content_of):
    content = content_of(single[0])
    assert json.dumps(content, allow_nan=False)
    cells = next(table for table in content["tables"] if table["id"] == "exit-depths")["rows"][0][
        "cells"
    ]
    assert cells[2] is None, "the first layer was not measured"
    assert math.isfinite(content["figures"][0]["choices"][0]["series"][0]["x"][0])


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
