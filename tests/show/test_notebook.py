"""Documents in a notebook: everything the terminal shows, every text escaped."""

from dataclasses import replace
from html.parser import HTMLParser

from typed import refused

from layerscope.show.document import (
    Cell,
    Column,
    Document,
    Facts,
    Head,
    Prediction,
    Row,
    Section,
    Sentences,
    Table,
    TokenGrid,
)
from layerscope.show.notebook import Shown, html
from layerscope.show.plots import HeatMap

HOSTILE = "</td></table><script>alert(1)</script><img src=x onerror=\"alert('2')\">&lt;$x$\x1b[2J"


class Elements(HTMLParser):
    """The elements and the text of a piece of HTML."""

    def __init__(self, text):
        super().__init__()
        self.opened, self.attributes, self.text, self.open = [], set(), [], []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.opened.append(tag)
        self.open.append(tag)
        self.attributes |= {name for name, _ in attributes}

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text.append(data)


def document(text):
    table = Table(
        text,
        (Column(text, "left"), Column(text, "decimal"), Column(text)),
        (
            Row((Cell(text), Cell(text, text, marked=True), Cell(text))),
            Row((Cell("a"),) * 3, marked=True),
        ),
        (text,),
    )
    told = Prediction(text, 0.5, ((text, 0.5),), settles=True)
    grid = TokenGrid(
        text,
        text,
        text,
        text,
        (Head(text),),
        ((Head(text), (told,)),),
        ((text, (text,)),),
        ((text, (text,)),),
        text,
    )
    parts = (table, Facts(((text, text),), text), Sentences(text, (text,)), grid)
    return Document(text, (text, text), (text,), (text,), parts, (text,), (text,))


def test_hostile_text_stays_text():
    found = Elements(html(document(HOSTILE)))
    known = {
        "div",
        "p",
        "strong",
        "small",
        "table",
        "thead",
        "tbody",
        "tr",
        "th",
        "td",
        "ul",
        "li",
        "pre",
        "u",
    }
    assert (
        set(found.opened) == known
        and found.attributes == {"class", "style"}
        and found.open == []
    )
    shown = HOSTILE.replace("\x1b", "\\x1b")
    assert sum(shown in text for text in found.text) == 32


def test_all_of_a_document_is_there():
    text = "".join(Elements(html(document("words"))).text)
    assert text.count("words") == 33


class Drawn(Shown):
    """A result with two maps and nothing else, or as many members as there are names."""

    def __init__(self, *members):
        self.members = members

    def document(self):
        cells = {"columns": ("a", "b"), "values": ((1.0, 0.5), (0.5, 1.0))}
        maps = tuple(
            HeatMap(title=name, name=name, rows=(name, "last"), **cells)
            for name in ("one", "two")
        )
        own = Document(
            "an answer", ("model",), sections=(Section("maps", "Maps", "", maps),)
        )
        return replace(
            own, members=tuple(replace(own, title=(name,)) for name in self.members)
        )


def test_a_result_draws_the_figure_that_is_named_or_its_first_one():
    for figure, name in ((Drawn().plot("two"), "two"), (Drawn().plot(), "one")):
        assert set(figure.data["row"]) == {name, "last"}
    shown = Drawn().plot(width=3.25)._repr_svg_()
    assert shown.startswith("<svg") and "http://" not in shown.replace(
        "http://www.w3.org", ""
    )


def test_a_result_shows_its_document():
    assert "an answer" in Drawn()._repr_html_()


def test_members_of_a_result_share_a_figure():
    figure = Drawn("first", "second").plot("one")
    assert set(figure.data["run"]) == {"first", "second"}
    assert len(figure.spec["concat"]) == 2


def test_a_figure_that_is_not_there_is_named_with_those_that_are():
    with refused(r"^figure 'tow' does not exist, did you mean two\? \(.* one, two\)$"):
        Drawn().plot("tow")
