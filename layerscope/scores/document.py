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
from layerscope.scores.rules import Rule, rules_table
from layerscope.scores.scored import (
    AVERAGE,
    FEW,
    SHIPPED,
    SHOWN,
    SITE,
    Score,
    Scored,
    Unit,
    named_layers,
    one_model,
    percents,
    scored,
    series_name,
    shared_site,
    site_name,
)
from layerscope.show.document import EMPTY, MARK, Cell, Column, Document, Part, Row, Sentences, Table, columns

if TYPE_CHECKING:
    from layerscope.scores.evaluation import Evaluation


def document(
    evaluation: Evaluation, min_share: float, correlations: pd.DataFrame | None, rules: Sequence[Rule]
) -> Document:
    """Return the best layer, a row for each model, of one model its layers by task, then correlations and rules."""
    frame, known, unit = evaluation.summary(min_share), scored(evaluation, min_share), percents(evaluation)
    where, single = shared_site(evaluation.scores), one_model(evaluation.scores)
    parts: list[Part] = []
    if single:
        parts.append(Sentences("What stands out", tuple(score_findings(_best(known), unit))))
    model = known[0].grid.about["model"] if single else ""
    parts.append(_summary(frame, known, evaluation, unit, _title("Scores by layer", unit, model, where)))
    if single:
        for entry in known:
            title = _title("Layers by task", unit, entry.name if len(known) > 1 else "", where)
            parts.append(_by_layer(entry, unit, title))
    if correlations is not None:
        parts += correlation_tables(correlations, evaluation.scores)
    if rules:
        parts += rule_tables(rules, unit)
    missing = f"{evaluation.missing:,} missing" if evaluation.missing else "none missing"
    return Document(
        _answer(evaluation, known),
        title=(evaluation.source,),
        facts=(f"{len(evaluation.scores):,} scores", missing),
        reasons=(rules_verdict(rules),) if rules else (),
        parts=tuple(parts),
        commands=tuple(_commands(evaluation, _best(known))),
    )


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
    return " · ".join(filter(None, (name, *details))) + (", in %" if unit.percent else "")


def _commands(evaluation: Evaluation, best: Scored) -> Iterator[str]:
    """Yield what to type next, where the scores are on disk."""
    if Path(evaluation.source).exists():
        model = [] if one_model(evaluation.scores) else ["--model", str(best.grid.about["model"])]
        yield shlex.join(["layerscope", "select", evaluation.source, *model])
        yield shlex.join(["layerscope", "report", evaluation.source])


def _summary(
    frame: pd.DataFrame, known: Sequence[Scored], evaluation: Evaluation, unit: Unit, title: str, shapes: bool = True
) -> Table:
    """Return a row a model, site and pooling; without its shapes where there is no room for them."""
    shown = [name for name in SHOWN if frame[name].notna().any()]
    shapes &= any(len(entry.grid.complete) > 1 for entry in known)
    several, heading = len(frame) > 1, _heading(evaluation)
    rows = []
    for found, entry in zip(frame.to_dict(orient="records"), known, strict=True):
        cells = [Cell(_name(found, evaluation).removesuffix(" pooling" if "pooling" in heading else ""))] * several
        cells += [_scored(found, name, unit) for name in shown]
        line = tuple(entry.average.values()) if len(entry.average) > 1 else ()
        rows.append(Row((*cells, *([Cell("", shape=line)] if shapes else []))))
    titles = [*([Column(heading, "left")] if several else []), *columns(SHOWN[name] for name in shown)]
    legend = tuple(_summary_legend(known, frame, evaluation))
    narrow = (_summary(frame, known, evaluation, unit, title, shapes=False),) if shapes else ()
    return Table(title, (*titles, *([Column("by depth", "left")] if shapes else [])), tuple(rows), legend, narrow)


def _name(about: dict[str, Any], evaluation: Evaluation) -> str:
    """Return what tells a row from the others: site and pooling, and the model where there are several."""
    own = site_name(about, evaluation.scores) if one_model(evaluation.scores) else ""
    return own or series_name(about, evaluation.scores)


def _heading(evaluation: Evaluation) -> str:
    """Return what `_name` names."""
    if not one_model(evaluation.scores):
        return "model"
    layers = evaluation.scores[evaluation.scores["kind"] == "layer"]
    return ", ".join(key for key in SITE if layers[key].nunique(dropna=False) > 1) or "model"


def _scored(found: dict[str, Any], name: str, unit: Unit) -> Cell:
    """Return a score, with the layer it is of where that is a finding."""
    if pd.isna(found[name]):
        return Cell("–")
    layer = f"({found[f'{name}_layer']})" if name.startswith("best") else ""
    return Cell(unit.number(found[name]), layer, found[name])


def _summary_legend(known: Sequence[Scored], frame: pd.DataFrame, evaluation: Evaluation) -> Iterator[str]:
    embedded = any(0 in entry.grid.complete.index for entry in known)
    yield (
        "In parentheses the layer. Means run over the tasks present at every layer; the oracle takes each task's own "
        f"best layer{'; layer 0, the embedding output, is no candidate for either' if embedded else ''}."
    )
    alike: dict[str, list[str]] = {}
    for found, entry in zip(frame.to_dict(orient="records"), known, strict=True):
        alike.setdefault(_covered(entry), []).append(_name(found, evaluation))
    for facts, names in alike.items():
        named = f"{len(names)} of {len(known)}" if len(names) > FEW else " and ".join(names)
        yield f"{named}: {facts}."


def _covered(entry: Scored) -> str:
    """Return which layers and tasks the averages of a model run over, and what is left out."""
    grid = entry.grid
    tasks = grid.complete.shape[1]
    facts = f"{named_layers([int(layer) for layer in grid.complete.index])} on {tasks} task{'s' * (tasks != 1)}"
    if grid.left_out:
        facts += f"; left out with scores on fewer than {grid.needed} of {grid.scores.shape[1]} tasks: "
        facts += named_layers(grid.left_out)
    return facts + (f"; {grid.missing} of {grid.scores.size} scores missing" if grid.missing else "")


def _by_layer(entry: Scored, unit: Unit, title: str) -> Table:
    """Return a row for each layer: the best of each task marked, the model as shipped below."""
    tasks, average, several = entry.tasks, entry.average, len(entry.layers) > 1
    best = {task: entry.best_on(task) for task in tasks}
    rows = []
    for layer in [*entry.layers, *([None] if len(entry.grid.baseline) else [])]:
        cells = [_cell(entry.at(layer, task), unit, layer is not None and best[task] == layer) for task in tasks]
        if len(tasks) > 1:
            mean = entry.shipped if layer is None else average.get(layer, math.nan)
            cells.append(_cell(Score(mean), unit, layer is not None and layer == entry.best))
        rows.append(Row((Cell(SHIPPED if layer is None else str(layer)), *cells), quiet=layer is None))
    shapes = [tuple(entry.grid.scores[task]) if several else () for task in tasks]
    titles = [Column(task, "decimal", shape) for task, shape in zip(tasks, shapes, strict=True)]
    if len(tasks) > 1:
        titles.append(Column(AVERAGE, "decimal", tuple(average.values()) if several else ()))
    narrow = (_by_task(entry, unit, title, shapes=several),)
    return Table(title, (Column("layer"), *titles), tuple(rows), tuple(_legend(entry, f"{MARK} ")), narrow)


def _by_task(entry: Scored, unit: Unit, title: str, shapes: bool) -> Table:
    """Return a row for each task, without its shape where there is no room for it."""
    shipped = bool(len(entry.grid.baseline))
    titles = [*columns(("first", "best", "last", *([SHIPPED] if shipped else [])))]
    first, last, rows = entry.layers[0], entry.grid.depth, []
    for task in entry.tasks:
        best = entry.best_on(task)
        found = EMPTY if best is None else Cell(_told(entry.at(best, task), unit), f"({best})")
        ends = [Cell(unit.number(entry.at(layer, task).value)) for layer in (first, last)]
        more = [Cell(unit.number(entry.at(None, task).value))] if shipped else []
        line = [Cell("", shape=tuple(entry.grid.scores[task]))] if shapes else []
        rows.append(Row((Cell(task), ends[0], found, ends[1], *more, *line)))
    narrow = (_by_task(entry, unit, title, shapes=False),) if shapes else ()
    titles += [Column("by layer", "left")] if shapes else []
    legend = tuple(_legend(entry, "In parentheses: "))
    return Table(title, (Column("task", "left"), *titles), tuple(rows), legend, narrow)


def _cell(score: Score, unit: Unit, marked: bool) -> Cell:
    error = f"±{unit.number(score.error)}" if math.isfinite(score.error) and math.isfinite(score.value) else ""
    return Cell(unit.number(score.value), error, score.value, marked)


def _told(score: Score, unit: Unit) -> str:
    cell = _cell(score, unit, marked=False)
    return f"{cell.text} {cell.detail}".strip()


def _legend(entry: Scored, mark: str) -> Iterator[str]:
    shipped = f"; {SHIPPED}: the model as its makers serve it" if len(entry.grid.baseline) else ""
    yield f"{mark}the best layer of a task, chosen on these scores{shipped}."
    if any(math.isfinite(entry.at(layer, task).error) for layer, task in entry.known):
        yield "± one standard error."
