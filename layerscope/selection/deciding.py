"""The work of `select`: the layer to use, by which rule, with what evidence, what it wins and what it costs."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from layerscope.core.errors import LayerscopeError
from layerscope.core.files import existing
from layerscope.core.options import Asked
from layerscope.core.progress import Reporter, reporting
from layerscope.scores.evaluation import Evaluation
from layerscope.scores.opening import holds_scores, open_evaluation
from layerscope.selection.budget import Budget
from layerscope.selection.by_score import BY_SCORE
from layerscope.selection.choice import Case, by_rule, by_scores
from layerscope.selection.label_free import RANK, Reader, halves_for, named_rule, rules_from, trusted
from layerscope.selection.score_sources import has_labels, judged, probed
from layerscope.selection.selection import Selection
from layerscope.selection.subject import Opened, source_of

if TYPE_CHECKING:
    from layerscope.runs import Run
    from layerscope.truncation.figures import Costs


def decide(asked: Asked) -> Selection:
    """Do what `select` is asked for."""
    budget = asked.of(Budget)
    if budget.needs_costs and not asked.cost:
        raise LayerscopeError("a bound on ms or MB needs measured costs: do not switch them off")
    reporter = reporting(asked.progress)
    given = _opened(asked.given)
    if isinstance(given, Evaluation):
        return _of_evaluation(given, asked, budget, reporter)
    given.need_states()
    return _of_run(given, asked, budget, reporter)


def _opened(given: Any) -> Run | Evaluation:
    """Return the run or evaluation that is given, or that a path holds."""
    from layerscope.runs import Run, open_run  # runs import torch

    if isinstance(given, (Run, Evaluation)):
        return given
    if not isinstance(given, (str, Path)):
        raise LayerscopeError(f"select takes a run or an evaluation, not a {type(given).__name__}")
    path = existing(given, "run or evaluation")
    if (path / "run.json").is_file():
        return open_run(path)
    if holds_scores(path):
        return open_evaluation(path)
    inside = sorted(run.parent for run in path.glob("*/run.json")) if path.is_dir() else []
    hint = f"it holds some, give {', '.join(map(str, inside[:5]))}" if inside else "profile and evaluate write them"
    raise LayerscopeError(f"{str(path)!r} is neither a run nor an evaluation: {hint}")


def _of_evaluation(evaluation: Evaluation, asked: Asked, budget: Budget, reporter: Reporter) -> Selection:
    if asked.holdout is not None:
        raise LayerscopeError(
            "holdout needs the states of samples, and an evaluation keeps one score a task: give a run with labels"
        )
    if asked.rule not in (None, *BY_SCORE):
        named_rule(rules_from(None), asked.rule)  # one that does not exist is refused as such
        raise LayerscopeError(
            f"rule {asked.rule!r} reads metrics of a run: give the run, or choose {', '.join(BY_SCORE)} of scores"
        )
    grid, scored, notes = judged(evaluation, asked)
    name, pooling = str(grid.about["model"]), grid.about["pooling"]
    origin = evaluation.origins.get(name)
    model = source_of(name, origin) if asked.cost_model is None else asked.cost_model
    opened = Opened(model, asked.device, reporter, str(grid.about["revision"]))
    costs, missing = _costs(opened, scored.layers, asked, budget)
    sites = opened.source().model.sites if costs is not None else evaluation.scores["site"].dropna().unique()
    case = Case(
        name, str(model) if isinstance(model, (str, Path)) else name, grid.about["site"], pooling,
        opened.pools_as_ours(pooling), budget, asked.first_layer, 0 if origin is None else origin.depth, scored, costs,
        tuple(map(str, sites)), (*notes, *missing),
    )  # fmt: skip
    return by_scores(case, scored, asked.rule)


def _of_run(run: Run, asked: Asked, budget: Budget, reporter: Reporter) -> Selection:
    opened = Opened(run if asked.cost_model is None else asked.cost_model, asked.device, reporter)
    pooling, has_scores = _pooling(run, asked), asked.labels is not None or has_labels(run)
    free = asked.rule is not None and asked.rule not in BY_SCORE
    if asked.rule in BY_SCORE and not has_scores:
        raise LayerscopeError(f"rule {asked.rule!r} needs scores, and this run has no labels: give labels")
    if budget.max_loss is not None and not has_scores:
        raise LayerscopeError("max_loss needs scores: a run with labels, or an evaluation; without, no loss is known")
    if asked.holdout is not None and (free or not has_scores):
        lack = f"rule {asked.rule!r} reads no labels" if free else "this run has no labels"
        raise LayerscopeError(f"holdout needs labels to choose by, and {lack}: leave it out")
    rules = rules_from(asked.evidence) if free or not has_scores else []
    forced = named_rule(rules, asked.rule) if free else None
    halves = cache(lambda: halves_for(run, asked.data, asked.seed))
    if forced is not None and forced.metric == RANK:
        halves()  # what is wrong with them is reported before the long part
    costs, notes = _costs(opened, range(1, run.depth + 1), asked, budget)
    scored = probed(run, asked.labels, pooling, asked.holdout, reporter) if has_scores else None
    if not has_scores and run.info["data"].get("labels"):
        notes = ("the run's labels give no two classes of five samples to probe: they are left out", *notes)
    pooled = run.info["data"]["modality"] == "text" and opened.pools_as_ours(pooling)
    case = Case(
        str(run.info["model"]["name"]), str(run.path), run.final, pooling, pooled, budget, asked.first_layer, run.depth,
        scored, costs, notes=notes,
    )  # fmt: skip
    if scored is not None and not free:
        return by_scores(case, scored, asked.rule)
    reader = Reader(run, pooling, case.candidates(), halves, opened.source, reporter)
    if forced is not None:
        return by_rule(case, reader.follow(forced, alike=False), (), forced=True)
    return by_rule(case, *trusted(rules, reader))


def _pooling(run: Run, asked: Asked) -> str:
    """Return the pooling to choose a layer of; what a run has no choice of is refused."""
    known, model = run.info["pooling"], run.info["model"]["name"]
    if asked.pooling is not None and asked.pooling not in known:
        raise LayerscopeError(f"pooling {asked.pooling!r} is not in this run: it has {', '.join(known)}")
    if asked.site not in (None, run.final):
        raise LayerscopeError(f"site {asked.site!r} of a run cannot be chosen: a truncated model yields {run.final}")
    if asked.model not in (None, model):
        raise LayerscopeError(f"model applies only to evaluations, and this is a run of {model}: leave it out")
    if asked.tasks is not None:
        raise LayerscopeError("tasks applies only to evaluations: a run is judged by its labels")
    return str(asked.pooling or known[0])


def _costs(opened: Opened, layers: Iterable[int], asked: Asked, budget: Budget) -> tuple[Costs | None, tuple[str, ...]]:
    """Return what every depth costs, or None and the line that says why not; an error where a bound needs them."""
    if not asked.cost:
        return None, ()
    try:
        return opened.costs([layer for layer in layers if layer > 0]), ()
    except LayerscopeError as error:
        if budget.needs_costs:
            raise
        return None, (f"no costs: {error}",)
