"""Progress in a notebook, run by a real kernel: lines, and bars where ipywidgets can draw them."""

import pytest

nbformat, nbclient = pytest.importorskip("nbformat"), pytest.importorskip("nbclient")
pytest.importorskip("ipykernel")

CODE = """
import sys
{before}
from layerscope.core.progress import reporting

reporter = reporting(True)
reporter.say("a line [b]")
with reporter.bar("layers", 3) as advance:
    advance(3)
"""


def outputs(before: str) -> list[dict[str, str]]:
    """Return the data that a cell shows."""
    book = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(CODE.format(before=before))])
    nbclient.NotebookClient(book, kernel_name="python3").execute()
    return [output["data"] for output in book.cells[0].outputs]


def test_lines_and_bars_are_shown() -> None:
    pytest.importorskip("ipywidgets")
    line, bar, *_ = outputs("")
    assert line["text/plain"] == "a line [b]\n"
    assert "application/vnd.jupyter.widget-view+json" in bar


def test_without_ipywidgets_there_are_lines_alone() -> None:
    hidden = "import importlib.util; importlib.util.find_spec = lambda name: None"
    assert [data["text/plain"] for data in outputs(hidden)] == ["a line [b]\n"]
