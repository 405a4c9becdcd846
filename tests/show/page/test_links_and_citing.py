"""A link to every part of a page, several results side by side, and the sources that a page names, as BibTeX."""

import re
import tomllib
from pathlib import Path

import pytest
import yaml

from layerscope.early_exit import document as exits
from layerscope.generation import draft_report, generation
from layerscope.reports.verb import report
from layerscope.runs.registry import KNOWN
from layerscope.show.sources import bibtex, papers

ROOT = Path(__file__).parents[3]
CELLS = "(cells => [...cells].map(c => c.textContent))"
PLOTS = "cards.find(c => c.card.id === 'curve-effective_rank').plots"


@pytest.fixture(scope="module")
def several(labelled, language, bare, tmp_path_factory):
    return report(
        [labelled, language, bare], tmp_path_factory.mktemp("page") / "several.html"
    )


def ids_of(path):
    page = re.sub(r"<(script|style)\b.*?</\1>", "", path.read_text("utf-8"), flags=re.S)
    return re.findall(r'<\w+[^>]*? id="([^"]+)"', page), re.findall(
        r'<a [^>]*?href="#([^"]+)"', page
    )


def test_anchors_are_unique_and_every_link_has_one(several, language, tmp_path):
    ids, links = ids_of(several)
    assert len(ids) == len(set(ids))
    assert set(links) <= set(ids)
    alone, _ = ids_of(report(language, tmp_path / "one.html"))
    assert {
        "curve-prompt_entropy",
        "cka",
        "quality",
        "quality-by-layer",
        "cite",
    } <= set(ids) & set(alone)


@pytest.mark.parametrize(
    ("name", "width"), [("cka", 1400), ("numbers", 390), ("curve-dime", 390)]
)
def test_a_link_ends_at_its_part(browser, several, name, width):
    with browser.open(several, width) as opened:
        opened.tab.goto("about:blank")
        opened.tab.goto(f"{several.as_uri()}#{name}")
        opened.drawn()
        assert (
            0
            <= opened.ask(
                f"document.getElementById('{name}').getBoundingClientRect().top"
            )
            < 40
        )
        assert opened.ask(f"document.getElementById('{name}').checkVisibility()")
        section = opened.ask(
            f"document.getElementById('{name}').closest('section').querySelector('h2').innerText"
        )
        assert (
            opened.ask("document.querySelector('nav a[aria-current]').textContent")
            == section.strip()
        )


def test_contents_are_plain_links_without_scripts(browser, several):
    context = browser.chromium.new_context(java_script_enabled=False)
    tab = context.new_page()
    tab.goto(several.as_uri())
    tab.click("#contents summary") if tab.is_visible("#contents summary") else None
    tab.click("nav a[href='#cka']")
    assert tab.url.endswith("#cka")
    assert "CKA" in tab.inner_text("#cka")
    context.close()


def test_the_sources_are_copied_as_bibtex(browser, several):
    with browser.open(several) as opened:
        opened.tab.context.grant_permissions(["clipboard-read", "clipboard-write"])
        opened.tab.click("[data-copy]")
        opened.until("document.getElementById('said').textContent === 'BibTeX copied'")
        copied = opened.ask("navigator.clipboard.readText()")
    assert copied.startswith("@software{layerscope,")
    for key in ("skean2025layer", "jiang2025tracing", "kornblith2019similarity"):
        assert f"{{{key}," in copied
    assert "leviathan2023fast" not in copied  # nothing of it is on the page


MENTION = re.compile(
    r"[A-Z][\w-]+(?: et al\.|(?:,? and|,) [A-Z][\w-]+)* ((?:19|20)\d\d)\b"
)
SOURCES = {name: metric.source for name, metric in KNOWN.items()} | {
    f"{module.__name__}.{name}": meaning.source
    for module in (exits, draft_report, generation)
    for name, meaning in (vars(module) | vars(module).get("ABOUT", {})).items()
    if hasattr(meaning, "source") and isinstance(meaning.source, str)
}


@pytest.mark.parametrize("name", SOURCES)
def test_every_source_of_a_record_has_an_entry(name):
    source = SOURCES[name]
    named = [paper for paper in papers() if paper.is_in(source)]
    assert len(named) >= len(MENTION.findall(source))
    assert {paper.year for paper in named} >= set(MENTION.findall(source))
    if "Layer by Layer" in source:
        assert papers()[0] in named
    if "Tracing Representation Progression" in source:
        assert papers()[1] in named


def test_every_entry_is_of_a_source_and_whole():
    assert all(
        any(paper.is_in(source) for source in SOURCES.values()) for paper in papers()
    )
    keys = [
        re.match(r"@\w+\{(\w+),$", paper.bibtex.split("\n")[0])[1] for paper in papers()
    ]
    assert len(keys) == len(set(keys))
    for paper in papers():
        assert paper.bibtex.count("{") == paper.bibtex.count("}"), paper.title


def test_the_entries_say_what_the_citation_file_says():
    known = yaml.safe_load((ROOT / "CITATION.cff").read_text("utf-8"))
    version = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"][
        "version"
    ]
    assert known["version"] == version
    assert all(
        text in bibtex(()) for text in (known["title"], known["authors"][0]["name"])
    )
    for paper, given in zip(papers(), known["references"], strict=False):
        names = [
            f"{one['family-names']}, {one['given-names']}" for one in given["authors"]
        ]
        assert f"author = {{{' and '.join(names)}}}" in paper.bibtex
        assert (paper.title, paper.year) == (given["title"], str(given["year"]))
        assert given["collection-title"] in paper.bibtex
