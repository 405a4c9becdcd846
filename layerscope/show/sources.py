"""The papers that shown figures rest on, and layerscope itself, as BibTeX; `files/sources.bib` has them all."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache, reduce
from importlib.metadata import metadata
from importlib.resources import files

from layerscope.show.document import Document
from layerscope.show.plots import Plot

SOFTWARE = """@software{{layerscope,
  author = {{{{layerscope developers}}}},
  title = {{{{layerscope: what every layer of a model knows, and which one serves you best}}}},
  version = {{{version}}},
}}"""


@dataclass(frozen=True)
class Paper:
    """A paper: its entry in BibTeX, the family names of its authors, the year, and its title."""

    bibtex: str
    families: tuple[str, ...]
    year: str
    title: str

    @property
    def name(self) -> str:
        """Its authors and year as a text names them."""
        first, *others = self.families
        return (
            f"{' and '.join(self.families) if len(others) < 2 else f'{first} et al.'} {self.year}"
        )

    @property
    def words(self) -> str:
        """Its title as a page shows it."""
        signs = {r"\&": "&", r"$\alpha$": "α", "---": "—", "--": "–"}
        return reduce(lambda title, sign: title.replace(*sign), signs.items(), self.title)

    def is_in(self, source: str) -> bool:
        """Return whether words on a source name this paper: its first author and year, or its title up to a colon."""
        short, colon, _ = self.title.partition(":")
        by_author = rf"{re.escape(self.families[0])}\b[^;\d]*\b{self.year}\b"
        return bool(colon and short in source) or re.search(by_author, source) is not None


@cache
def papers() -> tuple[Paper, ...]:
    """Return every paper of the data file, the two that layerscope joins first."""
    text = (files("layerscope.show") / "files" / "sources.bib").read_text(encoding="utf-8")
    return tuple(map(_paper, text.strip().split("\n\n")))


def _paper(entry: str) -> Paper:
    names = ("author", "title", "year")
    author, title, year = (re.search(rf"^  {name} = {{+(.+?)}}+,$", entry, re.M) for name in names)
    if not (author and title and year):
        raise ValueError(f"an entry lacks author, title or year: {entry}")
    families = (name.partition(",")[0] for name in author[1].split(" and "))
    return Paper(entry, tuple(families), year[1], title[1])


def cited(documents: Iterable[Document]) -> list[tuple[Paper, list[str]]]:
    """Return the papers that the plots of documents name as their sources, each with the titles of these plots."""
    found: dict[Paper, dict[str, None]] = {paper: {} for paper in papers()}
    plots = [
        p
        for document in documents
        for section in document.sections
        for p in section.parts
        if isinstance(p, Plot)
    ]
    for title, source in dict.fromkeys((plot.title, plot.about.source) for plot in plots):
        for paper in papers():
            if paper.is_in(source):
                found[paper][title] = None
    return [(paper, list(titles)) for paper, titles in found.items() if titles]


def bibtex(known: Iterable[Paper]) -> str:
    """Return layerscope's own entry and those of papers, as a file of BibTeX has them."""
    software = SOFTWARE.format(version=metadata("layerscope")["Version"])
    return "\n\n".join([software, *(paper.bibtex for paper in known)])
