"""The papers that shown figures rest on, and layerscope itself, as BibTeX; `files/sources.bib` has them all."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from importlib.metadata import metadata
from importlib.resources import files

from layerscope.show.plots import Plot

SOFTWARE = """@software{{layerscope,
  author = {{{{layerscope developers}}}},
  title = {{{{layerscope: what every layer of a model knows, and which one serves you best}}}},
  version = {{{version}}},
}}"""


@dataclass(frozen=True)
class Paper:
    """A paper: its entry in BibTeX, the family name of its first author, the year, and its title."""

    bibtex: str
    first: str
    year: str
    title: str

    def is_in(self, source: str) -> bool:
        """Return whether words on a source name this paper: its first author and year, or its title up to a colon."""
        short, colon, _ = self.title.partition(":")
        by_author = rf"{re.escape(self.first)}\b[^;\d]*\b{self.year}\b"
        return (
            bool(colon and short in source) or re.search(by_author, source) is not None
        )


@cache
def papers() -> tuple[Paper, ...]:
    """Return every paper of the data file, the two that layerscope joins first."""
    text = (files("layerscope.show") / "files" / "sources.bib").read_text(
        encoding="utf-8"
    )
    return tuple(map(_paper, text.strip().split("\n\n")))


def _paper(entry: str) -> Paper:
    fields = dict(re.findall(r"^  (\w+) = {+(.+?)}+,$", entry, re.M))
    return Paper(
        entry, fields["author"].partition(",")[0], fields["year"], fields["title"]
    )


def cited(plots: Iterable[Plot]) -> list[Paper]:
    """Return the papers that plots name as their sources."""
    sources = {plot.about.source for plot in plots}
    return [
        paper for paper in papers() if any(paper.is_in(source) for source in sources)
    ]


def bibtex(cited: Iterable[Paper]) -> str:
    """Return layerscope's own entry and those of papers, as a file of BibTeX has them."""
    software = SOFTWARE.format(version=metadata("layerscope")["Version"])
    return "\n\n".join([software, *(paper.bibtex for paper in cited)])
