"""The page in a real browser: what is drawn, what can be switched, and what its downloads hold."""

import pandas as pd
import pytest
from exit_reports import HOSTILE, made
from PIL import Image

from layerscope.reports.verb import report
from layerscope.runs import COLUMNS
from layerscope.runs.registry import METRICS

DATA = "(id) => [...document.querySelectorAll(`#${CSS.escape(id)} .plot`)].map(p => p.chart.data('source_0'))"
DOMAINS = (
    "(id) => [...document.querySelectorAll(`#${CSS.escape(id)} .plot`)]"
    ".map(p => ['x', 'y'].map(n => p.chart.scale(n).domain()))"
)
SHOWN = "(name) => [...document.querySelectorAll(name + ' tbody tr')].map(r => [...r.cells].map(c => c.textContent))"


@pytest.fixture(scope="module")
def one(language, tmp_path_factory):
    return report(language, tmp_path_factory.mktemp("page") / "one.html")


@pytest.fixture(scope="module")
def opened(browser, one):
    """The page of one run, which several tests read."""
    with browser.open(one) as found:
        yield found


@pytest.fixture(scope="module")
def exits(tmp_path_factory):
    folder = tmp_path_factory.mktemp("exits") / "a"
    hostile = made(model=HOSTILE, notes=(HOSTILE,), machine=HOSTILE).save(folder)
    return report(
        [hostile, made(labelled=False, model="other")], folder / "report.html"
    )


def card(title):
    return f"figure.card:has(h3:text-is('{title}'))"


def rows_of(path):
    return pd.read_csv(path, dtype=str, keep_default_na=False).to_dict("records")


def frame_of(path):
    """Return the long frame of a page's CSV with the dtypes of a run's table."""
    texts = [name for name, kind in COLUMNS.items() if kind == "object"]
    frame = pd.read_csv(
        path, dtype=dict.fromkeys(texts, "object"), float_precision="round_trip"
    )
    present = {name: kind for name, kind in COLUMNS.items() if name in frame}
    frame = frame.astype(present)
    return frame.assign(
        **{name: frame[name].where(frame[name].notna(), None) for name in texts}
    )


def test_tables_sort_by_any_heading(opened, language):

    def layers():
        return [row[0] for row in opened.ask(SHOWN, "#quality-by-layer")]

    order = ["0", "1", "2", "3", "final"]
    assert layers() == order
    opened.tab.click(
        heading := "#quality-by-layer th:has-text('prompt entropy') button"
    )
    values = {
        str(layer): value
        for layer, value in language.metric("prompt_entropy", site="raw").items()
    }
    values["final"] = language.metric("prompt_entropy", site="normed").iloc[-1]
    falling = sorted(order, key=values.__getitem__, reverse=True)
    assert layers() == falling
    assert (
        opened.tab.get_attribute(
            "#quality-by-layer th:has-text('prompt entropy')", "aria-sort"
        )
        == "descending"
    )
    opened.tab.focus(heading)
    opened.tab.keyboard.press("Enter")
    assert layers() == falling[::-1]
    opened.tab.click("#quality-by-layer th:has-text('layer') >> nth=0 >> button")
    assert layers() == order


def test_tables_filter_by_words_and_by_choice(opened, language):
    table = language.table()
    assert f"{len(table)} rows" in opened.text("#numbers .status")
    opened.tab.select_option("#numbers select[aria-label^='metric']", "cka")
    assert f"{(table['metric'] == 'cka').sum()} of {len(table)} rows" in opened.text(
        "#numbers .status"
    )
    opened.tab.fill("#numbers input", "CKA position")
    rows = opened.ask(SHOWN, "#numbers")
    assert (
        len(rows)
        == ((table["metric"] == "cka") & (table["pooling"] == "position")).sum()
    )
    opened.tab.fill("#numbers input", "no such thing")
    assert opened.ask(SHOWN, "#numbers") == []
    assert opened.text("#numbers .status").startswith("0 of ")


def test_the_download_of_every_number_is_the_runs_table(
    browser, several, labelled, language, bare, tmp_path
):
    with browser.open(several) as opened:
        found = frame_of(opened.save("#numbers [data-csv]", tmp_path))
    wanted = pd.concat(
        [run.table() for run in (labelled, language, bare)], ignore_index=True
    )
    wanted["step"] = wanted["step"].astype("Int64")
    names = found.pop("run")
    assert names.nunique() == 3
    pd.testing.assert_frame_equal(found, wanted[list(found)], check_exact=True)
    assert set(wanted) - set(found) <= {"step"}


def test_the_keyboard_reaches_everything(browser, exits):
    with browser.open(exits) as opened:
        opened.tab.keyboard.press("Tab")
        assert opened.ask("document.activeElement.className") == "skip"
        opened.tab.keyboard.press("Enter")
        assert opened.ask("document.activeElement.id") == "findings"
        controls = "a[href], button, summary, input, select, [tabindex='0']"
        seen = "e => e.checkVisibility() && !e.closest('.plot')"
        wanted = opened.ask(
            f'[...document.querySelectorAll("{controls}")].filter({seen}).length'
        )
        opened.ask("document.activeElement.blur()")
        opened.tab.keyboard.press("Home")
        reached = set()
        opened.ask(
            "[...document.querySelectorAll('*')].forEach((e, i) => { e.dataset.place = i; })"
        )
        opened.tab.focus(".skip")
        for _ in range(3 * wanted):
            reached.add(opened.ask("document.activeElement.dataset.place"))
            opened.tab.keyboard.press("Tab")
        # of radio buttons of one group only the chosen one is reached by Tab
        assert len(reached) >= wanted - 1
        name = "e => e.ariaLabel || e.innerText || e.labels?.[0]?.innerText"
        names = opened.ask(
            f"[...document.querySelectorAll('button, select, input')].map({name})"
        )
        assert all(names)


@pytest.mark.parametrize(
    "page, width, scheme",
    [
        ("one", 360, "light"),
        ("several", 1300, "dark"),
        ("several", 360, "light"),
        ("exits", 1300, "light"),
    ],
)
def test_opens_without_a_word_and_draws_every_plot(
    browser, request, page, width, scheme
):
    with browser.open(request.getfixturevalue(page), width, scheme) as opened:
        opened.assert_unharmed()
        assert opened.ask("document.documentElement.dataset.theme") == scheme
        plots = opened.ask("page.figures.length")
        assert opened.tab.locator(".plot canvas").count() == plots
        paper = opened.ask(
            "[...document.querySelector('.plot canvas').getContext('2d').getImageData(0, 0, 1, 1).data]"
        )
        assert paper == (
            [255, 255, 255, 255] if scheme == "light" else [0x1E, 0x21, 0x25, 255]
        )
        assert "[object" not in opened.text("body")


def test_charts_and_maps_are_the_runs_values(opened, language):
    (rows,) = opened.ask(DATA, "curve-prompt_entropy")
    table = language.table()
    own = table[
        (table["metric"] == "prompt_entropy") & (table["site"] == "raw")
    ].sort_values("layer")
    line = [row for row in rows if row["mark"] != "after"]
    assert [row["y"] for row in line] == pytest.approx(list(own["value"]), rel=1e-5)
    assert [row["error"] for row in line] == pytest.approx(
        list(own["stderr"]), rel=1e-5
    )
    ((_, (low, high)),) = opened.ask(DOMAINS, "curve-prompt_entropy")
    assert low <= min(row["y"] - row["error"] for row in rows)
    assert high >= max(row["y"] + row["error"] for row in rows)
    maps = [
        opened.ask(DATA, name)[0]
        for name in ("cosine_similarity", "cosine_similarity-2")
    ]
    wanted = language.metric("cosine_similarity", pooling="mean").to_numpy().reshape(-1)
    assert any(
        [row["value"] for row in rows] == pytest.approx(list(wanted), rel=1e-5)
        for rows in maps
    )


def test_runs_lie_over_each_other_and_can_be_left_out(
    browser, several, labelled, bare, tmp_path
):
    one = "curve-effective_rank"
    with browser.open(several) as opened:
        ((across, _),) = opened.ask(DOMAINS, one)
        assert across[0] <= 0 and across[1] >= 100
        opened.tab.check("input[name=axis][value=layer]")
        opened.drawn()
        (rows,) = opened.ask(DATA, one)
        names = list(dict.fromkeys(row["run"] for row in rows))
        last = [row["y"] for row in rows if row["run"] == names[2]]
        assert last == pytest.approx(list(bare.metric("effective_rank")), rel=1e-5)
        ((across, _),) = opened.ask(DOMAINS, one)
        assert labelled.depth <= across[1] < 100
        opened.tab.uncheck("[data-run='1']")
        opened.drawn()
        assert {row["run"] for row in opened.ask(DATA, one)[0]} == {names[0], names[2]}
        found = rows_of(opened.save(card("Effective rank") + " [data-csv]", tmp_path))
        assert {row["run"] for row in found} == {names[0], names[2]}
        for run in "02":
            opened.tab.uncheck(f"[data-run='{run}']")
        opened.drawn()
        assert (
            opened.text(card("Effective rank") + " .plot")
            == "no run with this metric is chosen"
        )
        assert opened.console == []


def test_the_downloads_of_a_figure_hold_its_numbers_and_its_picture(
    opened, language, tmp_path
):
    table = language.table()
    opened.tab.click("#theme")
    found = rows_of(opened.save(card("Perplexity") + " [data-csv]", tmp_path))
    wanted = table[table["metric"] == "perplexity"].sort_values("layer")
    for name in ("value", "stderr", "layer"):
        assert [float(row[name]) for row in found] == pytest.approx(
            list(wanted[name]), rel=1e-5
        )
    image = Image.open(
        opened.save(card("Curvature") + " [data-png]", tmp_path)
    ).convert("RGB")
    colors = image.getcolors(1 << 24)
    assert len(colors) > 10
    # whatever the page's theme: an image goes onto paper
    assert max(colors)[1] == (255, 255, 255)


def test_a_pointer_is_told_the_value_and_its_error(opened, language):
    plot = opened.tab.locator("#curve-prompt_entropy .plot canvas")
    plot.scroll_into_view_if_needed()
    place = """() => { const view = document.querySelector('#curve-prompt_entropy .plot').chart;
        const row = view.data('source_0')[1], [left, top] = view.origin().map(side => side + view.padding().left);
        return [left + view.scale('x')(row.x), top + view.scale('y')(row.y)]; }"""
    x, y = opened.ask(place)
    plot.hover(position={"x": x, "y": y})
    opened.tab.wait_for_selector("#vg-tooltip-element.visible")
    told = opened.text("#vg-tooltip-element")
    value = language.metric("prompt_entropy", site="raw").iloc[1]
    assert f"{value:.4g}" in told and "±" in told and "layer" in told


def test_a_long_section_is_folded_and_a_cut_table_says_so(
    browser, written, by_layer, tmp_path
):
    shown = [
        name
        for name, metric in METRICS.items()
        if metric.needs in ("tokens", "pooled", "views")
    ]
    rows = [
        row
        for name in shown
        if METRICS[name].curve
        for row in by_layer(name, [1.0, 2.0, 1.5, 1.7, 1.2])
    ]
    cue = "getComputedStyle(document.querySelector('#quality-by-layer .table'), '::after').content"
    with browser.open(report(written(rows), tmp_path / "page.html"), 360) as opened:
        groups = "[...document.querySelectorAll('#quality details.group')]"
        assert opened.ask(f"{groups}.map(g => g.open)") == [False]
        drawn = f"{groups}.map(g => g.querySelectorAll('canvas').length > 0)"
        assert opened.ask(drawn) == [False]
        opened.tab.click("#quality details.group > summary")
        opened.until(f"{drawn}[0]")
        assert opened.ask(cue) == '"more columns →"'
        opened.ask(
            "document.querySelector('#quality-by-layer .scroll').scrollLeft = 1e6"
        )
        opened.until(f"{cue} === 'none'")
        assert opened.console == []


def test_paper_is_light_and_holds_every_plot(browser, several, tmp_path):
    with browser.open(several, scheme="dark") as opened:
        opened.ask("dispatchEvent(new Event('beforeprint'))")
        assert opened.ask("document.documentElement.dataset.theme") == "light"
        plots = "[...document.querySelectorAll('.plot canvas')].filter(c => c.checkVisibility())"
        room = opened.ask(
            f"{plots}.map(c => [c.clientWidth, c.closest('.card').clientWidth])"
        )
        assert all(drawn <= whole <= 680 for drawn, whole in room)
        assert set(opened.ask(f"{plots}.map(c => getComputedStyle(c).filter)")) == {
            "invert(1) hue-rotate(180deg)"
        }
        opened.ask("dispatchEvent(new Event('afterprint'))")
        assert opened.ask("document.documentElement.dataset.theme") == "dark"
        opened.tab.pdf(path=tmp_path / "page.pdf")
    assert (tmp_path / "page.pdf").stat().st_size > 50_000
