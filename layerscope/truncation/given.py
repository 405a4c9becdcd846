"""What `truncate` takes in a model's place: an evaluation or a selection, each of which names its model."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from layerscope.core.errors import LayerscopeError
from layerscope.core.options import Asked
from layerscope.scores import Evaluation, open_evaluation
from layerscope.scores.evaluation import STORE
from layerscope.scores.origins import FILE


@runtime_checkable
class Chosen(Protocol):
    """A choice of a layer, such as `select` returns: of which model, and as it was scored."""

    model: str
    source: str | None
    layer: int
    as_shipped: bool
    pooling: str | None
    raw_only: bool


def resolved(asked: Asked) -> tuple[Asked, str | None]:
    """Return the options with a model or a run as `given`, and the pooling of the scores that named it.

    What was asked for goes before what an evaluation or a selection says. Raises `LayerscopeError` for a selection that
    truncates nothing, and for scores that name no model.
    """
    given = asked.given
    if isinstance(given, Chosen):
        return _by_selection(given, asked)
    if isinstance(given, Evaluation) or _is_evaluation(given):
        return _by_evaluation(given if isinstance(given, Evaluation) else open_evaluation(given), asked)
    return asked, None


def _by_selection(selection: Chosen, asked: Asked) -> tuple[Asked, str | None]:
    if not asked.layers and selection.as_shipped:
        raise LayerscopeError("nothing to truncate: the selection keeps the model as shipped; give a layer to cut it")
    if selection.source is None:
        raise LayerscopeError(f"the selection does not say where {selection.model} is: give the model and a layer")
    options = {"given": selection.source, "layers": asked.layers or [selection.layer]}
    if selection.raw_only and asked.format == "auto":
        options |= {"format": "onnx", "site": "raw"}
    return Asked(**vars(asked) | options), selection.pooling


def _by_evaluation(evaluation: Evaluation, asked: Asked) -> tuple[Asked, str | None]:
    models = sorted(evaluation.origins)
    if len(models) != 1:
        known = f"{len(models)} models ({', '.join(models)})" if models else "no model that is here"
        raise LayerscopeError(f"evaluation {evaluation.source!r} names {known}: give the model itself")
    source = evaluation.origins[models[0]].source
    if source is None:
        raise LayerscopeError(f"evaluation {evaluation.source!r} was made of a model in memory: give the model itself")
    rows = evaluation.scores[evaluation.scores["kind"] == "layer"]
    poolings = rows["pooling"].dropna().unique()
    return Asked(**vars(asked) | {"given": source}), str(poolings[0]) if len(poolings) == 1 else None


def _is_evaluation(given: Any) -> bool:
    if not isinstance(given, (str, Path)):
        return False
    folder = Path(given).expanduser()
    return (folder / FILE).is_file() or STORE.is_in(folder)
