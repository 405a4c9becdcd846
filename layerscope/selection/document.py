"""A choice of a layer as a document: the answer in one line, why, every alternative, and the command that ships it."""

import shlex
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from layerscope.core.extras import lacking
from layerscope.core.margin import tied
from layerscope.scores.naming import Unit
from layerscope.show.document import (
    EMPTY,
    Cell,
    Code,
    Column,
    Document,
    Facts,
    Row,
    Section,
    Table,
    columns,
    row,
    words,
)

if TYPE_CHECKING:
    from layerscope.selection.selection import Apart, Candidate, OfTask, Selection

LEAD = "What every layer scores and costs, and which one was chosen."


def document(selection: "Selection") -> Document:
    """Return a choice as it is shown."""
    command, reason = ship(selection)
    tables = tuple(_tables(selection))
    reasons = [] if selection.lacking else [f"{selection.rule}: {selection.why}"]
    if selection.scored_on and not selection.lacking:
        reasons.append(judged_on(selection))
    reasons += [line for line in (offer(selection),) if line]
    about = (
        selection.site,
        selection.pooling and f"{selection.pooling} pooling",
        selection.scored_on,
    )
    names = ("rule", "site", "pooling", "scores", "costs")
    facts = zip(names, (selection.rule, *about, selection.measured), strict=True)
    return Document(
        answer(selection),
        title=(selection.model,),
        facts=tuple(filter(None, about)),
        reasons=tuple(reasons),
        parts=tables,
        lead=tables[:1],
        notes=(*selection.notes, *([reason] if reason else [])),
        commands=(command,) if command else (),
        sections=(Section("selection", "Layers to choose from", LEAD, tables),),
        details=(
            Facts(tuple((name, fact or "–") for name, fact in facts)),
            *([Code("Write this model", command)] if command else []),
        ),
        warnings=selection.notes,
        kind="selections",
        depth=selection.depth,
    )


def answer(selection: "Selection") -> str:
    """Return the answer in one line: layer, score, how much it rests on, difference to the baseline, size and speed."""
    if selection.lacking:
        return f"no layer is recommended: {selection.lacking}"
    chosen = selection.chosen
    facts = [_named(selection)]
    if chosen.score is not None:
        facts += _scored(selection)
    elif not selection.as_shipped:
        facts.append("its score is unknown: there are no labels and no tasks")
    if chosen.parameters is not None:
        facts += [f"{chosen.parameters:,} parameters", f"{chosen.megabytes:,.1f} MB"]
        facts += [f"{_milliseconds(chosen)} ms per sample", f"{chosen.speedup:.2f}× as fast"]
    return " · ".join(facts)


def _named(selection: "Selection") -> str:
    """Return what was chosen; where no layer differs measurably, that and which ones do not."""
    if not (selection.as_shipped and selection.within):
        return selection.what
    candidates = [candidate.layer for candidate in selection.layers if candidate.layer > 0]
    return tied(candidates, selection.within, selection.baseline_name)


def _scored(selection: "Selection") -> Iterator[str]:
    """Yield the score of the choice and the gain to expect, from data that had no part in it where there are any."""
    chosen, apart, first = selection.chosen, selection.apart, selection.layers[0]
    held = apart if apart is not None and apart.unit == "sample" else chosen
    score = _joined(_judged(held, selection.share)[0])
    yield f"{score}{f' ({selection.basis})' if selection.basis else ''}"
    if not selection.as_shipped:
        difference = _joined(_judged(apart or chosen, selection.share)[1])
        is_expected = apart is not None and apart is not held
        yield f"{difference}{' expected' if is_expected else ''} against {selection.baseline_name}"
    if first.layer == 0 != selection.layer and (first.score or 0) > (chosen.score or 0):
        shown = _joined(_judged(first, selection.share)[0])
        yield f"layer 0 has {shown} and is not a candidate: it is before the first block"


def judged_on(selection: "Selection") -> str:
    """Return what chose the layer and what judged it, in a sentence."""
    apart = selection.apart
    if selection.mix:
        return "the mix was learned inside the folds; its weights below are those learned on all samples"
    if apart is not None and apart.unit == "sample":
        n = sum(n for _, n in apart.layers)
        return f"the score above is from {n:,} held-out samples, which neither chose the layer nor trained a probe"
    if selection.as_shipped:
        return "its score comes from the same data that the layers were compared on"
    if apart is None:
        return "the same data chose the layer and judged it: expect a little less on new data"
    blocks = sum(n for _, n in apart.layers)
    led = ", ".join(
        f"{selection.baseline_name if layer is None else f'layer {layer}'} in {n}"
        for layer, n in apart.layers
    )
    expected = _joined(_judged(apart, selection.share)[1])
    on_itself = _joined(_judged(selection.chosen, selection.share)[1])
    return (
        f"expected of such a choice, {expected}: each of {blocks} {apart.unit}s is judged at the layer that the others "
        f"choose ({led}); layer {selection.layer} itself has {on_itself} on the data that chose it"
    )


def offer(selection: "Selection") -> str:
    """Return the shallowest layer that does not differ measurably and how to take it; empty where there is none."""
    shallower = [layer for layer in selection.within if layer < selection.layer]
    if not shallower or selection.mix:
        return ""
    layer = next(candidate for candidate in selection.layers if candidate.layer == shallower[0])
    facts = [f"layer {layer.layer}, the shallowest within the margin"]
    facts.append(f"{_joined(_judged(layer, selection.share)[1])} against {selection.baseline_name}")
    facts += [f"{layer.speedup:.2f}× as fast"] if layer.speedup is not None else []
    command = ship(replace(selection, layer=layer.layer, as_shipped=False))[0]
    return f"on offer: {' · '.join(facts)}" + (f": {command}" if command else "")


def ship(selection: "Selection") -> tuple[str, str]:
    """Return the command that writes the chosen model, or an empty text and why there is none."""
    if selection.lacking:
        return "", "nothing to truncate: too little was judged to choose by"
    if selection.as_shipped:
        return "", f"nothing to truncate: {selection.baseline_name} is the choice"
    if selection.layer == 0:
        return (
            "",
            "nothing to truncate: layer 0 is what the first block reads, and no model ends there",
        )
    if selection.source == "":
        return "", "nothing to truncate: the run was made without a model that a command can open"
    source, name = (
        selection.source or selection.model,
        f"{selection.model.split('/')[-1]}-layer{selection.layer}",
    )
    how = ["--site", "raw", "--format", "onnx"] if selection.raw_only else []
    mixes_normed = selection.mix and "normed" in selection.sites
    is_pooled = selection.pooled and not selection.raw_only and not mixes_normed
    if is_pooled and lacking("sentence-transformers") is None:
        how = ["--format", "sentence-transformers", "--pooling", str(selection.pooling)]
    what = ["--mix", selection.weights] if selection.mix else ["--layer", str(selection.layer)]
    what += ["--part", selection.part] if selection.part else []
    return shlex.join(["layerscope", "truncate", source, *what, *how, "--out", name]), ""


def _tables(selection: "Selection") -> Iterator[Table]:
    if any(known is not None for c in selection.layers for known in (c.score, c.parameters)):
        yield _layers(selection)
    if selection.by_task:
        rows = []
        for task in selection.by_task:
            score, difference = _judged(task, selection.share)
            layer = words("baseline" if task.as_shipped else str(task.layer))
            rows.append(row(task.task, layer, score, EMPTY if task.as_shipped else difference))
        titles = (
            Column("task", "left"),
            Column("layer"),
            *columns(("score", "difference"), "decimal"),
        )
        yield Table("What each task alone would choose", titles, tuple(rows), name="alone")


def _layers(selection: "Selection") -> Table:
    baseline = selection.baseline
    scored, cost = baseline.score is not None, baseline.parameters is not None
    titles = [
        *columns(("layer",)),
        *(columns(("score", "difference"), "decimal") if scored else ()),
    ]
    titles += columns(["weights", "MB", "ms", "faster"] if cost else [])
    rows = []
    for candidate in (*selection.layers, *([selection.mixed] if selection.mixed else []), baseline):
        shipped, name = candidate is baseline, str(candidate.layer)
        name = selection.mix if candidate is selection.mixed else "baseline" if shipped else name
        cells = [Cell(name, value=None if shipped else candidate.layer)]
        if scored:
            score, difference = _judged(candidate, selection.share)
            cells += [score, EMPTY if shipped else difference]
        cells += _costs(candidate) if cost else []
        marks = replace(
            words(_marks(candidate, shipped, selection)), marked=candidate is selection.chosen
        )
        rows.append(Row((*cells, marks), marked=marks.marked))
    titles.append(Column("", "left"))
    return Table("Every layer", tuple(titles), tuple(rows), (_legend(selection),), name="layers")


def _marks(candidate: "Candidate", shipped: bool, selection: "Selection") -> str:
    """Return what a row is, best being the highest score of all that could be chosen."""
    marks = []
    best = next((other for other in selection.layers if other.layer == selection.best), None)
    over = best is not None and (selection.baseline.score or 0) > (best.score or 0)
    if best is not None and (shipped if over else candidate is best):
        marks.append("best")
    if not shipped and best is not None and candidate.layer == 0 != best.layer:
        marks += ["no candidate"] if (candidate.score or 0) > (best.score or 0) else []
    if not shipped and candidate in selection.layers and candidate.layer == selection.depth:
        marks.append("last")
    return ", ".join(marks)


def _costs(candidate: "Candidate") -> list[Cell]:
    if candidate.parameters is None:
        return [Cell("–")] * 4
    millions = candidate.parameters >= 1e6
    weights = f"{candidate.parameters / 1e6:,.1f} M" if millions else f"{candidate.parameters:,}"
    return [
        Cell(weights, value=candidate.parameters),
        Cell(f"{candidate.megabytes:,.1f}", value=candidate.megabytes),
        Cell(_milliseconds(candidate), value=candidate.milliseconds),
        Cell(f"{candidate.speedup:.2f}×", value=candidate.speedup),
    ]


def _milliseconds(candidate: "Candidate") -> str:
    """Return the time of a sample with its standard error, where that is known."""
    error = candidate.milliseconds_error
    return f"{candidate.milliseconds:.2f}" + ("" if error is None else f" ±{error:.2f}")


def _legend(selection: "Selection") -> str:
    sentences = []
    if selection.baseline.score is not None:
        unit = "percent" if selection.share else "the scores' own units"
        sentences.append(
            f"Scores in {unit}, ± one standard error where it is known; difference from {selection.baseline_name}."
        )
    if selection.measured is not None:
        sentences.append(f"ms: per sample, {selection.measured}.")
    sentences.append(
        f"Baseline: {selection.baseline_name}. Layer 0 is what the first block reads: not a candidate unless the "
        f"first layer to consider is 0."
    )
    return " ".join(sentences)


def _judged(found: "Candidate | Apart | OfTask", share: bool) -> tuple[Cell, Cell]:
    """Return a score and the difference to the baseline, with the standard errors that are known."""
    unit = Unit(share, 1 if share else 2)
    score = unit.cell(found.score, getattr(found, "stderr", None))
    score = replace(score, text=score.text + " %" * (share and found.score is not None))
    return score, unit.cell(found.difference, found.difference_error, sign=True)


def _joined(cell: Cell) -> str:
    return f"{cell.text} {cell.detail}".strip()
