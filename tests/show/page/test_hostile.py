"""Scripts and marks in texts, labels, columns, file names and model names: none runs, each is shown as what it is."""

import csv

import pandas as pd
import pytest
import tiny
from hostile import HOSTILE, STEERING

from layerscope.profiling import profile
from layerscope.reports.verb import report

WHOLE = [*HOSTILE, "مرحبا بالعالم", "👩‍👩‍👧 family", "x" * 300]


def named(text):
    """Return a text as a file may be called."""
    return text.replace("/", "∕")


def run_with(folder, i):
    """Profile texts, labels, columns, files and a model that all bear hostile names, and return the run."""
    model = tiny.saved(tiny.llama(i), folder / named(HOSTILE[i]))
    texts = [f"{text} w{j}" for j, text in enumerate(WHOLE[i:] + WHOLE[:i])]
    data = folder / f"{named(HOSTILE[i + 1])}.csv"
    frame = pd.DataFrame(
        {
            HOSTILE[i + 2]: texts,
            HOSTILE[i + 3]: [HOSTILE[j % 5] for j in range(len(texts))],
        }
    )
    frame.to_csv(data, index=False, quoting=csv.QUOTE_ALL)
    return profile(
        str(model),
        str(data),
        text_column=HOSTILE[i + 2],
        label_column=HOSTILE[i + 3],
        out=folder / f"run {i} <b>",
    )


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    return [run_with(tmp_path_factory.mktemp("hostile"), i) for i in (0, 3, 12)]


@pytest.fixture(scope="module")
def opened(browser, runs, tmp_path_factory):
    """The page of all runs, which several tests read."""
    page = report(runs, tmp_path_factory.mktemp("page") / "page.html")
    with browser.open(page, 360) as found:
        yield found


def unharmed(opened):
    """Assert that nothing that came from data became a part of the page."""
    opened.assert_unharmed()
    assert (
        opened.ask(
            "document.querySelectorAll('iframe, img, object, embed, form, math').length"
        )
        == 0
    )
    assert opened.ask("document.scripts.length") == 5
    assert opened.ask(
        "[...document.querySelectorAll('a')].every(a => a.getAttribute('href').startsWith('#'))"
    )
    attributes = (
        "[...document.querySelectorAll('*')].flatMap(e => e.getAttributeNames())"
        ".filter(n => n.startsWith('on'))"
    )
    assert opened.ask(attributes) == []
    assert opened.ask("getComputedStyle(document.body).display") != "none"


def test_a_run_of_hostile_names_is_shown_as_it_is(browser, runs, tmp_path):
    run = runs[0]
    with browser.open(report(run, tmp_path / "page.html")) as opened:
        opened.ask(
            "document.querySelectorAll('details').forEach(d => { d.open = true; })"
        )
        assert opened.text("h1") == f"{named(HOSTILE[0])} on {run.info['data']['name']}"
        shown = opened.ask("document.body.innerText")
        for text in (HOSTILE[2], HOSTILE[3], named(HOSTILE[0]), named(HOSTILE[1])):
            assert text in shown
        assert opened.ask("document.title").startswith(named(HOSTILE[0]))
        unharmed(opened)


def test_runs_of_hostile_names_lie_over_each_other(opened):
    names = opened.ask("page.runs.map(r => r.name)")
    labels = opened.texts(".runs label")
    assert all(label.endswith(name) for label, name in zip(labels, names, strict=True))
    for box in opened.tab.locator("[data-run]").all():
        box.uncheck()
        box.check()
    opened.drawn()
    unharmed(opened)


def test_every_text_reaches_the_page_as_it_is(browser, written, by_layer, tmp_path):
    texts = [*WHOLE, *STEERING]
    runs = [
        written(by_layer("effective_rank", [1.0, 2.0, 3.0, 2.0, 1.0]), model=text)
        for text in texts
    ]
    spelt = [
        text.encode("unicode_escape").decode() if text in STEERING else text
        for text in texts
    ]
    spelt = [
        text.replace("\u2028", "\\u2028").replace("\u2029", "\\u2029") for text in spelt
    ]
    with browser.open(report(runs, tmp_path / "page.html")) as opened:
        assert opened.ask("page.runs.map(r => r.name)") == spelt
        assert (
            opened.ask(
                "[...document.querySelectorAll('#runs h3')].map(h => h.textContent)"
            )
            == spelt
        )
        unharmed(opened)


def test_a_download_holds_hostile_names_as_one_field(opened, tmp_path):
    path = opened.save("#quality-by-layer [data-csv]", tmp_path)
    names = opened.ask("page.runs.map(r => r.name)")
    found = pd.read_csv(path)
    assert list(dict.fromkeys(found["run"])) == names


def test_what_a_pointer_shows_over_a_plot_is_text(opened):
    hover = """(run) => {
        const plot = document.querySelector('#curve-effective_rank .plot');
        const name = page.runs[run].name;
        plot.chart.tooltip()({}, { clientX: 5, clientY: 5 }, null, { run: name, layer: 1 });
        const shown = document.getElementById('vg-tooltip-element');
        return [name, shown.textContent, shown.querySelectorAll('a, img, b, script').length];
    }"""
    for i in range(3):
        name, shown, elements = opened.ask(hover, i)
        assert name in shown and elements == 0
    unharmed(opened)
