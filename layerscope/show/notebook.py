"""A document in a notebook: HTML in which every text is escaped."""

import math
from abc import ABC, abstractmethod

from layerscope.show.document import MARK, Document
from layerscope.show.numbers import bar, spark
from layerscope.show.plain import plain
from layerscope.show.plots import ends


class Shown(ABC):
    """A result that has a document, which notebooks show."""

    @abstractmethod
    def document(self) -> Document:
        """Return the answer, sentences and tables."""

    def _repr_html_(self) -> str:
        return html(self.document())


def html(document: Document) -> str:
    """Return a document as HTML without scripts and styles of its own, for the cell of a notebook."""
    from jinja2 import Environment, PackageLoader, StrictUndefined  # which takes a while to import

    loader = PackageLoader("layerscope.show", "files")
    room = Environment(loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    room.filters["plain"] = plain
    names = {"MARK": MARK, "bar": bar, "spark": spark, "ends": ends, "isfinite": math.isfinite}
    return room.get_template("notebook.html").render(document=document, **names)
