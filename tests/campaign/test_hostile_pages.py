"""Hostile texts as every name there is, on every kind of page, in Chromium: nothing runs, no console speaks."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from random import Random

import tiny
from chromium import Browser
from commands import EARLY, TRAINED, Forks
from hostile import HOSTILE, STEERING
from trials import Part

MORE = [
    "<ScRiPt>window.hit=1</sCrIpT >", "<img src=x onerror=window.hit=1>",
    "<math><mtext></p><img src=x onerror=hit=1>", "\"'><svg/onload=window.hit=1>", "`${window.hit=1}`",
    "\\u003cscript\\u003ewindow.hit=1\\u003c/script\\u003e", "</title><script>window.hit=1</script>",
    "</textarea><script>window.hit=1</script>", "--><script>window.hit=1</script>",
    "</style><script>window.hit=1</script>", "data:text/html,<script>window.hit=1</script>", "constructor",
    "toString", "{{constructor.constructor('window.hit=1')()}}", "@import url(//x)", "expression(window.hit=1)",
    "url(javascript:hit=1)", "\u200f\u202b\u2066abc", "\ufeff", "é" * 99, "W" * 900, "a\tb\r\nc", "%00",
    "\x7f\x9b31m", "0", "NaN", "null", "-", "#", "<a href=//x>x</a>", "$$x$$", "&#x3c;script&#x3e;",
    "=cmd|' /C calc'!A0", "😀" * 40, "\U000e0041\U000e0042", "🏳️‍🌈",
]  # fmt: skip
HARM = """() => {
  const FOREIGN = ['iframe', 'img', 'object', 'embed', 'form', 'base', 'math'];
  const all = [...document.querySelectorAll('*')];
  const links = [...document.querySelectorAll('[href], [src], [action], [srcdoc]')].filter(
    (e) => !/^(#|data:|blob:)/.test(e.getAttribute('href') ?? e.getAttribute('src') ?? 'x'));
  return {
    hit: window.hit ?? null,
    violations: window.violations,
    handlers: all.flatMap((e) => e.getAttributeNames()).filter((name) => name.startsWith('on')),
    foreign: all.map((e) => e.localName).filter((n) => FOREIGN.includes(n)),
    links: links.map((e) => e.outerHTML.slice(0, 99)),
    hidden: getComputedStyle(document.body).display === 'none',
    scripts: [...document.scripts].filter((s) => s.type !== 'application/json').map((s) => s.textContent),
  };
}"""
WATCH = "window.violations = []; addEventListener('securitypolicyviolation', (e) => violations.push(e.blockedURI));"


def draw(rng: Random) -> str:
    """Return a hostile text, or two in one."""
    return " ".join(
        rng.choice([*HOSTILE, *STEERING, *MORE]) for _ in range(rng.choice([1, 1, 1, 2]))
    )


def name(rng: Random) -> str:
    """Return a hostile text that a file may be called by."""
    text = re.sub(r"[\0\n\r\ud800-\udfff]", "", draw(rng).replace("/", "∕")).strip().lstrip("-~.")
    return text.encode()[:90].decode(errors="ignore") or "x"


class Place:
    """A folder of a model and data that bear hostile names."""

    def __init__(self, path: Path, forks: Forks, made: Path, rng: Random) -> None:
        self.path, self.forks, self.rng = path, forks, rng
        path.mkdir()
        self.classes = list(dict.fromkeys(draw(rng).strip() or "x" for _ in range(40)))[:3]
        self.text, self.label = (
            "tl"[i] + re.sub(r"[\0\ud800-\udfff]", "", draw(rng)) for i in (0, 1)
        )  # typed words
        self.model = self._model(made / "cls")
        self.data = self._data()

    def _model(self, made: Path) -> str:
        found = name(self.rng)
        shutil.copytree(made, self.path / found)
        config = json.loads((made / "config.json").read_text())
        config["id2label"] = dict(enumerate(self.classes))
        config["label2id"] = {label: i for i, label in enumerate(self.classes)}
        (self.path / found / "config.json").write_text(json.dumps(config))
        return f"./{found}"

    def _data(self) -> str:
        texts = [f"{draw(self.rng)} {text}" for text in tiny.texts(60)]
        return self._written({self.text: texts, self.label: self.classes * 20})

    def _written(self, columns: dict[str, list[str]]) -> str:
        path = self.path / (name(self.rng) + ".jsonl")
        rows = (dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True))
        path.write_text("\n".join(map(json.dumps, rows)))
        return f"./{path.name}"

    @property
    def columns(self) -> tuple[str, ...]:
        return "--text-column", self.text, "--label-column", self.label

    def run(self, *words: object) -> None:
        ended = self.forks.run(*words, cwd=self.path)
        assert ended.status == 0, f"{list(map(str, words))}: {ended.err[-900:]}"

    def profile(self) -> str:
        out = "./" + name(self.rng)
        while (self.path / out).exists():
            out += "x"
        self.run(
            "profile",
            self.model,
            "--data",
            self.data,
            *self.columns,
            "--samples",
            40,
            "--views",
            0,
            "--out",
            out,
        )
        return out

    def scores(self) -> str:
        task = self._written({"text": tiny.texts(60), "label": self.classes * 20})
        self.run(
            "evaluate", self.model, "--data", f"linear-probe:{task}", "--jobs", 1, "--out", "scores"
        )
        return "scores"


def profiled(place: Place) -> None:
    place.run("report", place.profile(), "--out", "page.html")


def scored(place: Place) -> None:
    place.run("report", place.scores(), "--out", "page.html")


def both(place: Place) -> None:
    place.run("report", place.profile(), place.scores(), "--out", "page.html")


def compared(place: Place) -> None:
    place.run("compare", place.profile(), place.profile(), "--out", "compared")
    place.run("report", "compared", "--out", "page.html")


def exited(place: Place) -> None:
    place.run("exits", place.model, "--data", place.data, *place.columns, *EARLY, "--out", "early")
    place.run("report", "early", "--out", "page.html")


def trained(place: Place) -> None:
    out = "./" + name(place.rng)
    place.run(
        "train", place.model, "--train", place.data, *place.columns, *TRAINED, "--out", out + "x"
    )
    place.run("report", f"{out}x/history", "--out", "page.html")


def seen(place: Place) -> None:
    words = ("--data", place.data, *place.columns, "--samples", 5)
    place.run("lens", place.model, *words, "--page", "page.html")


PAGES: list[Callable[[Place], None]] = [both, compared, exited, trained, seen, profiled, scored]


def check(browser: Browser, page: Path, guarded: bool) -> None:
    """Open a page, with its own policy or with none, and look for anything that a text has done."""
    context = browser.chromium.new_context(bypass_csp=not guarded, accept_downloads=True)
    context.add_init_script(WATCH)
    try:
        tab, console = context.new_page(), []
        tab.on("console", lambda message: console.append(f"{message.type}: {message.text}"))
        tab.on("pageerror", lambda error: console.append(f"error: {error}"))
        tab.on("dialog", lambda dialog: console.append("a dialog"))
        tab.on("request", lambda asked: console.append(f"request: {asked.url}"))
        tab.goto(page.as_uri())
        tab.wait_for_load_state("load")
        if "data-drawn" in page.read_text("utf-8"):
            tab.wait_for_selector("html[data-drawn=all]", timeout=30_000)
        tab.evaluate("document.querySelectorAll('details').forEach((d) => { d.open = true; })")
        for point in tab.locator(".point, .cell, .curve").all()[:3]:
            point.hover(force=True, timeout=2000)
        harm = tab.evaluate(HARM)
        allowed = set(re.findall(r"sha256-([A-Za-z0-9+/=]+)", page.read_text("utf-8")))
    finally:
        context.close()
    digests = {
        base64.b64encode(hashlib.sha256(s.encode()).digest()).decode() for s in harm.pop("scripts")
    }
    spoken = [
        line
        for line in console
        if not line.startswith(("request: file:", "request: data:", "request: blob:"))
    ]
    assert spoken == [], spoken[:3]
    assert digests <= allowed, "a script of another"
    assert harm == {
        "hit": None,
        "violations": [],
        "handlers": [],
        "foreign": [],
        "links": [],
        "hidden": False,
    }


def test_hostile_pages(forks: Forks, made: Path, browser: Browser, tmp_path: Path) -> None:
    for trial in Part("page", few=5, share=0.05).trials():
        with trial:
            kind = PAGES[trial.seed % len(PAGES)]
            place = Place(tmp_path / "place", forks, made, trial.random)
            kind(place)
            check(browser, place.path / "page.html", guarded=trial.random.random() < 0.5)
            trial.outcome = kind.__name__
        shutil.rmtree(tmp_path / "place", ignore_errors=True)
