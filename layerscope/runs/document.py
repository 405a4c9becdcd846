"""A run as a document: the answer, what stands out, and tables of layers by metrics."""

import math
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import chain, groupby, islice
from typing import TYPE_CHECKING, Any

import numpy as np

from layerscope.core.errors import count, spans
from layerscope.core.saved import jsonable
from layerscope.runs import curves
from layerscope.runs.curves import KINDS, Curve, Group, value_text
from layerscope.runs.details import details, unfinished
from layerscope.runs.findings import answer, findings
from layerscope.runs.plots import SECTIONS, sections
from layerscope.runs.probed import Finding, drawn_from
from layerscope.runs.registry import CHOICES, DEFAULT, about, titled
from layerscope.runs.states import PROJECTED
from layerscope.show import document as show
from layerscope.show.numbers import NIL, error, number
from layerscope.show.plain import pooling_name

if TYPE_CHECKING:
    from layerscope.runs.run import Run

TITLES: dict[Group, str] = {
    "decisions": "What can be read from each layer",
    "quality": "Quality of each layer",
    "similarity": "Similarity to the last layer",
}
ERROR = "± is one standard error."
UNJUDGED = "not a verdict without labels: whether high or low is better differs by model and data"


def as_dict(run: "Run") -> dict[str, Any]:
    """Return answer, model, data, depth, pooling, path, rows, what stands out, for JSON; no number is null."""
    measured = curves.curves(run)
    sentences = findings(run, measured)
    entries: dict[str, Any] = jsonable(
        {
            "answer": answer(run, measured, sentences),
            "model": run.info["model"],
            "data": run.info["data"],
            "depth": run.depth,
            "pooling": run.info["pooling"],
            "path": str(run.path),
            "rows": run.table().astype(object),
            "stands_out": [
                {
                    "metric": c.metric,
                    "variant": c.variant,
                    "pooling": c.pooling,
                    "layer": c.stands_out,
                }
                for c in measured
            ],
            "findings": [{"name": f.name, "text": f.text, **f.numbers} for f in sentences],
        }
    )
    return entries


def document(run: "Run") -> show.Document:
    """Return a run as it is shown: rows are layers 0 … L, and `final` where a norm follows layer L."""
    model, data = run.info["model"], run.info["data"]
    measured = curves.curves(run)
    sentences = findings(run, measured)
    stands_out = show.Sentences("What stands out", tuple(finding.text for finding in sentences))
    by_group = [
        [*_tables(group, [c for c in measured if c.group == group], run)] for group in TITLES
    ]
    tables = [*chain.from_iterable(by_group)]
    has_chosen_metrics = not set(run.info["options"]["metrics"]).issuperset(DEFAULT)
    lead = tables if has_chosen_metrics else next(filter(None, by_group), [])
    panels = curves.panels(curves.inside(run)).values()
    inside = [_inside(panel, run) for panel in islice(panels, 1)]
    return show.Document(
        answer(run, measured, sentences),
        title=(str(model["name"]), str(data["name"])),
        facts=(*size(run), samples(run), *_poolings(run)),
        parts=(stands_out, *tables, *inside, *_how_to_read(measured)),
        lead=(*lead, *inside),
        notes=(ERROR,) if any(np.isfinite(c.stderr).any() for c in measured) else (),
        commands=_commands(run, sentences),
        sections=(*sections(run, measured), *every_number(run, measured)),
        details=details(run),
        warnings=unfinished(run),
        kind="runs",
        depth=run.depth,
    )


def _poolings(run: "Run") -> Iterator[str]:
    if not run.is_history:
        yield f"{', '.join(run.info['pooling'])} pooling"


def _how_to_read(measured: Sequence[Curve]) -> Iterator[show.Facts]:
    """Yield what a high value of each metric means, and what the mark is not."""
    readings = {}
    for curve in measured:
        variant = (curve.variant or "").partition(",prefix=")[0].replace(",", ", ")
        name = f"{curve.title} ({variant})" if variant else curve.title
        axis = ", spark line logarithmic" if curve.log else ""
        readings[name] = about(curve.metric).reading + axis
    if any(c.stands_out is not None for c in measured if c.group == "quality"):
        readings[show.MARK] = UNJUDGED
    if readings:
        yield show.Facts(tuple(readings.items()), "How to read the metrics")


def _commands(run: "Run", sentences: Sequence[Finding]) -> tuple[str, ...]:
    """Return what to type next: `select` where a layer is named."""
    has_best = any(f.numbers.get("layer") for f in sentences if f.name == "best_layer")
    verbs = ["select", "report"] if has_best else ["report"]
    return tuple(shlex.join(["layerscope", verb, str(run.path)]) for verb in verbs)


def samples(run: "Run") -> str:
    """Return how many samples a run is about."""
    kept, stream, whole = run.info["data"]["samples"], run.info.get("stream"), drawn_from(run)
    if stream:
        return f"{count(stream['samples'], 'sample')}, of which {kept:,} were kept"
    return f"{kept:,} of {count(whole, 'sample')}" if whole else count(kept, "sample")


def size(run: "Run") -> tuple[str, ...]:
    """Return which layers a run has, and the size of its model."""
    model, first = run.info["model"], run.layers[0]
    whole = 1 < len(run.layers) == run.depth + 1 - first
    named = f"layers {first} to {run.depth}" if whole else spans(run.layers, "layer")
    rest = [] if model["parameters"] is None else [f"{model['parameters']:,} parameters"]
    return named, f"{model['width']:,} wide", *rest


def every_number(run: "Run", measured: Sequence[Curve]) -> Iterator[show.Section]:
    """Yield what a page has at its end: every metric by layer in one table, and the long frame."""
    order = {needs: i for i, (kinds, _, _) in enumerate(SECTIONS.values()) for needs in kinds}
    shown = sorted(measured, key=lambda c: order[about(c.metric).needs])
    rows = [
        show.Row((show.Cell(str(layer), value=layer), *(_plain_cell(c, layer) for c in shown)))
        for layer in run.layers
    ]
    if any(c.final is not None for c in shown):
        rows.append(
            show.Row(
                (show.Cell("final", value=run.depth + 0.5), *(_plain_cell(c, None) for c in shown))
            )
        )
    lead = (
        "One row for each layer; click a heading to sort by it. "
        "Marked cells are the layers that stand out in a metric."
    )
    columns = [show.Column("layer")]
    for curve in shown:
        unit = [curve.unit, *curves.which(curve, (c for c in shown if c.metric == curve.metric))]
        columns.append(
            show.Column(titled(curve.metric, curve.variant), unit=", ".join(filter(None, unit)))
        )
    whole = show.Table("Every layer", tuple(columns), tuple(rows), (lead,), name="layers")
    yield show.Section("layers", whole.title, "", (whole,))
    lead = "One row for each metric, layer, site and pooling, and for every two layers."
    frame = show.Frame("Every number", lead, "numbers", run.table(), ("run", "metric"))
    yield show.Section("numbers", frame.title, "", (frame,))


def _plain_cell(curve: Curve, layer: int | None) -> show.Cell:
    """Return a value in its unit, which the head of its column names, at a layer or (None) after the final norm."""
    if curve.final is None if layer is None else layer not in curve.layers:
        return show.EMPTY
    value, stderr = curve.last() if layer is None else curve.at(layer)
    marked = layer is not None and layer == curve.stands_out
    text = value_text(curve, value, stderr).removesuffix(f" {curve.unit}")
    return show.Cell(
        text, value=value * curve.scale, marked=marked, more=(("stderr", stderr * curve.scale),)
    )


def _tables(group: Group, measured: list[Curve], run: "Run") -> Iterator[show.Table]:
    """Yield a table for each pooling, projected states last; one that is too wide has one for each kind of metric."""
    for suffix, columns in _by_pooling(measured):
        by_kind = groupby(columns, lambda curve: about(curve.metric).needs)
        parts = [
            _table(KINDS.get(kind, "") + ("" if kind == "tokens" else suffix), [*members], run)
            for kind, members in by_kind
        ]
        yield _table(TITLES[group] + suffix, columns, run, tuple(parts) if len(parts) > 1 else ())


def _by_pooling(members: list[Curve]) -> Iterator[tuple[str, list[Curve]]]:
    """Yield curves by pooling, and how their title ends: those of tokens stand beside the pooling where it is one."""
    for part in (
        [c for c in members if c.site != PROJECTED],
        [c for c in members if c.site == PROJECTED],
    ):
        poolings = list(dict.fromkeys(c.pooling for c in part))
        named = [p for p in poolings if p is not None]
        if part and len(named) <= 1:
            yield f" · {pooling_name(named[0])}" if named else "", part
            continue
        for pooling in poolings:
            yield f" · {pooling_name(pooling)}", [c for c in part if c.pooling == pooling]


def _inside(panel: list[Curve], run: "Run") -> show.Table:
    """Return one metric at every site of the blocks, of its first pooling, and how much each addition changes it."""
    panel = [curve for curve in panel if curve.pooling == panel[0].pooling]
    columns = [
        replace(curve, title=curves.site_name(curve.site), final=None, stands_out=None)
        for curve in panel
    ]
    table = _table(f"Inside the blocks · {panel[0].title}", columns, run)
    rest = "Every other metric has these sites in the run's table and on its page."
    return replace(table, legend=tuple(filter(None, (curves.steps_text(panel), rest))))


def _table(
    title: str, members: Sequence[Curve], run: "Run", narrow: tuple[show.Table, ...] = ()
) -> show.Table:
    """Return a column for each curve: values with their errors, one of them marked, and a row after the final norm."""
    layers = sorted({layer for c in members for layer in c.layers})
    names = [*map(str, layers)]
    if any(c.final is not None for c in members):
        names.append("final")
    columns = [show.Column("layer")]
    for curve in members:
        shape = tuple(curve.at(layer)[0] for layer in layers if curve.differs)
        columns.append(show.Column(_heading(curve, members), "decimal", shape, curve.log))
    cells = [_cells(curve, layers) for curve in members]
    # cells end with those after the final norm, whose row is left out where none has a value
    rows = [show.row(*line) for line in zip(names, *cells, strict=False)]
    return show.Table(title, tuple(columns), tuple(rows), tuple(_legend(members, run)), narrow)


def _heading(curve: Curve, members: Sequence[Curve]) -> str:
    """Return the title of a curve, with the part of its variant that tells it from others of the same title."""
    several = len({c.variant for c in members if c.title == curve.title}) > 1
    parts = [part for part in (curve.variant or "").split(",") if part not in CHOICES]
    return f"{curve.title} {parts[-1]}" if several and parts else curve.title


def _cells(curve: Curve, layers: Sequence[int]) -> list[show.Cell]:
    """Return a curve's cell at each layer, and the one after the final norm."""
    cells = [show.EMPTY] * (len(layers) + 1)
    for i, layer in enumerate(layers):
        if layer in curve.layers:
            cells[i] = cell(curve, *curve.at(layer), marked=layer == curve.stands_out)
    if curve.final is not None:
        cells[-1] = cell(curve, *curve.last())
    return cells


def cell(curve: Curve, value: float, stderr: float, marked: bool = False) -> show.Cell:
    """Return a point of a curve as a cell: shares in percent, similarities with three decimals."""
    has_value = math.isfinite(value)
    if curve.unit == "%" and has_value:
        detail = f"±{100 * stderr:.1f} %" if stderr >= NIL else "%"
        return show.Cell(f"{100 * value:.1f}", detail, value, marked)
    if curve.group == "similarity" and has_value:
        # + 0.0: no minus before nothing
        return show.Cell(f"{round(value, 3) + 0.0:.3f}", error(stderr), value, marked)
    return show.Cell(number(value), error(stderr) if has_value else "", value, marked)


def _legend(members: Sequence[Curve], run: "Run") -> Iterator[str]:
    """Yield what was counted and marked, and where it was taken."""
    marked = (
        f" {show.MARK} {_marked(members)}."
        if any(c.stands_out is not None for c in members)
        else ""
    )
    yield f"N: {_counted(members, run)}.{marked}"
    group = members[0].group
    if group == "similarity" and any(not np.isfinite(c.values).all() for c in members):
        yield "– where samples are too few for a measure, or a layer does not vary."
    if group == "decisions" and run.final == "normed":
        yield f"Every layer is read after the final norm; layer {run.depth} is the model as it is."


def _marked(members: Sequence[Curve]) -> str:
    """Say which layers of a group are marked."""
    low = list(dict.fromkeys(c.title for c in members if about(c.metric).low))
    if members[0].group == "similarity":
        below = f" ({', '.join(low)}: below {1 - curves.SIMILAR:.1f})" if low else ""
        return f"the layer from which the value stays above {curves.SIMILAR}{below}"
    rest = any(not about(c.metric).low for c in members)
    ends = (
        f"the highest ({', '.join(low)}: the lowest)"
        if low and rest
        else "the lowest"
        if low
        else "the highest"
    )
    settled = "; saturated: the layer from which it stays above half"
    return f"{ends} of layers 1 and up" + (
        settled if any(c.metric == "saturated" for c in members) else ""
    )


def _counted(members: Sequence[Curve], run: "Run") -> str:
    """Say how many samples (of a language model's lens: tokens) each metric is about, and how many it skips."""
    groups: dict[str, dict[str, None]] = {}
    for c in members:
        lens = about(c.metric).needs == "lens"
        unit = "tokens" if lens and run.info["model"].get("language_model") else "samples"
        if c.n_least < c.n:
            text = f"{c.n_least:,} to {c.n:,} {unit} by layer, the others skipped"
        else:
            text = f"{c.n:,} {unit}, " + (
                f"{c.n_skipped:,} skipped" if c.n_skipped else "none skipped"
            )
        groups.setdefault(text, {})[c.title] = None
    if len(groups) == 1:
        return next(iter(groups))
    return "; ".join(f"{text} ({', '.join(titles)})" for text, titles in groups.items())
