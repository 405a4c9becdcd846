"""A run as a document: the answer, what stands out, and tables of layers by metrics."""

import math
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import groupby
from typing import TYPE_CHECKING, Any

import numpy as np

from layerscope.core.errors import count, spans
from layerscope.core.saved import jsonable
from layerscope.runs import curves
from layerscope.runs.curves import KINDS, Curve, Group, value_text
from layerscope.runs.details import details, unfinished
from layerscope.runs.findings import answer, findings
from layerscope.runs.plots import SECTIONS, sections
from layerscope.runs.probed import drawn_from
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
    known = curves.curves(run)
    found = findings(run, known)
    groups = [(group, [c for c in known if c.group == group]) for group in TITLES]
    by_group = [tuple(_tables(group, members, run)) for group, members in groups]
    tables = [table for group in by_group for table in group]
    are_named = not set(run.info["options"]["metrics"]).issuperset(DEFAULT)
    parts: list[show.Part] = [
        show.Sentences("What stands out", tuple(finding.text for finding in found)),
        *tables,
    ]
    inside = tuple(
        _inside(panel, run) for panel in list(curves.panels(curves.inside(run)).values())[:1]
    )
    parts += inside
    readings = {}
    for curve in known:
        variant = (curve.variant or "").partition(",prefix=")[0].replace(",", ", ")
        name = f"{curve.title} ({variant})" if variant else curve.title
        readings[name] = about(curve.metric).reading + (
            ", spark line logarithmic" if curve.log else ""
        )
    if any(c.stands_out is not None for c in known if c.group == "quality"):
        readings[show.MARK] = UNJUDGED
    parts += [show.Facts(tuple(readings.items()), "How to read the metrics")] if known else []
    model, data = run.info["model"], run.info["data"]
    path, named = (
        str(run.path),
        any(finding.numbers.get("layer") for finding in found if finding.name == "best_layer"),
    )
    return show.Document(
        answer(run, known, found),
        title=(str(model["name"]), str(data["name"])),
        facts=(
            *size(run),
            samples(run),
            *([f"{', '.join(run.info['pooling'])} pooling"] if not run.is_history else []),
        ),
        parts=tuple(parts),
        lead=(*(tables if are_named else next(filter(None, by_group), ())), *inside),
        notes=(ERROR,) if any(np.isfinite(c.stderr).any() for c in known) else (),
        commands=tuple(
            shlex.join(["layerscope", verb, path])
            for verb in ([*(["select"] if named else []), "report"])
        ),
        sections=(*sections(run, known), *every_number(run, known)),
        details=details(run),
        warnings=unfinished(run),
        kind="runs",
        depth=run.depth,
    )


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


def every_number(run: "Run", known: Sequence[Curve]) -> Iterator[show.Section]:
    """Yield what a page has at its end: every metric by layer in one table, and the long frame."""
    order = {needs: i for i, (kinds, _, _) in enumerate(SECTIONS.values()) for needs in kinds}
    shown = sorted(known, key=lambda c: order[about(c.metric).needs])
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


def _tables(group: Group, members: list[Curve], run: "Run") -> Iterator[show.Table]:
    """Yield a table for each pooling, projected states last; one that is too wide has one for each kind of metric."""
    for suffix, columns in _by_pooling(members):
        kinds = [
            (kind, [*own])
            for kind, own in groupby(columns, lambda curve: about(curve.metric).needs)
        ]
        parts = [
            _table(KINDS.get(kind, "") + ("" if kind == "tokens" else suffix), own, run)
            for kind, own in kinds
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
    after = any(c.final is not None for c in members)
    cells, columns = [], []
    for curve in members:
        several = len({c.variant for c in members if c.title == curve.title}) > 1
        parts = [part for part in (curve.variant or "").split(",") if part not in CHOICES]
        heading = f"{curve.title} {parts[-1]}" if several and parts else curve.title
        shape = tuple(curve.at(layer)[0] for layer in layers if curve.differs)
        columns.append(show.Column(heading, "decimal", shape, curve.log))
        column = [
            cell(curve, *curve.at(layer), marked=layer == curve.stands_out)
            if layer in curve.layers
            else show.EMPTY
            for layer in layers
        ]
        cells.append([*column, show.EMPTY if curve.final is None else cell(curve, *curve.last())])
    names = [*map(str, layers), *(["final"] if after else [])]
    rows = [
        show.Row((show.Cell(name), *(column[i] for column in cells)))
        for i, name in enumerate(names)
    ]
    return show.Table(
        title, (show.Column("layer"), *columns), tuple(rows), tuple(_legend(members, run)), narrow
    )


def cell(curve: Curve, value: float, stderr: float, marked: bool = False) -> show.Cell:
    """Return a point of a curve as a cell: shares in percent, similarities with three decimals."""
    known = math.isfinite(value)
    if curve.unit == "%" and known:
        detail = f"±{100 * stderr:.1f} %" if stderr >= NIL else "%"
        return show.Cell(f"{100 * value:.1f}", detail, value, marked)
    if curve.group == "similarity" and known:
        # + 0.0: no minus before nothing
        return show.Cell(f"{round(value, 3) + 0.0:.3f}", error(stderr), value, marked)
    return show.Cell(number(value), error(stderr) if known else "", value, marked)


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
