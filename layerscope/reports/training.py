"""The history of a training in a terminal: what each layer can at the last step."""

from __future__ import annotations

import math

from rich import box
from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from layerscope.core.errors import LayerscopeError
from layerscope.metrics.registry import about
from layerscope.runs.curves import Curve, curves, told
from layerscope.runs.run import Run
from layerscope.show.numbers import number
from layerscope.show.plain import plain

SHOWN = ("layer_accuracy", "perplexity", "cosine_similarity", "saturated", "nc1")


def show(run: Run, console: Console | None = None) -> None:
    """Print the last step of a training's history: a row for each layer, and from which layer on it is as good.

    Of a language model perplexity stands in the place of accuracy. Raises `LayerscopeError` for a run without steps.
    """
    if not run.steps:
        raise LayerscopeError(f"{str(run.path)!r} is no history of a training: it has no steps")
    console = console or Console()
    by_name = {curve.metric: curve for curve in curves(run)}
    left_out = "layer_accuracy" if "perplexity" in by_name else None
    columns = [by_name[name] for name in SHOWN if name in by_name and name != left_out]
    console.print(_heading(run))
    console.print(Padding(_table(columns, run.depth), (1, 0, 0, 0), expand=False))
    console.print(Text(_depth(run), style="bold"))
    readings = [f"{_title(curve)}: {about(curve.metric).reading}" for curve in columns]
    console.print(Text(" · ".join(readings), style="dim"))


def _heading(run: Run) -> Text:
    model, data, steps = run.info["model"], run.info["data"], run.steps
    facts = [f"step {steps[-1]:,}", f"{data['samples']:,} samples", str(run.info["options"].get("objective", ""))]
    names = (plain(str(model["name"])), "bold"), " on ", (plain(str(data["name"])), "bold")
    return Text.assemble(*names, "".join(f" · {fact}" for fact in facts if fact))


def _table(columns: list[Curve], depth: int) -> Table:
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    for title in ("layer", *map(_title, columns)):
        table.add_column(title, justify="right", no_wrap=True)
    for layer in range(1, depth + 1):
        table.add_row(str(layer), *(_value(curve, layer) for curve in columns))
    return table


def _title(curve: Curve) -> str:
    return {"layer_accuracy": "accuracy", "cosine_similarity": "cosine to last"}.get(curve.metric, curve.title)


def _value(curve: Curve, layer: int) -> str:
    value, stderr = curve.at(layer)
    if curve.metric == "cosine_similarity":
        return f"{value:.3f}" if math.isfinite(value) else "–"
    return told(curve, value, stderr) if curve.unit == "%" else number(value)


def _depth(run: Run) -> str:
    rows = run.at()
    rows = rows[rows["metric"] == "effective_depth"].set_index("variant")["value"]
    found = [f"effective depth {int(value)} of {run.depth}" for name, value in rows.items() if "=last" in str(name)]
    mean = run.at().set_index("metric")["value"].get("saturation_layer")
    settled = [] if mean is None else [f"predictions settle at layer {number(float(mean))} on average"]
    text = "; ".join(found + settled)
    return text[:1].upper() + text[1:]
