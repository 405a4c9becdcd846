"""The page in a real browser: what is drawn, what can be switched, and what its downloads hold."""

import shutil

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from layerscope.reports.verb import report
from layerscope.runs.curves import curves
from layerscope.runs.registry import METRICS

PLOTS = "[...document.querySelectorAll('.plot')]"
SHOWN = "(name) => [...document.querySelectorAll(name + ' tbody tr')].map(r => [...r.cells].map(c => c.textContent))"


@pytest.fixture(scope="module")
def one(language, tmp_path_factory):
    return report(language, tmp_path_factory.mktemp("page") / "one.html")


@pytest.fixture(scope="module")
def several(labelled, language, bare, tmp_path_factory):
    return report([labelled, language, bare], tmp_path_factory.mktemp("page") / "several.html")


def card(title):
    return f"figure.card:has(h3:text-is('{title}'))"


def rows_of(path):
    return pd.read_csv(path, dtype=str, keep_default_na=False).to_dict("records")


@pytest.mark.parametrize(("width", "scheme"), [(1300, "light"), (1300, "dark"), (360, "light")])
@pytest.mark.parametrize("page", ["one", "several"])
def test_opens_without_a_word_on_the_console_and_without_a_request(
    browser, request, page, width, scheme
):
    path = request.getfixturevalue(page)
    with browser.open(path, width, scheme) as opened:
        assert opened.console == []
        outside = [url for url in opened.requests if not url.startswith(("data:", "blob:"))]
        assert outside == [path.absolute().as_uri()]
        assert opened.ask("document.documentElement.dataset.theme") == scheme
        assert opened.ask("document.documentElement.scrollWidth <= innerWidth"), (
            "the page is wider than the window"
        )


@pytest.mark.parametrize("page", ["one", "several"])
def test_every_plot_is_drawn(browser, request, page):
    with browser.open(request.getfixturevalue(page)) as opened:
        drawn = opened.ask(
            f"{PLOTS}.map(p => [p.className, p.querySelectorAll('.main-svg').length, p.data.length])"
        )
        assert len(drawn) == opened.ask("page.figures.reduce((n, f) => n + f.places.length, 0)")
        # no difference lies in the middle of a small range
        assert opened.ask("upright({}, [{ series: { y: [0, 0] } }]).range") == [-0.05, 0.05]
        for name, sheets, traces in drawn:
            assert sheets and traces, name
        marks = {
            "chart": "path.js-line, .bars path",
            "map": ".heatmaplayer image, .heatmaplayer path",
            "boxes": "path.box",
        }
        for kind, mark in marks.items():
            seen = opened.ask(
                f"{PLOTS}.filter(p => p.matches('.{kind}')).map(p => p.querySelectorAll('{mark}').length)"
            )
            assert seen, kind
            assert all(seen), kind


def test_curves_are_the_runs_values_with_their_bands(browser, one, language):
    curve = next(c for c in curves(language) if c.metric == "prompt_entropy")
    with browser.open(one) as opened:
        drawn = opened.ask(f"{PLOTS}.find(p => p.ariaLabel.startsWith('Prompt entropy')).data")
        band, line, marks = drawn
        assert line["x"] == list(curve.layers)
        assert line["y"] == list(curve.values)
        upper = [y for _, y in sorted(zip(band["x"], band["y"], strict=True))[1::2]]
        assert upper == pytest.approx(list(curve.values + curve.stderr))
        assert marks["y"][0] == curve.final
        assert marks["x"][0] == language.depth
        assert [round(v, 12) for v in marks["y"][1:]] == [round(curve.at(curve.stands_out)[0], 12)]


def test_heat_maps_hold_every_two_layers(browser, one, language):
    with browser.open(one) as opened:
        found = opened.ask(
            f"{PLOTS}.filter(p => p.ariaLabel.startsWith('CKA of every'))"
            ".map(p => [p.layout.xaxis.ticktext, p.data[0].z])"
        )
    for (names, values), pooling in zip(found, ("position", "mean"), strict=True):
        square = language.metric("cka", pooling=pooling)
        assert names == [str(name) for name in square.index]
        assert np.array(values, dtype=float) == pytest.approx(square.to_numpy())


def test_runs_lie_over_each_other_by_percent_of_depth(browser, several, labelled, bare):
    lines = "cards.find(c => c.figure.file === 'effective-rank').plots[0].data.filter(t => t.mode.startsWith('lines+'))"
    with browser.open(several) as opened:
        found = opened.ask(f"{lines}.map(t => [t.x, t.y, t.line.color, t.marker.symbol])")
        assert [x for x, *_ in found] == [
            pytest.approx([100 * layer / run.depth for layer in range(run.depth + 1)])
            for run in (labelled, labelled, bare)  # the language model is as deep as the first
        ]
        assert found[2][1] == list(bare.metric("effective_rank"))
        assert len({color for *_, color, _ in found}) == len({symbol for *_, symbol in found}) == 3
        opened.tab.check("input[name=axis][value=layer]")
        opened.drawn()
        assert opened.ask(f"{lines}.map(t => t.x)")[2] == list(range(bare.depth + 1))
        opened.tab.uncheck("[data-run='0']")
        opened.drawn()
        assert len(opened.ask(f"{lines}.map(t => t.x)")) == 2
        names = {row[0] for row in opened.ask(SHOWN, "#layers")}
        assert len(names) == 2
        assert not any("labelled" in name for name in names)


def test_a_plot_of_one_run_can_show_another(browser, several, labelled, language):
    box = card("Cosine of every two layers") + " select >> nth=0"
    plot = "cards.find(c => c.figure.file === 'cosine-of-every-two-layers').plots[0].data[0].z"
    with browser.open(several) as opened:
        choices = opened.texts(f"{box} >> option")
        assert [text.rpartition(", ")[2] for text in choices] == [
            "mean pooling",
            "one token of each sample",
            "mean pooling",
        ]
        for value, (run, pooling) in enumerate(
            [(labelled, "mean"), (language, "position"), (language, "mean")]
        ):
            opened.tab.select_option(box, str(value))
            square = run.metric("cosine_similarity", pooling=pooling).to_numpy()
            assert np.array(opened.ask(plot)) == pytest.approx(square)


def test_tables_sort_by_any_heading(browser, one, language):
    with browser.open(one) as opened:

        def layers():
            return [row[0] for row in opened.ask(SHOWN, "#layers")]

        order = ["0", "1", "2", "3", "final"]
        assert layers() == order
        opened.tab.click(heading := "#layers th:has-text('prompt entropy') button")
        values = {
            str(layer): value
            for layer, value in language.metric("prompt_entropy", site="raw").items()
        }
        values["final"] = language.metric("prompt_entropy", site="normed").iloc[-1]
        falling = sorted(order, key=values.__getitem__, reverse=True)
        assert layers() == falling
        assert (
            opened.tab.get_attribute("#layers th:has-text('prompt entropy')", "aria-sort")
            == "descending"
        )
        opened.tab.focus(heading)
        opened.tab.keyboard.press("Enter")
        assert layers() == falling[::-1]
        opened.tab.click("#layers th:has-text('layer') >> nth=0 >> button")
        assert layers() == order
        # a head says nothing of layer 0 before any block has saturated: what is missing stays last
        # both ways
        for _ in range(2):
            opened.tab.click("#layers th:has-text('saturated') button")
            assert layers()[-2:] == ["0", "final"]


def test_tables_filter_by_words_and_by_choice(browser, one, language):
    table = language.table()
    with browser.open(one) as opened:
        assert f"{len(table)} rows" in opened.text("#numbers .status")
        opened.tab.select_option("#numbers select[aria-label^='metric']", "cka")
        assert f"{(table['metric'] == 'cka').sum()} of {len(table)} rows" in opened.text(
            "#numbers .status"
        )
        opened.tab.fill("#numbers input", "CKA position")
        rows = opened.ask(SHOWN, "#numbers")
        assert len(rows) == ((table["metric"] == "cka") & (table["pooling"] == "position")).sum()
        opened.tab.fill("#numbers input", "no such thing")
        assert opened.ask(SHOWN, "#numbers") == []
        assert opened.text("#numbers .status").startswith("0 of ")


def test_the_download_of_every_number_is_the_runs_table(
    browser, several, labelled, language, bare, tmp_path, frame_of
):
    with browser.open(several) as opened:
        found = frame_of(opened.save("#numbers [data-csv]", tmp_path))
    wanted = pd.concat([run.table() for run in (labelled, language, bare)], ignore_index=True)
    wanted["step"] = wanted["step"].astype("Int64")
    names = found.pop("run")
    assert names.nunique() == 3
    pd.testing.assert_frame_equal(found, wanted[list(found)], check_exact=True)
    assert set(wanted) - set(found) <= {"step"}


def test_the_download_of_chosen_rows_holds_these_rows(browser, one, language, tmp_path, frame_of):
    with browser.open(one) as opened:
        opened.tab.select_option("#numbers select[aria-label^='metric']", "curvature")
        opened.tab.click("#numbers th:has-text('value') button")
        found = frame_of(opened.save("#numbers [data-csv]", tmp_path))
    table = language.table()
    wanted = table[table["metric"] == "curvature"]["value"].sort_values(ascending=False)
    assert list(found["value"]) == list(wanted)


def test_the_download_of_a_figure_holds_its_numbers(browser, one, language, tmp_path):
    table = language.table()
    with browser.open(one) as opened:
        found = rows_of(opened.save(card("Perplexity") + " [data-csv]", tmp_path))
        wanted = table[table["metric"] == "perplexity"].sort_values("layer")
        assert [float(row["value"]) for row in found] == list(wanted["value"])
        assert [float(row["stderr"]) for row in found] == list(wanted["stderr"])
        assert [int(row["layer"]) for row in found] == list(wanted["layer"])
        assert [row["point"].partition(":")[0] for row in found] == [
            f"layer {layer}" for layer in wanted["layer"]
        ]
        found = rows_of(opened.save(card("Cosine of every two layers") + " [data-csv]", tmp_path))
        square = language.metric("cosine_similarity", pooling="mean").to_numpy()
        values = [float(row["value"]) for row in found if row["series"] == "mean pooling"]
        assert values == list(square.reshape(-1))
        found = rows_of(opened.save("#layers [data-csv]", tmp_path))
        entropy = language.metric("prompt_entropy", site="raw")
        assert [float(row["prompt entropy, nats"]) for row in found[:-1]] == list(entropy)


def test_a_plot_is_saved_as_an_image(browser, one, tmp_path):
    with browser.open(one) as opened:
        opened.tab.click("#theme")
        path = opened.save(card("Curvature") + " [data-png]", tmp_path)
        size = opened.ask(
            "(p => [p.clientWidth, p.clientHeight])(cards.find(c => c.figure.file === 'curvature').plots[0])"
        )
    image = Image.open(path).convert("RGB")
    assert image.size == (3 * size[0], 3 * (size[1] + 36))  # with room for a title of two lines
    colors = image.getcolors(1 << 24)
    assert len(colors) > 10
    assert max(colors)[1] == (255, 255, 255)  # whatever the page's theme: an image goes onto paper


def test_unchosen_runs_leave_plots_and_downloads(browser, several, labelled, tmp_path):
    with browser.open(several) as opened:
        opened.tab.uncheck("[data-run='1']")
        opened.tab.uncheck("[data-run='2']")
        opened.drawn()
        slots = opened.ask("[...document.querySelectorAll('.slot')].map(s => s.hidden)")
        assert any(slots) and not all(slots)
        found = rows_of(opened.save(card("Effective rank") + " [data-csv]", tmp_path))
        assert [float(row["value"]) for row in found[:-1]] == list(
            labelled.metric("effective_rank")
        )
        opened.tab.uncheck("[data-run='0']")
        opened.drawn()
        assert (
            opened.text(card("Effective rank") + " .plot")
            .strip()
            .endswith("no run with this metric is chosen")
        )
        assert opened.console == []


def test_the_meaning_of_a_metric_is_one_click_away(browser, one, language):
    with browser.open(one) as opened:
        for name in ("prompt_entropy", "curvature", "perplexity"):
            title = METRICS[name].title
            box = card(title[0].upper() + title[1:])
            opened.tab.click(f"{box} summary")
            said = " ".join(opened.text(f"{box} .meaning").split())
            for part in (METRICS[name].meaning, METRICS[name].direction, METRICS[name].source):
                assert part in said


def test_the_keyboard_reaches_everything(browser, one):
    with browser.open(one) as opened:
        opened.tab.keyboard.press("Tab")
        assert opened.ask("document.activeElement.className") == "skip"
        opened.tab.keyboard.press("Enter")
        assert opened.ask("document.activeElement.id") == "findings"
        controls = "a[href], button, summary, input, select, [tabindex='0']"
        seen = "e => e.checkVisibility() && !e.closest('.plot')"
        wanted = opened.ask(f'[...document.querySelectorAll("{controls}")].filter({seen}).length')
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
        assert (
            len(reached) >= wanted - 1
        )  # of radio buttons of one group only the chosen one is reached by Tab
        name = "e => e.ariaLabel || e.innerText || e.labels?.[0]?.innerText"
        names = opened.ask(f"[...document.querySelectorAll('button, select, input')].map({name})")
        assert all(names)


def test_light_and_dark_are_switched(browser, one):
    paper = f"getComputedStyle({PLOTS}[0].querySelector('.main-svg')).backgroundColor"
    with browser.open(one, scheme="light") as opened:
        light = opened.ask(paper)
        opened.tab.click("#theme")
        opened.drawn()
        assert opened.ask("document.documentElement.dataset.theme") == "dark"
        assert opened.ask(paper) != light


def test_paper_is_light_and_holds_every_plot(browser, several, tmp_path):
    with browser.open(several, scheme="dark") as opened:
        opened.ask("dispatchEvent(new Event('beforeprint'))")
        assert opened.ask("document.documentElement.dataset.theme") == "light"
        room = opened.ask(
            f"{PLOTS}.map(p => [p._fullLayout.width, p.clientWidth, p.closest('.card').clientWidth])"
        )
        for drawn, slot, whole in room:
            assert drawn == slot <= whole <= 680
        opened.ask("dispatchEvent(new Event('afterprint'))")
        opened.drawn()
        assert opened.ask("document.documentElement.dataset.theme") == "dark"
        opened.tab.pdf(path=tmp_path / "page.pdf")
    assert (tmp_path / "page.pdf").stat().st_size > 50_000


def test_three_copies_of_a_run_have_three_names(browser, labelled, tmp_path):
    copies = [shutil.copytree(labelled.path, tmp_path / name) for name in "abc"]
    with browser.open(report(copies, tmp_path / "page.html")) as opened:
        for name, text in zip("abc", opened.texts(".runs label"), strict=True):
            assert text.endswith(f"Sequential ({name})")
