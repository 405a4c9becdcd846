"""A choice of a layer as a document: the answer in one line, why, every alternative, and the command that ships it."""

import shlex
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from layerscope.core.extras import lacking
from layerscope.core.margin import tied
from layerscope.scores.naming import Unit
from layerscope.show import Cell, Column, Document, Facts, Section, Table, columns, row

if TYPE_CHECKING:
    from layerscope.selection.selection import Apart, Candidate, Selection

LEAD = "What every layer scores and costs, and which one was chosen."


def document(selection: "Selection") -> Document:
    """Return a choice as it is shown."""
    command, reason = ship(selection)
    last = selection.layers[-1]
    tables = list[Table]()
    if last.score is not None or last.parameters is not None:
        tables.append(_layers(selection))
    reasons = []
    if not selection.lacking:
        reasons.append(f"{selection.rule}: {selection.why}")
        if selection.scored_on:
            reasons.append(judged_on(selection))
    if line := offer(selection):
        reasons.append(line)
    pooling = selection.pooling and f"{selection.pooling} pooling"
    facts = selection.site, pooling, selection.scored_on
    details = [("rule", selection.rule)]
    if selection.measured:
        details.append(("costs", selection.measured))
    if command:
        details.append(("write this model", command))
    return Document(
        answer(selection),
        title=(selection.model,),
        facts=tuple(filter(None, facts)),
        reasons=tuple(reasons),
        parts=tuple(tables),
        notes=tuple(filter(None, (*selection.notes, reason))),
        commands=tuple(filter(None, (command,))),
        sections=(Section("selection", "Layers to choose from", LEAD, tuple(tables)),),
        details=(Facts(tuple(details)),),
        warnings=selection.notes,
        kind="selections",
        depth=selection.depth,
    )


def answer(selection: "Selection") -> str:
    """Return the answer in one line: layer, score, how much it rests on, difference to the baseline, size and speed."""
    if selection.lacking:
        return f"no layer is recommended: {selection.lacking}"
    chosen = selection.chosen
    facts = [selection.what]
    if selection.as_shipped and selection.within:
        candidates = {candidate.layer for candidate in selection.layers} - {0}
        facts = [tied(sorted(candidates), selection.within, selection.baseline_name)]
    if chosen.score is not None:
        facts += _scored(selection)
    elif not selection.as_shipped:
        facts.append("its score is unknown: there are no labels and no tasks")
    if chosen.parameters is not None:
        facts += [f"{chosen.parameters:,} parameters", f"{chosen.megabytes:,.1f} MB"]
        facts += [
            f"{_milliseconds(chosen)} ms per sample",
            f"{chosen.speedup:.2f}× as fast",
        ]
    return " · ".join(facts)


def _scored(selection: "Selection") -> Iterator[str]:
    """Yield the score of the choice and the gain to expect, from data that had no part in it where there are any."""
    chosen = selection.chosen
    first = selection.layers[0]
    unit = _unit(selection)
    score = unit.text(chosen.score or 0.0, chosen.stderr)
    if selection.basis:
        score += f" ({selection.basis})"
    yield score
    if not selection.as_shipped:
        expected = " expected" if selection.apart is not None else ""
        gain = _gain(selection)
        yield f"{gain}{expected} against {selection.baseline_name}"
    if first.layer == 0 and (first.score or 0) > (chosen.score or 0):
        shown = unit.text(first.score or 0.0, first.stderr)
        yield f"layer 0 has {shown} and is not a candidate: it is before the first block"


def judged_on(selection: "Selection") -> str:
    """Return what chose the layer and what judged it, in a sentence."""
    apart = selection.apart
    if selection.mix:
        return "the mix was learned inside the folds; its weights below are those learned on all samples"
    if selection.as_shipped:
        return "its score comes from the same data that the layers were compared on"
    if apart is None:
        return "the same data chose the layer and judged it: expect a little less on new data"
    luck = ""
    if selection.gain != apart.difference:
        luck = f" ({_difference(apart, selection)}, less what luck adds to a gain that is chosen)"
    return (
        f"expected of such a choice, {_gain(selection)}: each of {apart.blocks} {apart.unit}s is judged "
        f"at the layer that the others choose{luck}; layer {selection.layer} itself has "
        f"{_difference(selection.chosen, selection)} on the data that chose it"
    )


def offer(selection: "Selection") -> str:
    """Return the shallowest layer that does not differ measurably and how to take it; empty where there is none."""
    shallower = [layer for layer in selection.within if layer < selection.layer]
    if not shallower or selection.mix:
        return ""
    offered = replace(selection, layer=shallower[0], as_shipped=False)
    layer = offered.chosen
    facts = [f"layer {layer.layer}, the shallowest within the margin"]
    facts.append(f"{_difference(layer, selection)} against {selection.baseline_name}")
    if layer.speedup is not None:
        facts.append(f"{layer.speedup:.2f}× as fast")
    command, _ = ship(offered)
    return ": ".join(filter(None, ("on offer", " · ".join(facts), command)))


def ship(selection: "Selection") -> tuple[str, str]:
    """Return the command that writes the chosen model, or an empty text and why there is none."""
    reason = ""
    if selection.lacking or selection.as_shipped:
        reason = f"{selection.baseline_name} is the choice"
    elif selection.source == "":
        reason = "the run was made without a model that a command can open"
    elif selection.raw_only:
        reason = (
            "no model gives states before its final norm; choose by `site='normed'`"
        )
    if reason:
        return "", f"nothing to truncate: {reason}"
    how = []
    mixes_normed = selection.mix and "normed" in selection.sites
    is_pooled = selection.pooled and not mixes_normed
    if is_pooled and lacking("sentence-transformers") is None:
        how = ["--format", "sentence-transformers", "--pooling", str(selection.pooling)]
    what = ["--layer", str(selection.layer)]
    if selection.mix:
        what = ["--mix", selection.weights]
    if selection.part:
        what += ["--part", selection.part]
    source = selection.source or selection.model
    name = f"{selection.model.split('/')[-1]}-layer{selection.layer}"
    words = ["layerscope", "truncate", source, *what, *how, "--out", name]
    return shlex.join(words), ""


def _layers(selection: "Selection") -> Table:
    """Return a row for each layer, the mix where one was chosen, and the baseline."""
    baseline = selection.baseline
    unit = _unit(selection)
    scored = baseline.score is not None
    cost = baseline.parameters is not None
    rows = []
    mixed = filter(None, (selection.mixed,))
    for candidate in (*selection.layers, *mixed, baseline):
        is_chosen = candidate is selection.chosen
        name = str(candidate.layer)
        layer = candidate.layer
        if candidate is baseline:
            name = "baseline"
            layer = selection.depth + 1
        elif candidate is selection.mixed:
            name = selection.mix
        cells = [Cell(name, value=layer, marked=is_chosen)]
        if scored:
            cells += [
                unit.cell(candidate.score, candidate.stderr),
                unit.cell(candidate.difference, candidate.difference_error, sign=True),
            ]
        if cost:
            cells += _costs(candidate)
        rows.append(row(*cells, marked=is_chosen))
    titles = [Column("layer")]
    if scored:
        titles += columns((f"score{' (%)' * selection.share}", "difference"), "decimal")
    if cost:
        titles += columns(("weights", "MB", "ms", "faster"))
    legend = [
        f"± one standard error; difference from the baseline, {selection.baseline_name}."
    ]
    if selection.measured is not None:
        legend.append(f"ms: per sample, {selection.measured}.")
    return Table(
        "Every layer", tuple(titles), tuple(rows), tuple(legend), name="layers"
    )


def _costs(candidate: "Candidate") -> list[Cell]:
    """Return the cells of what a depth costs."""
    if candidate.parameters is None:
        return [Cell("–")] * 4
    return [
        Cell(f"{candidate.parameters:,}", value=candidate.parameters),
        Cell(f"{candidate.megabytes:,.1f}", value=candidate.megabytes),
        Cell(_milliseconds(candidate), value=candidate.milliseconds),
        Cell(f"{candidate.speedup:.2f}×", value=candidate.speedup),
    ]


def _milliseconds(candidate: "Candidate") -> str:
    """Return the time of a sample with its standard error, where that is known."""
    text = f"{candidate.milliseconds:.2f}"
    if candidate.milliseconds_error is not None:
        text += f" ±{candidate.milliseconds_error:.2f}"
    return text


def _unit(selection: "Selection") -> Unit:
    """Return how scores are written: in percent, or as they are."""
    return Unit(selection.share, 1 if selection.share else 2)


def _gain(selection: "Selection") -> str:
    """Return the gain to expect, with its standard error."""
    unit = _unit(selection)
    return unit.difference(selection.gain or 0.0, selection.gain_error)


def _difference(judged: "Candidate | Apart", selection: "Selection") -> str:
    """Return a difference with its standard error."""
    unit = _unit(selection)
    return unit.difference(judged.difference or 0.0, judged.difference_error)
