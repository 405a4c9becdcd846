"""An evaluation as a document: the best layer, every model's summary, layers by task, metrics and rules beside them."""

import math
import shlex
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from layerscope.core.margin import tied
from layerscope.core.saved import jsonable
from layerscope.scores.grids import MIN_SHARE, Grid, candidates
from layerscope.scores.metric_tables import best_rules, correlation_tables, rule_tables
from layerscope.scores.naming import FEW, VARIANT, named_layers
from layerscope.scores.pairing import Related, pairings
from layerscope.scores.plots import section
from layerscope.scores.shifts import error_of_gain, shifts_of, within_margin
from layerscope.scores.tables import by_layer, mixes_tables, summary_table
from layerscope.show.document import Document, Facts, Frame, Part, Section, Sentences

if TYPE_CHECKING:
    from layerscope.runs.run import Run
    from layerscope.scores.evaluation import Evaluation

EVERY = (
    "One row for each model, layer, site, pooling and task; "
    "a row without a layer is the model as shipped, or a mix."
)
CLEAR = 2.0
"""Standard errors that a gain must have to be called clear."""


def document(
    evaluation: "Evaluation",
    *,
    min_share: float = MIN_SHARE,
    correlations: pd.DataFrame | None = None,
    rules: pd.DataFrame | None = None,
    runs: "Sequence[Run]" = (),
) -> Document:
    """Return the best layer, a row for each model, of one model its layers by task, then correlations and rules.

    `correlations` are those of `correlate`, averaged over tasks, `rules` those of `rules_table`; a
    page shows how the metrics of `runs` of the same models go with the scores.
    """
    known = evaluation.grids(min_share)
    one, best = known[0], _best(known)
    site = " · ".join(one.sites(several=False))
    parts: list[Part] = []
    if one.one_model:
        parts.append(Sentences("What stands out", tuple(score_findings(best))))
    name = one.about["model"] if one.one_model else ""
    summary = summary_table(known, _title("Scores by layer", one, name, site))
    parts.append(summary)
    if one.one_model:
        for entry in known:
            title = _title("Layers by task", one, entry.name if len(known) > 1 else "", site)
            parts.append(by_layer(entry, title))
            parts += mixes_tables(entry, title.removeprefix("Layers by task"))
    lead = parts[2:] or [summary]
    if correlations is not None:
        related = [*correlation_tables(correlations, known)]
        parts += related
        lead += related[:1]
    if rules is not None:
        parts += rule_tables(rules, one.unit)
    missing = f"{evaluation.missing:,} missing" if evaluation.missing else "none missing"
    shown = tuple(_members(known, pairings(runs, evaluation, known)))
    alone = len(shown) == 1
    model = [] if one.one_model else ["--model", str(best.about["model"])]
    verbs = ["select", evaluation.source, *model], ["report", evaluation.source]
    commands = [
        shlex.join(["layerscope", *verb]) for verb in verbs if Path(evaluation.source).exists()
    ]
    return Document(
        _answer(known),
        title=(
            _one_or_many((str(entry.about["model"]) for entry in known), "model"),
            _one_or_many((task for entry in known for task in entry.tasks), "task"),
        ),
        facts=(f"{len(evaluation.scores):,} scores from {evaluation.source}", missing),
        reasons=() if rules is None else (best_rules(rules, one.unit),),
        parts=tuple(parts),
        lead=tuple(lead),
        commands=tuple(commands),
        sections=shown[0].sections if alone else (),
        details=shown[0].details if alone else (),
        warnings=tuple(
            f"{task} was not judged: {reason}" for task, reason in evaluation.failed.items()
        ),
        kind="scores",
        depth=shown[0].depth if alone else None,
        members=() if alone else shown,
    )


def _members(
    known: Sequence[Grid], related: Sequence[Sequence[Sequence[Related]]]
) -> Iterator[Document]:
    """Yield each series of scores as a page shows it."""
    for entry, own in zip(known, related, strict=True):
        unit = entry.unit.title
        tables = [summary_table([entry], f"Summary{unit}"), by_layer(entry, f"Layer by task{unit}")]
        tables += mixes_tables(entry, unit)
        frame = Frame("Every score", EVERY, "every-score", _rows(known, entry), ("model", "task"))
        yield Document(
            best_in_words(entry),
            title=(entry.name,),
            parts=(Sentences("", tuple(score_findings(entry))),),
            sections=(
                section(entry, known, own, tables),
                Section("every-score", "Every score", "", (frame,)),
            ),
            details=(Facts(tuple(_facts(entry))),),
            kind="scores",
            depth=max(1, entry.depth),
        )


def _rows(known: Sequence[Grid], entry: Grid) -> pd.DataFrame:
    """Return the rows of one series; those of a model as shipped belong to the model's first."""
    model, rows = ("model", "revision"), entry.rows.sort_index()
    hidden = ["right", *([] if len(entry.mixes) else ["mix", "gain", "gain_error", "weights"])]
    rows = rows.drop(columns=hidden if rows["shifted_from"].any() else [*hidden, "shifted_from"])
    first = next(
        other for other in known if all(other.about[key] == entry.about[key] for key in model)
    )
    return rows if entry is first else rows[rows["kind"] != "baseline"]


def _facts(entry: Grid) -> Iterator[tuple[str, str]]:
    yield from ((key, str(entry.about[key] or "–")) for key in VARIANT[1:])
    yield "layers", f"{len(entry.layers):,}, {entry.layers[0]} to {entry.layers[-1]}"
    yield "left out", ", ".join(map(str, entry.left_out)) or "none"
    yield "missing scores", f"{entry.missing:,} of {entry.scores.size:,}"
    yield f"tasks ({len(entry.tasks):,})", ", ".join(entry.tasks)


def _one_or_many(names: Iterable[str], noun: str) -> str:
    found = list(dict.fromkeys(names))
    return found[0] if len(found) == 1 else f"{len(found):,} {noun}s"


def as_dict(
    evaluation: "Evaluation",
    *,
    min_share: float = MIN_SHARE,
    correlations: pd.DataFrame | None = None,
    rules: pd.DataFrame | None = None,
) -> dict[str, Any]:
    """Return answer, source, what is missing, summary, scores, correlations and rules as JSON can hold them."""
    found: dict[str, Any] = jsonable(
        {
            "answer": _answer(evaluation.grids(min_share)),
            "source": evaluation.source,
            "missing": evaluation.missing,
            "failed": evaluation.failed,
            "min_share": min_share,
            "summary": evaluation.summary(min_share),
            "scores": evaluation.scores.drop(columns="right"),
            "correlations": [] if correlations is None else correlations,
            "rules": [] if rules is None else rules,
        }
    )
    return found


def _answer(known: Sequence[Grid]) -> str:
    best = _best(known)
    return best_in_words(best, best.site) if best.one_model else best_of_several(known)


def _best(known: Sequence[Grid]) -> Grid:
    """Return the model, site and pooling of the highest average."""
    return max(known, key=lambda entry: max(entry.average, default=-math.inf))


def _title(name: str, entry: Grid, *details: str) -> str:
    return " · ".join(filter(None, (name, *details))) + entry.unit.title


def score_findings(entry: Grid) -> list[str]:
    """Return what stands out in the scores of one model beside the answer, in sentences computed from its numbers."""
    average, best, last, unit = entry.average, entry.best, entry.depth, entry.unit
    if best is None:
        return []
    tasks, found = entry.complete.shape[1], []
    if last not in average:
        found.append(f"The last layer ({last}) has no scores to compare layer {best} with.")
    elif average[best] > average[last]:
        gain = unit.difference(average[best] - average[last])
        found.append(
            f"Layer {best} against the last layer ({last}): {gain}. It was chosen on the same scores: on other tasks "
            "expect less."
        )
    if average.get(0, -math.inf) > average[best]:
        found.append(
            f"Layer 0, the embedding output, has {unit.text(average[0])} and is not a candidate."
        )
    if tasks > 1 and last in average:
        other = sum(entry.best_on(str(task)) != last for task in entry.complete)
        found.append(
            f"On {other:,} of {tasks:,} tasks a layer other than the last is best; with each task at its own best "
            f"layer the average is {unit.text(entry.oracle)}."
            if other
            else f"The last layer is best on each of the {tasks:,} tasks."
        )
    if len(gains := entry.gains_of_mixes):
        most = gains.loc[gains["gain"].idxmax()]
        rival = "the single layer of the lowest log-loss"
        by, clear = (
            unit.difference(most["gain"], most["error"]),
            most["gain"] > CLEAR * most["error"],
        )
        found.append(
            f"The mix of layers {most.name!r} against {rival}, both chosen on other samples: {by}."
            if clear
            else f"No mix of layers is clearly better than {rival}; {most.name!r} comes nearest: {by}."
        )
    if shifts := list(shifts_of(entry)):
        # the answer has an only one
        found += [f"{shift.in_words(unit)}." for shift in shifts[len(shifts) == 1 :]]
        found.append(
            "A target's best layer is chosen on these scores: on others of its kind expect less."
        )
    if entry.left_out:
        found.append(
            f"Left out of averages, with scores on too few tasks: {named_layers(entry.left_out)}."
        )
    return found


def best_in_words(entry: Grid, site: str = "") -> str:
    """Return in one line which layer of a model, at which of several sites, scores best, and by how much."""
    average, best, unit = entry.average, entry.best, entry.unit
    if best is None:
        return f"{entry.name}: no layer has scores on enough tasks for an average"
    if len(shifts := list(shifts_of(entry))) == 1:
        return shifts[0].in_words(unit)
    tasks, last = [str(task) for task in entry.complete], entry.depth
    own = sorted({layer for task in tasks if (layer := entry.best_on(task)) is not None})
    on = f"on the average of {len(tasks):,} tasks" if len(tasks) > 1 else f"on {tasks[0]}"
    each = " and on each of them" if tasks[1:] and own == [best] else ""
    by_task = "" if own == [best] else f"; best by task: {named_layers(own)}"
    scores = unit.text(average[best], entry.error(best))
    shipped = math.isfinite(entry.shipped)
    rival = entry.shipped if shipped else average.get(last, math.nan)
    name = "the model as shipped" if shipped else "the last layer"
    against = ""
    if math.isfinite(rival) and (shipped or best != last):
        same = unit.number(average[best]) == unit.number(rival)
        error = error_of_gain(entry, best, None if shipped else last)
        against = (
            f", as {name}"
            if same
            else f", {unit.difference(average[best] - rival, error)} against {name}"
        )
    where = f" ({site})" * bool(site)
    if near := within_margin(entry):
        before = [int(layer) for layer in candidates(average).index if layer != last]
        tie = tied([*before, last], near, name)
        text = (
            f"{tie[0].upper()}{tie[1:]}{where} {on}; the best layer, {best}, has {scores}{against}"
        )
    else:
        text = f"Layer {best} of {last}{where} scores best {on}{each}: {scores}{against}"
    return text + by_task


def best_of_several(entries: Sequence[Grid]) -> str:
    """Return in one line for how many models a layer before the last scores best, and what it gains."""
    known = [entry for entry in entries if entry.best is not None and entry.depth in entry.average]
    ahead = [entry for entry in known if entry.best != entry.depth]
    if not ahead:
        return f"The last layer scores best on average in each of {len(known):,} models"
    gains = {
        entry.name: entry.average[entry.best or 0] - entry.average[entry.depth] for entry in ahead
    }
    show = entries[0].unit.difference
    if len(ahead) > FEW:
        most = max(gains, key=gains.__getitem__)
        mean = show(sum(gains.values()) / len(gains))
        gained = f"{mean} on average, most for {most}: {show(gains[most])}"
    else:
        gained = ", ".join(f"{e.name} at layer {e.best}, {show(gains[e.name])}" for e in ahead)
    return f"A layer before the last scores best on average in {len(ahead):,} of {len(known):,} models: {gained}"
