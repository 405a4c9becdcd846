"""The work of `select`: the layer to use, by which rule, with what evidence, what it wins and what it costs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from layerscope.core.errors import LayerscopeError
from layerscope.core.options import Asked
from layerscope.core.progress import Console, Silent, Teller
from layerscope.scores.evaluation import Evaluation
from layerscope.scores.files import existing
from layerscope.scores.opening import holds_scores, open_evaluation
from layerscope.selection.budget import Budget
from layerscope.selection.by_score import BY_SCORE
from layerscope.selection.choice import Case, by_rule, by_scores
from layerscope.selection.label_free import RANK, Reader, halves_for, named_rule, rules_from, trusted
from layerscope.selection.score_sources import Wanted, has_labels, judged, probed
from layerscope.selection.selection import LAST, SHIPPED, Selection
from layerscope.selection.subject import Opened, place_of

if TYPE_CHECKING:
    from layerscope.runs import Run
    from layerscope.truncation.costs import Costs


@dataclass(frozen=True)
class _Asked:
    """The arguments of `select` that both kinds of input share."""

    rule: str | None
    budget: Budget
    first_layer: int
    wanted: Wanted
    cost: bool
    holdout: float | None


def decide(given: Asked) -> Selection:
    """Do what `select` is asked for."""
    wanted = Wanted(given.model, given.revision, given.site, given.pooling, given.tasks)
    asked = _Asked(given.rule, given.of(Budget), given.first_layer, wanted, given.cost, given.holdout)
    if asked.budget.needs_costs and not asked.cost:
        raise LayerscopeError("a bound on ms or MB needs measured costs: do not switch them off")
    teller: Teller = Console() if given.progress else Silent()
    opened = _opened(given.given)
    if isinstance(opened, Evaluation):
        return _of_evaluation(opened, asked, given.cost_model, given.device, teller)
    opened.need_states()
    shown = Opened(opened if given.cost_model is None else given.cost_model, given.device, teller)
    return _of_run(opened, asked, given.labels, given.evidence, given.data, given.seed, shown)


def _opened(given: Any) -> Run | Evaluation:
    """Return the run or evaluation that is given, or that a path holds."""
    from layerscope.runs import Run, open_run  # runs import torch

    if isinstance(given, (Run, Evaluation)):
        return given
    if not isinstance(given, (str, Path)):
        raise LayerscopeError(f"select takes a run or an evaluation, not a {type(given).__name__}")
    place = existing(given, "run or evaluation")
    if (place / "run.json").is_file():
        return open_run(place)
    if holds_scores(place):
        return open_evaluation(place)
    hint = "layerscope profile and layerscope evaluate write them"
    inside = sorted(path.parent for path in place.glob("*/run.json")) if place.is_dir() else []
    hint = f"it holds some, give {', '.join(map(str, inside[:5]))}" if inside else hint
    raise LayerscopeError(f"{str(place)!r} is neither a run nor an evaluation: {hint}")


def _of_evaluation(evaluation: Evaluation, asked: _Asked, cost_model: Any, device: str, teller: Teller) -> Selection:
    if asked.holdout is not None:
        raise LayerscopeError(
            "holdout needs the states of samples, and an evaluation keeps one score a task: give a run with labels"
        )
    grid, scored, of_tasks, is_shipped, notes = judged(evaluation, asked.wanted)
    name = str(grid.about["model"])
    if asked.rule not in (None, *BY_SCORE):
        named_rule(rules_from(None), str(asked.rule))  # one that does not exist is told so
        raise LayerscopeError(
            f"rule {asked.rule!r} reads metrics of a run: give the run, or choose {', '.join(BY_SCORE)} of scores"
        )
    origin = evaluation.origins.get(name)
    place = place_of(name, origin) if cost_model is None else cost_model
    opened = Opened(place, device, teller, str(grid.about["revision"]))
    costs, told = _costs(opened, [layer for layer in scored.layers if layer], asked)
    sites = opened.source().model.sites if costs is not None else evaluation.scores["site"].dropna().unique()
    case = Case(
        name, grid.about["site"], grid.about["pooling"], asked.budget, asked.first_layer, scored, costs,
        0 if origin is None else origin.depth, sites=tuple(map(str, sites)), baseline=SHIPPED if is_shipped else LAST,
        of_tasks=tuple(of_tasks), pooled=opened.pools_as_ours(grid.about["pooling"]),
    )  # fmt: skip
    source = str(opened.given) if isinstance(opened.given, (str, Path)) else name
    return by_scores(case, asked.rule, source, (*notes, *told))


def _of_run(
    run: Run, asked: _Asked, labels: Sequence[Any] | None, evidence: Any, data: Any, seed: int, opened: Opened
) -> Selection:
    pooling = _pooling(run, asked)
    has_scores = labels is not None or has_labels(run)
    free = asked.rule is not None and asked.rule not in BY_SCORE
    if asked.rule in BY_SCORE and not has_scores:
        raise LayerscopeError(f"rule {asked.rule!r} needs scores, and this run has no labels: give labels")
    if asked.budget.max_loss is not None and not has_scores:
        raise LayerscopeError("max_loss needs scores: a run with labels, or an evaluation; without, no loss is known")
    if asked.holdout is not None and (free or not has_scores):
        lack = f"rule {asked.rule!r} reads no labels" if free else "this run has no labels"
        raise LayerscopeError(f"holdout needs labels to choose by, and {lack}: leave it out")
    rules = rules_from(evidence) if free or not has_scores else []
    forced = named_rule(rules, str(asked.rule)) if free else None
    halves = cache(lambda: halves_for(run, data, seed))
    if forced is not None and forced.metric == RANK:
        halves()  # what is wrong is told before the long part
    costs, told = _costs(opened, range(1, run.depth + 1), asked)
    scored = probed(run, labels, pooling, asked.holdout, opened.teller) if has_scores else None
    if not has_scores and run.info["data"].get("labels"):
        told = ("the run's labels give no two classes of five samples to probe: they are left out", *told)
    name = str(run.info["model"]["name"])
    case = Case(
        name, run.final, pooling, asked.budget, asked.first_layer, scored, costs, run.depth,
        pooled=run.info["data"]["modality"] == "text" and opened.pools_as_ours(pooling),
    )  # fmt: skip
    source = str(run.path)
    if scored is not None and not free:
        return by_scores(case, asked.rule, source, told)
    reader = Reader(run, pooling, case.candidates(), halves, opened.source, opened.teller)
    if forced is not None:
        return by_rule(case, reader.follow(forced, alike=False), (), source, told, forced=True)
    followed, refused = trusted(rules, reader)
    return by_rule(case, followed, refused, source, told)


def _pooling(run: Run, asked: _Asked) -> str:
    known, wanted = run.info["pooling"], asked.wanted.pooling
    if wanted is not None and wanted not in known:
        raise LayerscopeError(f"pooling {wanted!r} is not in this run: it has {', '.join(known)}")
    if asked.wanted.site not in (None, run.final):
        raise LayerscopeError(
            f"site {asked.wanted.site!r} of a run is not chosen from: a truncated model yields {run.final}"
        )
    if asked.wanted.model not in (None, run.info["model"]["name"]):
        raise LayerscopeError(
            f"model applies only to evaluations, and this is a run of {run.info['model']['name']}: leave it out"
        )
    if asked.wanted.tasks is not None:
        raise LayerscopeError("tasks applies only to evaluations: a run is judged by its labels")
    return str(wanted or known[0])


def _costs(opened: Opened, layers: Sequence[int], asked: _Asked) -> tuple[Costs | None, tuple[str, ...]]:
    """Return what every depth costs, or None and the line that says why not; an error where a bound needs them."""
    if not asked.cost:
        return None, ()
    try:
        return opened.costs(list(layers)), ()
    except LayerscopeError as error:
        if asked.budget.needs_costs:
            raise
        return None, (f"no costs: {error}",)
