"""An evaluation as a document: the best layer, every model's summary, layers by task, metrics and rules beside them.

The answer names the best layer of one model, or says in how many of several a layer before the last
scores best. A terminal shows one table of all models, or of one model its layers by task; a page has
a member for each series of scores.
"""

import math
from collections.abc import Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any

import pandas as pd

from layerscope.core import count, jsonable
from layerscope.core.margin import differs
from layerscope.scores.grids import Grid
from layerscope.scores.naming import VARIANT
from layerscope.scores.plots import average_chart, task_map
from layerscope.scores.shifts import error_of_gain, shifts_of
from layerscope.scores.tables import (
    by_layer,
    correlation_table,
    mixes_table,
    rule_table,
    summary_table,
)
from layerscope.show.document import Document, Facts, Part, Section, Sentences, Table

if TYPE_CHECKING:
    from layerscope.scores.evaluation import Evaluation

LEAD = (
    "Averages run over the tasks that every layer has; layer 0, the embedding output, is shown and is not a candidate "
    "for the best one. A layer chosen on scores looks better on them than it is: expect less elsewhere."
)
CLEAR = 2.0
"""Standard errors that a gain must have to be called clear."""


def document(
    evaluation: "Evaluation",
    *,
    correlations: pd.DataFrame | None = None,
    rules: pd.DataFrame | None = None,
) -> Document:
    """Return the best layer, a row for each model, of one model its layers by task, then correlations and rules.

    `correlations` are those of `correlate`, `rules` those of `rules_table`.
    """
    grids = evaluation.grids()
    best = _best(grids)
    tables = [summary_table(grids)]
    findings = tuple[str, ...]()
    lead = tables
    if _one_model(grids):
        lead = [*chain.from_iterable(map(_tables, grids))]
        tables += lead
        findings = score_findings(best)
    related = []
    if correlations is not None:
        related.append(correlation_table(correlations))
    if rules is not None:
        related.append(rule_table(rules, best.unit))
    page = Document("")
    members = tuple(map(_of_grid, grids))
    if len(members) == 1:
        page = members[0]
        members = ()
    models = [str(grid.about["model"]) for grid in grids]
    tasks = [*chain.from_iterable(grid.tasks for grid in grids)]
    missing = f"{evaluation.missing:,}" if evaluation.missing else "none"
    failed = evaluation.failed.items()
    warnings = [f"{task} was not judged: {reason}" for task, reason in failed]
    return Document(
        _answer(grids),
        title=(_one_or_many(models, "model"), _one_or_many(tasks, "task")),
        facts=(
            f"{len(evaluation.scores):,} scores from {evaluation.source}",
            f"{missing} missing",
        ),
        parts=(Sentences("What stands out", findings), *tables, *related),
        lead=(*lead, *related),
        sections=page.sections,
        details=page.details,
        warnings=tuple(warnings),
        kind="scores",
        depth=page.depth,
        members=members,
    )


def _of_grid(grid: Grid) -> Document:
    """Return one series of scores as a page shows it."""
    parts: list[Part] = [task_map(grid), summary_table([grid]), *_tables(grid)]
    if len(grid.average):
        parts.insert(0, average_chart(grid))
    facts = [(key, str(grid.about[key] or "–")) for key in VARIANT[1:]]
    facts.append((f"tasks ({len(grid.tasks):,})", ", ".join(grid.tasks)))
    return Document(
        best_in_words(grid),
        title=(grid.name,),
        parts=(Sentences("", score_findings(grid)),),
        sections=(Section("scores", "Scores on tasks", LEAD, tuple(parts)),),
        details=(Facts(tuple(facts)),),
        kind="scores",
        depth=max(1, grid.depth),
    )


def _tables(grid: Grid) -> list[Table]:
    """Return the tables of one series of scores: its layers, and its mixes of layers where there are some."""
    if grid.mixes.empty:
        return [by_layer(grid)]
    return [by_layer(grid), mixes_table(grid)]


def _one_model(grids: Sequence[Grid]) -> bool:
    return len({grid.model for grid in grids}) == 1


def _one_or_many(names: list[str], noun: str) -> str:
    """Return the one name there is, or how many.

    >>> _one_or_many(["a", "a"], "model"), _one_or_many(["a", "b"], "model")
    ('a', '2 models')
    """
    distinct = set(names)
    if len(distinct) == 1:
        return names[0]
    return count(len(distinct), noun)


def as_dict(
    evaluation: "Evaluation",
    *,
    correlations: pd.DataFrame | None = None,
    rules: pd.DataFrame | None = None,
) -> dict[str, Any]:
    """Return answer, source, what is missing, summary, scores, correlations and rules as JSON can hold them."""
    entries: dict[str, Any] = jsonable(
        {
            "answer": _answer(evaluation.grids()),
            "source": evaluation.source,
            "missing": evaluation.missing,
            "failed": evaluation.failed,
            "summary": evaluation.summary(),
            "scores": evaluation.scores.drop(columns="right"),
            "correlations": [] if correlations is None else correlations,
            "rules": [] if rules is None else rules,
        }
    )
    return entries


def _best(grids: Sequence[Grid]) -> Grid:
    """Return the model, site and pooling of the highest average."""
    return max(grids, key=lambda grid: max(grid.average, default=-math.inf))


def score_findings(grid: Grid) -> tuple[str, ...]:
    """Return what mixes of layers gain, and what shifted test sets show, in sentences."""
    sentences = []
    gains = grid.gains_of_mixes
    if len(gains):
        most = gains.loc[gains["gain"].idxmax()]
        rival = "the single layer of the lowest log-loss"
        gain = grid.unit.difference(most["gain"], most["error"])
        text = f"No mix of layers is clearly better than {rival}; {most.name!r} comes nearest: {gain}."
        if most["gain"] > CLEAR * most["error"]:
            text = f"The mix of layers {most.name!r} against {rival}, both chosen on other samples: {gain}."
        sentences.append(text)
    sentences += [f"{shift}." for shift in shifts_of(grid)]
    return tuple(sentences)


def best_in_words(grid: Grid) -> str:
    """Return in one line which layer of a model, at which of several sites, scores best, and by how much."""
    average = grid.average
    best = grid.best
    unit = grid.unit
    if best is None:
        return f"{grid.name}: no layer has scores on enough tasks for an average"
    shifts = list(shifts_of(grid))
    if len(shifts) == 1:
        return shifts[0]
    tasks = grid.complete.columns
    where = ""
    others = ""
    on = f"on {tasks[0]}"
    if len(tasks) > 1:
        on = f"on the average of {len(tasks):,} tasks"
    if grid.place:
        where = f" ({grid.place})"
    score = unit.text(average[best], grid.error(best))
    if average.get(0, -math.inf) > average[best]:
        others = f"; layer 0, the embedding output, has {unit.text(average[0])} and is not a candidate"
    rival = None
    rival_score = grid.shipped
    name = "the model as shipped"
    if not math.isfinite(rival_score):
        rival = grid.depth
        name = "the last layer"
        rival_score = average.get(grid.depth, math.nan)
    gain = float(average[best] - rival_score)
    if rival == best or not math.isfinite(gain):
        return f"Layer {best} of {grid.depth}{where} scores best {on}: {score}{others}"
    error = error_of_gain(grid, best, rival)
    against = f"{unit.difference(gain, error)} against {name}"
    if gain == 0 or differs(gain, error) is False:
        lead = f"No layer is measurably better than {name}{where} {on}"
        return f"{lead}; the best one, {best}, has {score}, {against}{others}"
    return f"Layer {best} of {grid.depth}{where} scores best {on}: {score}, {against}{others}"


def _answer(grids: Sequence[Grid]) -> str:
    """Return the best layer of one model, or for how many of several one before the last is, and what it gains."""
    if _one_model(grids):
        return best_in_words(_best(grids))
    gains = {}
    for grid in grids:
        if grid.best is not None and grid.depth in grid.average:
            gains[grid.name] = grid.average[grid.best] - grid.average[grid.depth]
    gain = pd.Series(gains, dtype="float64")
    ahead = gain[gain > 0]
    if ahead.empty:
        return f"The last layer scores best on average in each of {len(gain):,} models"
    show = grids[0].unit.difference
    most = f"{show(ahead.mean())} on average, most for {ahead.idxmax()}: {show(ahead.max())}"
    return f"A layer before the last scores best on average in {len(ahead):,} of {len(gain):,} models: {most}"
