"""The words of a Vega-Lite specification, as short as they are said: fields, layers, and what a pointer is told."""

from typing import Any

from layerscope.show.looks import MUTED

Json = dict[str, Any]


def quantity(field: str, **more: Any) -> Json:
    """Return the encoding of a column of numbers."""
    return {"field": field, "type": "quantitative", **more}


def category(field: str, **more: Any) -> Json:
    """Return the encoding of a column of names, in the order of the rows."""
    return {"field": field, "type": "nominal", "sort": None, **more}


def told(field: str, title: str | None = None) -> Json:
    """Return what a pointer is told of a row: a name, or a number where it has a title."""
    if title is None:
        return {"field": field, "type": "nominal", "title": " " if field == "point" else field}
    return quantity(field, title=title, format=".4~r")


def layer(mark: Json, test: str, encoding: Json) -> Json:
    """Return one layer of a view, of the rows that pass a test; a mark's name is that of the layer."""
    return {"transform": [{"filter": test}], "mark": mark, "encoding": encoding}


def nothing(text: str) -> Json:
    """Return a view that says why there is nothing to see."""
    return {"layer": [{"mark": {"type": "text", "text": text, "color": MUTED}}]}
