"""A document in a notebook: HTML in which every text is escaped."""

from collections.abc import Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any, ClassVar

from layerscope.core import require
from layerscope.show.document import MARK, Document

if TYPE_CHECKING:
    from layerscope.show.figure import Figure


class Shown:
    """A result that has a document, which notebooks show."""

    DOCUMENT: ClassVar[str] = ""
    """The module whose `document` shows results of this kind; it reads the result, which does not import it."""

    def document(self) -> Document:
        """Return the answer, sentences and tables."""
        document: Document = self._shown_by().document(self)
        return document

    def beside(self, others: "Sequence[Shown]") -> "Shown":
        """Return the result as it is comparable to others, itself among them, on one page."""
        return self

    def _shown_by(self) -> Any:
        return import_module(self.DOCUMENT)

    def plot(self, name: str | None = None, *, width: float | None = None) -> "Figure":
        """Return one of the figures that `report(figures=…)` writes: a notebook shows it, and it can be saved.

        Args:
            name: name of the figure, as its file is called (`curves`, `cka`, `scores`), or of a
                metric; by default the first there is.
            width: its width in inches: 5.5, the text of ICLR's style, by default; 3.25 is a column
                of ICML's.

        Returns:
            The figure: `save("x.pdf")` writes it (as PDF, PNG or SVG), `data` is the table behind
            it, `spec` its Vega-Lite specification.

        Raises:
            LayerscopeError: for a figure that this result does not have, with those it has; where
                vl-convert is missing.

        Example:
            >>> figure = layerscope.open_run("runs/minilm").plot("effective_rank", width=3.25)
            >>> figure.data["value"].round(1).tolist()[:2]
            [7.6, 8.6]

        """
        require("charts", "a figure")
        from layerscope.show.drawing import figure

        return figure(self.document(), name, width)

    def _repr_html_(self) -> str:
        return html(self.document())


def html(document: Document) -> str:
    """Return a document as HTML without scripts and styles of its own, for the cell of a notebook."""
    # which takes a while to import
    from layerscope.show.templates import templates

    template = templates("layerscope.show").get_template("notebook.html")
    return template.render(document=document, MARK=MARK)
