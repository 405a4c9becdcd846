"""The page of the lens: complete in itself, hostile texts as texts, walked by keys, read on paper and on a phone."""

import pytest
import tiny

from layerscope import lens
from layerscope.show.page.page import render
from layerscope.show.written import write_page

HOSTILE = "</script><script>window.hit=1</script><img src=x onerror=window.hit=1> {{ 7*7 }} \x1b[31m \u202enihton"


@pytest.fixture(scope="module")
def reading():
    """Return what a model makes of a text, its tokens named as an attacker would."""
    tokenizer = tiny.tokenizer(special=False)
    model = tiny.llama()
    found = lens(
        model, data=[f"w1 w2 {HOSTILE}", "w3 w4"], generate=6, processor=tokenizer
    )
    renamed = {
        "prediction": {"w1": HOSTILE},
        "token": {"w1": HOSTILE, "[UNK]": "日本\n"},
    }
    found.grid.replace(renamed, inplace=True)
    found.saturation.replace(renamed, inplace=True)
    return found


@pytest.fixture(scope="module")
def page(reading, tmp_path_factory):
    return write_page(
        tmp_path_factory.mktemp("page") / "grid.html",
        lambda: render([reading.document()]),
    )


def test_what_could_steer_what_stands_around_it_is_spelt_out(page):
    text = page.read_text()
    assert "\x1b" not in text and "\u202e" not in text and "&lt;/script&gt;" in text
    assert "{{ 7*7 }}" in text.replace("␣", " ")


def test_a_reader_sees_every_cell_its_probability_and_walks_with_the_keys(
    browser, page, reading
):
    with browser.open(page, width=390, scheme="dark", touch=True) as opened:
        opened.assert_unharmed()
        assert opened.ask("document.querySelectorAll('.grid').length") == 2
        assert (
            opened.ask("document.querySelectorAll('.grid tbody .cell').length")
            == len(reading.saturation) * 4
        )
        assert opened.ask(
            "document.querySelectorAll('.grid tbody .settles').length"
        ) == len(reading.saturation)
        assert opened.ask("document.querySelectorAll('thead th.new').length") == 12
        assert "settle" in opened.text(".answer")
        opened.tab.focus(".grid .cell")
        for key in ("ArrowRight", "ArrowDown"):
            opened.tab.keyboard.press(key)
        first = reading.samples[0]
        rows = reading.grid[
            (reading.grid["sample"] == first) & (reading.grid["layer"] == 1)
        ]
        rows = rows[rows["position"] == 1]
        told = opened.ask("document.querySelector('.picked').textContent")
        assert told.startswith("w2 × 1: ") and told.count("·") == 4
        assert f"{rows['probability'].iloc[0]:.0%}" in told
        # text is read on every shade, in the dark and in the light
        for _ in range(2):
            assert opened.ask(CONTRAST) > 4.5
            opened.tab.click("#theme")


CONTRAST = """() => {
  const paint = document.createElement('canvas').getContext('2d', { willReadFrequently: true });
  const light = (color) => {
    paint.fillStyle = color; paint.fillRect(0, 0, 1, 1);
    const part = (v) => (v /= 255) <= .04045 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4;
    const [r, g, b] = [...paint.getImageData(0, 0, 1, 1).data].map(part);
    return .2126 * r + .7152 * g + .0722 * b + .05;
  };
  return Math.min(...[...document.querySelectorAll('.cell')].map((cell) => {
    const style = getComputedStyle(cell), [a, b] = [light(style.color), light(style.backgroundColor)];
    return Math.max(a, b) / Math.min(a, b);
  }));
}"""
