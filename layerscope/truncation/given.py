"""What `truncate` takes in a model's place: an evaluation or a selection, each of which names its model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from layerscope.core.errors import LayerscopeError
from layerscope.scores import Evaluation, open_evaluation
from layerscope.scores.evaluation import STORE
from layerscope.scores.origins import FILE


@runtime_checkable
class Chosen(Protocol):
    """A choice of a layer, such as `select` returns: of which model, and as it was scored."""

    @property
    def model(self) -> str: ...  # noqa: D102
    @property
    def source(self) -> str | None: ...  # noqa: D102
    @property
    def layer(self) -> int: ...  # noqa: D102
    @property
    def as_shipped(self) -> bool: ...  # noqa: D102
    @property
    def pooling(self) -> str | None: ...  # noqa: D102
    @property
    def raw_only(self) -> bool: ...  # noqa: D102


@dataclass(frozen=True)
class Order:
    """What is to be written: of which model, at which layers, and how; `scored` is the pooling of the scores."""

    model: Any
    layers: Sequence[Any]
    format: str = "auto"
    site: str = "normed"
    pooling: str | None = None
    scored: str | None = None

    def __post_init__(self) -> None:
        if self.pooling is not None and self.format != "sentence-transformers":
            raise LayerscopeError(
                f"pooling {self.pooling} needs the format sentence-transformers: the other formats yield the states of "
                "all tokens, or a head's predictions"
            )


def ordered(order: Order) -> Order:
    """Return an order that names a model or a run; what was given goes before what an evaluation or selection says.

    Raises `LayerscopeError` for a selection that truncates nothing, and for scores that name no model.
    """
    given = order.model
    if isinstance(given, Chosen):
        return _of_selection(given, order)
    if isinstance(given, Evaluation) or _is_evaluation(given):
        return _of_evaluation(given if isinstance(given, Evaluation) else open_evaluation(given), order)
    return order


def _of_selection(selection: Chosen, order: Order) -> Order:
    if not order.layers and selection.as_shipped:
        raise LayerscopeError("nothing to truncate: the selection keeps the model as shipped; give a layer to cut it")
    if selection.source is None:
        raise LayerscopeError(f"the selection does not say where {selection.model} is: give the model and a layer")
    raw = selection.raw_only and order.format == "auto"
    return replace(
        order, model=selection.source, layers=order.layers or [selection.layer], scored=selection.pooling,
        format="onnx" if raw else order.format, site="raw" if raw else order.site,
    )  # fmt: skip


def _of_evaluation(evaluation: Evaluation, order: Order) -> Order:
    models = sorted(evaluation.origins)
    if len(models) != 1:
        known = f"{len(models)} models ({', '.join(models)})" if models else "no model that is here"
        raise LayerscopeError(f"evaluation {evaluation.source!r} names {known}: give the model itself")
    source = evaluation.origins[models[0]].source
    if source is None:
        raise LayerscopeError(f"evaluation {evaluation.source!r} was made of a model in memory: give the model itself")
    rows = evaluation.scores[evaluation.scores["kind"] == "layer"]
    poolings = list(rows["pooling"].dropna().unique())
    return replace(order, model=source, scored=poolings[0] if len(poolings) == 1 else None)


def _is_evaluation(given: Any) -> bool:
    place = Path(given).expanduser() if isinstance(given, (str, Path)) else None
    return place is not None and ((place / FILE).is_file() or STORE.is_in(place))
