"""A link to every part of a page."""

import re

import pytest

from layerscope.reports.verb import report


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
    } <= set(ids) & set(alone)


@pytest.mark.parametrize("name, width", [("numbers", 1400), ("curve-dime", 390)])
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
