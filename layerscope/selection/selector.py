"""`select`: the layer to use, by which rule, with what evidence, what it wins and what it costs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from layerscope.core.errors import LayerscopeError
from layerscope.core.progress import Console, Silent, Teller
from layerscope.scores.correlation import whole
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

    def __post_init__(self) -> None:
        share = self.holdout
        if share is not None and (isinstance(share, bool) or not isinstance(share, (int, float)) or not 0 < share < 1):
            raise LayerscopeError(f"--holdout {share!r} must be a share between 0 and 1, such as 0.3")


def select(
    given: Any,
    *,
    labels: Sequence[Any] | None = None,
    rule: str | None = None,
    holdout: float | None = None,
    evidence: Any = None,
    max_loss: float | None = None,
    max_ms: float | None = None,
    max_mb: float | None = None,
    first_layer: int = 1,
    model: str | None = None,
    revision: str | None = None,
    site: str | None = None,
    pooling: str | None = None,
    tasks: Sequence[str] | Mapping[str, float] | None = None,
    cost: bool = True,
    cost_model: Any = None,
    data: Any = None,
    device: str = "auto",
    seed: int = 0,
    progress: bool = True,
) -> Selection:
    """Choose a layer of a model: by scores or labels where there are some, else by a rule that proved itself.

    With scores of tasks (an evaluation) or labels (of a run: a cross-validated linear probe) it is the shallowest layer
    within one standard error of the best, the error that of the difference paired over tasks or samples. Its gain is
    that on folds, or on tasks where there are three, that had no part in choosing. Fewer than 50 judged samples, or
    less than half of all, choose nothing. Without scores it is the rule of the best gain on models held out whose
    record may be trusted (`layerscope.selection.trust`) and whose metric the run has, measured alike; where there is
    none, the model as shipped. Layer 0 is no candidate.

    Args:
        given: a run, an evaluation, or the path of one (also a CSV of scores).
        labels: of a run's samples, one each in their order, in the place of its own.
        rule: "one-standard-error" or "best" of scores; or the name of a rule without labels, such as "half-text" (the
            two halves of a text find each other; runs the model), which is then followed whatever its record.
        holdout: share of a run's labelled samples that judges the chosen layer and has no part in choosing it, drawn
            evenly over the classes by the run's seed; None judges every fold at the layer that the others choose.
        evidence: rules without labels: a file that `save_rules` wrote, a list of them, or (scores, metrics, …) to fit
            them on; None is what comes with the package.
        max_loss: points of score that may be lost against the baseline (percent points where scores are shares): the
            shallowest layer within.
        max_ms: milliseconds a sample at most, as measured on this machine.
        max_mb: megabytes of weights at most.
        first_layer: first candidate; 0 takes the embeddings in.
        model: which one of an evaluation of several models.
        revision: of that model.
        site: where the layers of an evaluation were taken; None is normed where it has that.
        pooling: which one of several.
        tasks: the tasks of an evaluation that count, or a weight for each.
        cost: measure what every depth costs.
        cost_model: what to load for that, where an evaluation's model is not found by its name.
        data: texts for half-text, where they are not to be the run's own.
        device: of the measurement.
        seed: of the texts that half-text draws.
        progress: tell what happens on standard error.

    Returns:
        The choice, the alternatives and the evidence.

    Raises:
        LayerscopeError: for every wrong input, and for bounds that no layer meets, with the least that is possible.

    Example:
        >>> layerscope.select("scores.csv", model="small", cost=False, progress=False)
        Selection('small': layer 2 of 3 by one-standard-error, gain +0.06 ±0)

    """
    for name, number in (("first_layer", first_layer), ("seed", seed)):
        whole(name, number)
    weights = tasks if tasks is None or isinstance(tasks, Mapping) else dict.fromkeys(tasks, 1.0)
    wanted = Wanted(model, revision, site, pooling, weights)
    asked = _Asked(rule, Budget(max_loss, max_ms, max_mb), first_layer, wanted, cost, holdout)
    if asked.budget.needs_costs and not cost:
        raise LayerscopeError("a bound on ms or MB needs the costs to be measured: leave --no-cost out")
    teller: Teller = Console() if progress else Silent()
    opened = _opened(given)
    if isinstance(opened, Evaluation):
        return _of_evaluation(opened, asked, cost_model, device, teller)
    opened.need_states()
    shown = Opened(opened if cost_model is None else cost_model, device, teller)
    return _of_run(opened, asked, labels, evidence, data, seed, shown)


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
            "--holdout needs the states of samples, and an evaluation keeps one score a task: give a run with labels"
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
        raise LayerscopeError("--max-loss needs scores: a run with labels, or an evaluation; without, no loss is known")
    if asked.holdout is not None and (free or not has_scores):
        lack = f"rule {asked.rule!r} reads no labels" if free else "this run has no labels"
        raise LayerscopeError(f"--holdout needs labels to choose by, and {lack}: leave it out")
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
            f"--model applies only to evaluations, and this is a run of {run.info['model']['name']}: leave it out"
        )
    if asked.wanted.tasks is not None:
        raise LayerscopeError("--tasks applies only to evaluations: a run is judged by its labels")
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
