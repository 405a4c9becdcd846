"""An evaluation as a document: the best layer, every model's summary, layers by task, metrics and rules beside them."""

import math
import shlex
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
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
from layerscope.show.document import Document, Facts, Frame, Part, Section, Sentences, Table

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
    grids = evaluation.grids(min_share)
    best, one_model, unit = _best(grids), grids[0].one_model, grids[0].unit
    stands_out = [Sentences("What stands out", tuple(score_findings(best)))] if one_model else []
    summary = _summary(grids)
    by_task = [*_by_task(grids)] if one_model else []
    related = [] if correlations is None else [*correlation_tables(correlations, grids)]
    ruled = [] if rules is None else [*rule_tables(rules, unit)]
    pages = tuple(_members(grids, pairings(runs, evaluation, grids)))
    page, members = (pages[0], ()) if len(pages) == 1 else (Document(""), pages)
    return Document(
        _answer(grids),
        title=(
            _one_or_many((str(entry.about["model"]) for entry in grids), "model"),
            _one_or_many(chain.from_iterable(entry.tasks for entry in grids), "task"),
        ),
        facts=(
            f"{len(evaluation.scores):,} scores from {evaluation.source}",
            f"{evaluation.missing:,} missing" if evaluation.missing else "none missing",
        ),
        reasons=() if rules is None else (best_rules(rules, unit),),
        parts=(*stands_out, summary, *by_task, *related, *ruled),
        lead=(*(by_task or [summary]), *related[:1]),
        commands=_commands(evaluation.source, best),
        sections=page.sections,
        details=page.details,
        warnings=tuple(
            f"{task} was not judged: {reason}" for task, reason in evaluation.failed.items()
        ),
        kind="scores",
        depth=page.depth,
        members=members,
    )


def _summary(grids: Sequence[Grid]) -> Table:
    """Return a row for each series of scores; of one model, its name is in the title."""
    first = grids[0]
    name = first.about["model"] if first.one_model else ""
    return summary_table(grids, _title("Scores by layer", first, name, _shared_site(first)))


def _by_task(grids: Sequence[Grid]) -> Iterator[Part]:
    """Yield the layers of one model by task, and its mixes of layers, at each site."""
    site = _shared_site(grids[0])
    for entry in grids:
        title = _title("Layers by task", entry, entry.name if len(grids) > 1 else "", site)
        yield by_layer(entry, title)
        yield from mixes_tables(entry, title.removeprefix("Layers by task"))


def _shared_site(entry: Grid) -> str:
    return " · ".join(entry.sites(several=False))


def _commands(source: str, best: Grid) -> tuple[str, ...]:
    """Return what to type next, where the scores are in a file or folder."""
    if not Path(source).exists():
        return ()
    model = [] if best.one_model else ["--model", str(best.about["model"])]
    verbs = ["select", source, *model], ["report", source]
    return tuple(shlex.join(["layerscope", *verb]) for verb in verbs)


def _members(
    grids: Sequence[Grid], related: Sequence[Sequence[Sequence[Related]]]
) -> Iterator[Document]:
    """Yield each series of scores as a page shows it."""
    for entry, metrics in zip(grids, related, strict=True):
        unit = entry.unit.title
        tables = [summary_table([entry], f"Summary{unit}"), by_layer(entry, f"Layer by task{unit}")]
        tables += mixes_tables(entry, unit)
        frame = Frame("Every score", EVERY, "every-score", _rows(grids, entry), ("model", "task"))
        yield Document(
            best_in_words(entry),
            title=(entry.name,),
            parts=(Sentences("", tuple(score_findings(entry))),),
            sections=(
                section(entry, grids, metrics, tables),
                Section("every-score", "Every score", "", (frame,)),
            ),
            details=(Facts(tuple(_facts(entry))),),
            kind="scores",
            depth=max(1, entry.depth),
        )


def _rows(grids: Sequence[Grid], entry: Grid) -> pd.DataFrame:
    """Return the rows of one series; those of a model as shipped belong to the model's first."""
    model, rows = ("model", "revision"), entry.rows.sort_index()
    hidden = ["right", *([] if len(entry.mixes) else ["mix", "gain", "gain_error", "weights"])]
    rows = rows.drop(columns=hidden if rows["shifted_from"].any() else [*hidden, "shifted_from"])
    first = next(
        other for other in grids if all(other.about[key] == entry.about[key] for key in model)
    )
    return rows if entry is first else rows[rows["kind"] != "baseline"]


def _facts(entry: Grid) -> Iterator[tuple[str, str]]:
    yield from ((key, str(entry.about[key] or "–")) for key in VARIANT[1:])
    yield "layers", f"{len(entry.layers):,}, {entry.layers[0]} to {entry.layers[-1]}"
    yield "left out", ", ".join(map(str, entry.left_out)) or "none"
    yield "missing scores", f"{entry.missing:,} of {entry.scores.size:,}"
    yield f"tasks ({len(entry.tasks):,})", ", ".join(entry.tasks)


def _one_or_many(names: Iterable[str], noun: str) -> str:
    distinct = list(dict.fromkeys(names))
    return distinct[0] if len(distinct) == 1 else f"{len(distinct):,} {noun}s"


def as_dict(
    evaluation: "Evaluation",
    *,
    min_share: float = MIN_SHARE,
    correlations: pd.DataFrame | None = None,
    rules: pd.DataFrame | None = None,
) -> dict[str, Any]:
    """Return answer, source, what is missing, summary, scores, correlations and rules as JSON can hold them."""
    entries: dict[str, Any] = jsonable(
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
    return entries


def _answer(grids: Sequence[Grid]) -> str:
    best = _best(grids)
    return best_in_words(best, best.site) if best.one_model else best_of_several(grids)


def _best(grids: Sequence[Grid]) -> Grid:
    """Return the model, site and pooling of the highest average."""
    return max(grids, key=lambda entry: max(entry.average, default=-math.inf))


def _title(name: str, entry: Grid, *details: str) -> str:
    return " · ".join(filter(None, (name, *details))) + entry.unit.title


def score_findings(entry: Grid) -> list[str]:
    """Return what stands out in the scores of one model beside the answer, in sentences computed from its numbers."""
    average, best, last, unit = entry.average, entry.best, entry.depth, entry.unit
    if best is None:
        return []
    tasks, sentences = entry.complete.shape[1], []
    if last not in average:
        sentences.append(f"The last layer ({last}) has no scores to compare layer {best} with.")
    elif average[best] > average[last]:
        gain = unit.difference(average[best] - average[last])
        sentences.append(
            f"Layer {best} against the last layer ({last}): {gain}. It was chosen on the same scores: on other tasks "
            "expect less."
        )
    if tasks > 1 and last in average:
        other = sum(entry.best_on(str(task)) != last for task in entry.complete)
        sentences.append(
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
        sentences.append(
            f"The mix of layers {most.name!r} against {rival}, both chosen on other samples: {by}."
            if clear
            else f"No mix of layers is clearly better than {rival}; {most.name!r} comes nearest: {by}."
        )
    if shifts := list(shifts_of(entry)):
        # the answer has an only one
        sentences += [f"{shift.in_words(unit)}." for shift in shifts[len(shifts) == 1 :]]
        sentences.append(
            "A target's best layer is chosen on these scores: on others of its kind expect less."
        )
    if entry.left_out:
        sentences.append(
            f"Left out of averages, with scores on too few tasks: {named_layers(entry.left_out)}."
        )
    return sentences


def best_in_words(entry: Grid, site: str = "") -> str:
    """Return in one line which layer of a model, at which of several sites, scores best, and by how much."""
    average, best, unit = entry.average, entry.best, entry.unit
    if best is None:
        return f"{entry.name}: no layer has scores on enough tasks for an average"
    if len(shifts := list(shifts_of(entry))) == 1:
        return shifts[0].in_words(unit)
    tasks = [str(task) for task in entry.complete]
    by_task = sorted({layer for task in tasks if (layer := entry.best_on(task)) is not None})
    on = f"on the average of {len(tasks):,} tasks" if len(tasks) > 1 else f"on {tasks[0]}"
    others = "" if by_task == [best] else f"; best by task: {named_layers(by_task)}"
    if average.get(0, -math.inf) > average[best]:
        others += (
            f"; layer 0, the embedding output, has {unit.text(average[0])} and is not a candidate"
        )
    where = f" ({site})" if site else ""
    scores = unit.text(average[best], entry.error(best)) + _against(entry, best)
    if near := within_margin(entry):
        tie = _tie(entry, near)
        return f"{tie}{where} {on}; the best layer, {best}, has {scores}{others}"
    each = " and on each of them" if len(tasks) > 1 and by_task == [best] else ""
    return f"Layer {best} of {entry.depth}{where} scores best {on}{each}: {scores}{others}"


def _tie(entry: Grid, near: Sequence[int]) -> str:
    """Return which layers do not differ measurably from the last, as a sentence begins."""
    last = entry.depth
    before = [int(layer) for layer in candidates(entry.average).index if layer != last]
    tie = tied([*before, last], near, _name_of_last(entry))
    return f"{tie[0].upper()}{tie[1:]}"


def _against(entry: Grid, best: int) -> str:
    """Return what the best layer gains over the model as shipped, else over the last layer; empty without a score."""
    unit, average = entry.unit, entry.average
    rival, score = None, entry.shipped
    if not math.isfinite(score):
        rival, score = entry.depth, average.get(entry.depth, math.nan)
    if rival == best or not math.isfinite(score):
        return ""
    if unit.number(average[best]) == unit.number(score):
        return f", as {_name_of_last(entry)}"
    gain = unit.difference(average[best] - score, error_of_gain(entry, best, rival))
    return f", {gain} against {_name_of_last(entry)}"


def _name_of_last(entry: Grid) -> str:
    return "the model as shipped" if math.isfinite(entry.shipped) else "the last layer"


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
