"""An evaluation as a document: the best layer, every model's summary, layers by task, metrics and rules beside them."""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from layerscope.core.saved import jsonable
from layerscope.scores.findings import best_layer, best_layers, score_findings
from layerscope.scores.metric_tables import correlation_tables, rule_tables, rules_verdict
from layerscope.scores.pairing import Pairing, pairings
from layerscope.scores.plots import section
from layerscope.scores.rules import Rule, rules_table
from layerscope.scores.scored import Scored, Unit, one_model, percents, scored, shared_site, site_name
from layerscope.scores.summary import VARIANT
from layerscope.scores.tables import by_layer, summary_table
from layerscope.show.document import Document, Facts, Frame, Part, Section, Sentences

if TYPE_CHECKING:
    from layerscope.runs.run import Run
    from layerscope.scores.evaluation import Evaluation

EVERY = (
    "One row for each model, layer, site, pooling and task; a row without a layer is the model as its makers serve it."
)


def document(
    evaluation: Evaluation,
    min_share: float,
    correlations: pd.DataFrame | None,
    rules: Sequence[Rule],
    runs: Sequence[Run] = (),
) -> Document:
    """Return the best layer, a row for each model, of one model its layers by task, then correlations and rules."""
    known, unit = scored(evaluation, min_share), percents(evaluation)
    where, single = shared_site(evaluation.scores), one_model(evaluation.scores)
    parts: list[Part] = []
    if single:
        parts.append(Sentences("What stands out", tuple(score_findings(_best(known), unit))))
    model = known[0].grid.about["model"] if single else ""
    parts.append(summary_table(known, evaluation, unit, _title("Scores by layer", unit, model, where)))
    if single:
        for entry in known:
            title = _title("Layers by task", unit, entry.name if len(known) > 1 else "", where)
            parts.append(by_layer(entry, unit, title))
    if correlations is not None:
        parts += correlation_tables(correlations, evaluation.scores)
    if rules:
        parts += rule_tables(rules, unit)
    missing = f"{evaluation.missing:,} missing" if evaluation.missing else "none missing"
    shown = tuple(_members(evaluation, known, unit, pairings(runs, evaluation, known)))
    alone = len(shown) == 1
    return Document(
        _answer(evaluation, known),
        title=(_named(known), _tasks(known)),
        facts=(f"{len(evaluation.scores):,} scores from {evaluation.source}", missing),
        reasons=(rules_verdict(rules),) if rules else (),
        parts=tuple(parts),
        commands=tuple(_commands(evaluation, _best(known))),
        sections=shown[0].sections if alone else (),
        details=shown[0].details if alone else (),
        warnings=tuple(f"{task} was not judged: {reason}" for task, reason in evaluation.failed.items()),
        kind="scores",
        depth=shown[0].depth if alone else None,
        members=() if alone else shown,
    )


def _members(
    evaluation: Evaluation, known: Sequence[Scored], unit: Unit, paired: Sequence[Pairing]
) -> Iterator[Document]:
    """Yield each series of scores as a page shows it."""
    for i, entry in enumerate(known):
        own = [pairing for pairing in paired if pairing.scored == i]
        title = f"Summary{unit.title}", f"Layer by task{unit.title}"
        tables = (summary_table([entry], evaluation, unit, title[0]), by_layer(entry, unit, title[1]))
        frame = Frame("Every score", EVERY, "every-score", _rows(evaluation, known, i), ("model", "task"))
        yield Document(
            best_layer(entry, unit),
            title=(entry.name,),
            parts=(Sentences("", tuple(score_findings(entry, unit))),),
            sections=(section(entry, known, unit, own, tables), Section("every-score", "Every score", "", (frame,))),
            details=(Facts(tuple(_facts(entry))),),
            kind="scores",
            depth=max(1, entry.grid.depth),
        )


def _rows(evaluation: Evaluation, known: Sequence[Scored], number: int) -> pd.DataFrame:
    """Return the rows of one series; those of a model as shipped belong to the model's first."""
    scores, about = evaluation.scores, known[number].grid.about
    same = pd.Series(True, index=scores.index)
    for key in VARIANT:
        same &= scores[key].isna() if about[key] is None else scores[key] == about[key]
    models = [(entry.grid.about["model"], entry.grid.about["revision"]) for entry in known]
    if models.index(models[number]) == number:
        shipped = scores["kind"] == "baseline"
        same |= shipped & (scores["model"] == about["model"]) & (scores["revision"] == about["revision"])
    return scores[same]


def _facts(entry: Scored) -> Iterator[tuple[str, str]]:
    """Yield what was judged."""
    about, grid = entry.grid.about, entry.grid
    yield from ((key, str(about[key] or "–")) for key in VARIANT[1:])
    yield "layers", f"{len(entry.layers):,}, {entry.layers[0]} to {entry.layers[-1]}"
    yield "left out", ", ".join(map(str, grid.left_out)) or "none"
    yield "missing scores", f"{grid.missing:,} of {grid.scores.size:,}"
    yield f"tasks ({len(entry.tasks):,})", ", ".join(entry.tasks)


def _named(known: Sequence[Scored]) -> str:
    """Return the one model, or how many there are."""
    models = list(dict.fromkeys(str(entry.grid.about["model"]) for entry in known))
    return models[0] if len(models) == 1 else f"{len(models):,} models"


def _tasks(known: Sequence[Scored]) -> str:
    """Return the one task, or how many there are."""
    tasks = list(dict.fromkeys(task for entry in known for task in entry.tasks))
    return tasks[0] if len(tasks) == 1 else f"{len(tasks):,} tasks"


def as_dict(
    evaluation: Evaluation, min_share: float, correlations: pd.DataFrame | None, rules: Sequence[Rule]
) -> dict[str, Any]:
    """Return an evaluation as JSON can hold it: see `Evaluation.as_dict`."""
    choices = [[vars(choice) | {"gain": choice.gain} for choice in rule.choices] for rule in rules]
    found: dict[str, Any] = jsonable({
        "answer": _answer(evaluation, scored(evaluation, min_share)),
        "source": evaluation.source,
        "missing": evaluation.missing,
        "failed": evaluation.failed,
        "min_share": min_share,
        "summary": evaluation.summary(min_share),
        "scores": evaluation.scores,
        "correlations": [] if correlations is None else correlations,
        "rules": rules_table(rules).assign(choices=choices),
    })  # fmt: skip
    return found


def _answer(evaluation: Evaluation, known: Sequence[Scored]) -> str:
    unit, best = percents(evaluation), _best(known)
    if not one_model(evaluation.scores):
        return best_layers(known, unit)
    return best_layer(best, unit, site_name(best.grid.about, evaluation.scores))


def _best(known: Sequence[Scored]) -> Scored:
    """Return the model, site and pooling of the highest average."""
    return max(known, key=lambda entry: max(entry.average.values(), default=-math.inf))


def _title(name: str, unit: Unit, *details: str) -> str:
    return " · ".join(filter(None, (name, *details))) + unit.title


def _commands(evaluation: Evaluation, best: Scored) -> Iterator[str]:
    """Yield what to type next, where the scores are on disk."""
    if Path(evaluation.source).exists():
        model = [] if one_model(evaluation.scores) else ["--model", str(best.grid.about["model"])]
        yield shlex.join(["layerscope", "select", evaluation.source, *model])
        yield shlex.join(["layerscope", "report", evaluation.source])
