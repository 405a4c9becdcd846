"""A choice of a layer as a document: the answer in one line, why, every alternative, and the command that ships it."""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterator
from typing import TYPE_CHECKING

from layerscope.scores.rules import Rule
from layerscope.show.document import EMPTY, Cell, Column, Document, Row, Table, columns, row

if TYPE_CHECKING:
    from layerscope.selection.selection import Candidate, Selection

MOST_REFUSED = 6


def document(selection: Selection) -> Document:
    """Return a choice as it is shown."""
    command, reason = ship(selection)
    return Document(
        answer(selection),
        reasons=tuple(_reasons(selection)),
        parts=tuple(_tables(selection)),
        notes=(*selection.notes, *([reason] if reason else [])),
        commands=(command,) if command else (),
    )


def answer(selection: Selection) -> str:
    """Return the answer in one line: layer, score, how much it rests on, difference to the baseline, size and speed."""
    if selection.lacking:
        return f"no layer is recommended: {selection.lacking}"
    chosen = selection.chosen
    facts = [selection.baseline_name if selection.as_shipped else f"layer {selection.layer} of {selection.depth}"]
    if chosen.score is not None:
        facts += _scored(selection)
    elif not selection.as_shipped:
        facts.append("its score is not known: there are no labels and no tasks")
    if chosen.parameters is not None:
        facts += [f"{chosen.parameters:,} parameters", f"{chosen.megabytes:,.1f} MB"]
        facts += [f"{chosen.milliseconds:.2f} ms per sample", f"{chosen.speedup:.2f}× as fast"]
    return " · ".join(facts)


def _scored(selection: Selection) -> Iterator[str]:
    """Yield score and difference of the choice, on data that had no part in it where there is any."""
    chosen, apart, first = selection.chosen, selection.apart, selection.layers[0]
    score = _score(chosen.score, chosen.stderr, selection.share)
    difference = _difference(chosen.difference, chosen.difference_error, selection.share)
    if apart is not None and (apart.unit == "sample" or not selection.as_shipped):
        score = _score(apart.score, apart.stderr, selection.share)
        difference = _difference(apart.difference, apart.difference_error, selection.share)
    yield f"{_joined(score)}{f' ({selection.basis})' if selection.basis else ''}"
    if not selection.as_shipped:
        yield f"{_joined(difference)} against {selection.baseline_name}"
    if first.layer == 0 != selection.layer and (first.score or 0) > (chosen.score or 0):
        shown = _joined(_score(first.score, first.stderr, selection.share))
        yield f"layer 0 has {shown} and is no candidate: it is before the first block"


def _reasons(selection: Selection) -> Iterator[str]:
    if not selection.lacking:
        yield f"{selection.rule}: {selection.why}"
        if selection.scored_on:
            yield judged_on(selection)
    if selection.evidence is not None:
        yield from record(selection.evidence, forced=selection.forced)


def judged_on(selection: Selection) -> str:
    """Return what chose the layer and what judged it, in a sentence."""
    apart = selection.apart
    if apart is not None and apart.unit == "sample":
        n = sum(n for _, n in apart.layers)
        return f"the score above is of {n:,} samples held out, which neither chose the layer nor trained a probe"
    if selection.as_shipped:
        return "its score comes from the same data that the layers were compared on"
    if apart is None:
        return "the same data chose the layer and judged it: expect a little less on new data"
    blocks = sum(n for _, n in apart.layers)
    led = ", ".join(
        f"{selection.baseline_name if layer is None else f'layer {layer}'} in {n}" for layer, n in apart.layers
    )
    how = (
        f"chosen on all {blocks} {apart.unit}s; the score above judges each {apart.unit} at the layer the others choose"
    )
    return f"{how} ({led})"


def ship(selection: Selection) -> tuple[str, str]:
    """Return the command that writes the chosen model, or an empty text and why there is none."""
    if selection.lacking:
        return "", "nothing to truncate: too little was judged to choose by"
    if selection.as_shipped:
        return "", f"nothing to truncate: {selection.baseline_name} is the choice"
    if selection.layer == 0:
        return "", "nothing to truncate: layer 0 is what the first block reads, and no model ends there"
    source, name = selection.source or selection.model, f"{selection.model.split('/')[-1]}-layer{selection.layer}"
    how = ["--site", "raw", "--format", "onnx"] if selection.raw_only else []
    if selection.pooled and not selection.raw_only:
        how = ["--format", "sentence-transformers", "--pooling", str(selection.pooling)]
    return shlex.join(["layerscope", "truncate", source, "--layer", str(selection.layer), *how, "--out", name]), ""


def record(rule: Rule, forced: bool = False) -> list[str]:
    """Return how a rule without labels did on models held out, in lines."""
    if not rule.choices:
        return ["it was never tried on a model held out: it is followed because you named it"]
    tried, models = len(rule.choices), len({choice.model for choice in rule.choices})
    wrong = f", by {_points(rule.worst_gain)} at worst" if rule.failures else ""
    lines = [
        f"in {tried} choices on {models} model{'s' * (models > 1)} held out it gained {_points(rule.mean_gain)} over "
        f"the last layer on average (a layer at random: {_points(rule.chance_gain)}, a fixed share of depth: "
        f"{_points(rule.fixed_gain)}) and fell behind it "
        f"{rule.failures} of {tried} times{wrong}"
    ]
    for choice in rule.choices:
        most = _points(choice.best - choice.last)
        lines.append(
            f"  {choice.model} {choice.revision}: layer {choice.layer}, {_points(choice.gain)}; the best {most}"
        )
    lines += [f"  {rule.source}"] if rule.source else []
    return [*lines, "it is followed because you named it"] if forced else lines


def _tables(selection: Selection) -> Iterator[Table]:
    if selection.refused:
        yield _refused(selection)
    if any(known is not None for c in selection.layers for known in (c.score, c.value, c.parameters)):
        yield _layers(selection)
    if selection.by_task:
        yield _tasks(selection)


def _refused(selection: Selection) -> Table:
    rows = []
    for entry in selection.refused[:MOST_REFUSED]:
        rule = entry.rule
        gains = [Cell(_points(gain), value=gain) for gain in (rule.mean_gain, rule.chance_gain, rule.fixed_gain)]
        rows.append(row(rule.name, *gains, f"{rule.failures} of {len(rule.choices)}", entry.reason))
    titles = [Column("rule", "left", wraps=True), *columns(("gain", "at random", "fixed", "failed"))]
    more = len(selection.refused) - len(rows)
    return Table(
        "Rules that were not followed",
        (*titles, Column("why", "left", wraps=True)),
        tuple(rows),
        (f"and {more} more (--json names them)",) if more else (),
    )


def _layers(selection: Selection) -> Table:
    baseline = selection.baseline
    scored, cost = baseline.score is not None, baseline.parameters is not None
    valued = any(c.value is not None for c in (*selection.layers, baseline))
    titles = [*columns(("layer",)), *(columns(("score", "difference"), "decimal") if scored else ())]
    titles += columns((*(["value"] if valued else []), *(["weights", "MB", "ms", "faster"] if cost else [])))
    rows = []
    for candidate in (*selection.layers, baseline):
        shipped = candidate is baseline
        cells = [Cell("baseline") if shipped else Cell(str(candidate.layer), value=candidate.layer)]
        if scored:
            cells += _scores(candidate, selection.share, shipped)
        if valued:
            cells.append(EMPTY if candidate.value is None else Cell(f"{candidate.value:.4g}", value=candidate.value))
        cells += _costs(candidate) if cost else []
        chosen = shipped == selection.as_shipped and candidate.layer == selection.layer
        marks = Cell(_marks(candidate, shipped, selection), marked=chosen)
        rows.append(Row((*cells, marks), marked=chosen))
    where = ", ".join(filter(None, (selection.site, selection.pooling and f"{selection.pooling} pooling")))
    title = " · ".join(filter(None, (f"{selection.model} by layer", where, selection.scored_on)))
    return Table(title, (*titles, Column("", "left")), tuple(rows), (_legend(selection),))


def _scores(candidate: Candidate, share: bool, shipped: bool) -> list[Cell]:
    score, error = _score(candidate.score, candidate.stderr, share)
    difference, apart = _difference(candidate.difference, candidate.difference_error, share)
    return [
        Cell(score, error, value=candidate.score),
        EMPTY if shipped else Cell(difference, apart, value=candidate.difference),
    ]


def _marks(candidate: Candidate, shipped: bool, selection: Selection) -> str:
    """Return what a row is, best being the highest score of all that could be chosen."""
    marks = []
    best = next((other for other in selection.layers if other.layer == selection.best), None)
    over = best is not None and (selection.baseline.score or 0) > (best.score or 0)
    if best is not None and (shipped if over else candidate is best):
        marks.append("best")
    if not shipped and best is not None and candidate.layer == 0 != best.layer:
        marks += ["no candidate"] if (candidate.score or 0) > (best.score or 0) else []
    if not shipped and candidate.layer == selection.depth:
        marks.append("last")
    return ", ".join(marks)


def _tasks(selection: Selection) -> Table:
    """Return what each task alone would choose."""
    rows = []
    for task in selection.by_task:
        score, _ = _score(task.score, None, selection.share)
        difference, error = _difference(task.difference, task.difference_error, selection.share)
        apart = EMPTY if task.as_shipped else Cell(difference, error, value=task.difference)
        layer = Cell("baseline" if task.as_shipped else str(task.layer))
        rows.append(row(task.task, layer, Cell(score, value=task.score), apart))
    titles = [Column("task", "left"), Column("layer"), *columns(("score", "difference"), "decimal")]
    return Table("What each task alone would choose", tuple(titles), tuple(rows))


def _costs(candidate: Candidate) -> list[Cell]:
    if candidate.parameters is None:
        return [Cell("–")] * 4
    millions = candidate.parameters >= 1e6
    weights = f"{candidate.parameters / 1e6:,.1f} M" if millions else f"{candidate.parameters:,}"
    return [
        Cell(weights, value=candidate.parameters), Cell(f"{candidate.megabytes:,.1f}", value=candidate.megabytes),
        Cell(f"{candidate.milliseconds:.2f}", value=candidate.milliseconds),
        Cell(f"{candidate.speedup:.2f}×", value=candidate.speedup),
    ]  # fmt: skip


def _legend(selection: Selection) -> str:
    sentences = []
    if selection.baseline.score is not None:
        unit = "percent" if selection.share else "the scores' own units"
        sentences.append(
            f"Scores in {unit}, ± one standard error where it is known; difference from {selection.baseline_name}."
        )
    if any(c.value is not None for c in selection.layers):
        sentences.append("Value: what the rule reads.")
    if selection.measured is not None:
        sentences.append(f"ms: per sample, {selection.measured}.")
    sentences.append(
        f"Baseline: {selection.baseline_name}. Layer 0 is what the first block reads; it is a candidate only if you "
        "say so."
    )
    return " ".join(sentences)


def _score(score: float | None, stderr: float | None, share: bool) -> tuple[str, str]:
    """Return a score and its standard error as they are shown."""
    if score is None:
        return "–", ""
    return f"{_number(score, share)}{' %' if share else ''}", "" if stderr is None else f"±{_number(stderr, share)}"


def _difference(difference: float | None, stderr: float | None, share: bool) -> tuple[str, str]:
    if difference is None:
        return "–", ""
    sign = "−" if difference < 0 else "+"
    return f"{sign}{_number(abs(difference), share)}", "" if stderr is None else f"±{_number(stderr, share)}"


def _joined(parts: tuple[str, str]) -> str:
    return " ".join(filter(None, parts))


def _number(value: float, share: bool) -> str:
    return f"{value * 100:.1f}" if share else f"{value:.2f}"


def _points(value: float) -> str:
    """Return a gain of a rule's record, whose units are those of its own scores; shares in percent."""
    if not math.isfinite(value):
        return "–"
    sign = "−" if value < 0 else "+"
    return f"{sign}{abs(value) * 100:.1f}" if abs(value) <= 1 else f"{sign}{abs(value):.2f}"
