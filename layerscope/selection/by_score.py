"""Scores of layers and of the baseline on the same units, from probes or tasks, and the rules that choose by them."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pandas as pd

from layerscope.core import processes
from layerscope.core.errors import LayerscopeError, choices, count
from layerscope.core.options import Asked
from layerscope.core.progress import Reporter
from layerscope.inputs.corpus import LEAST, Judged
from layerscope.probes.linear import held_out, linear_probe_hits
from layerscope.probes.margin import differs
from layerscope.profiling.plan import Options
from layerscope.profiling.source import FOLDS, Source, can_be_probed
from layerscope.runs.probed import drawn_from
from layerscope.runs.run import Run
from layerscope.runs.states import Column
from layerscope.scores.evaluation import Evaluation
from layerscope.scores.grids import MIN_SHARE, Grid, grids, where
from layerscope.scores.naming import VARIANT
from layerscope.scores.shifts import hits_of

Floats = npt.NDArray[np.float64]
SURE = 2.0
"""Standard errors that a loss must stay below its bound to be called certain."""
SHIPPED = "the model as shipped"
LAST = "the last layer"
"""What stands in for a model as shipped that was not scored."""


@dataclass(frozen=True)
class Scored:
    """Scores `[units, layers + 1]`; units are the same for all, samples or tasks, the last column is the baseline.

    `errors` `[layers + 1]` are standard errors of the means, NaN where unknown. `blocks` `[units]`
    numbers what is held out together, None where nothing can be; `weights` `[units]` are those of
    the means, None where all are equal. `basis` says how much was judged, `lacking` what is missing
    for a choice. `held` are the scores of units that have no part in choosing, `by_task` those of
    each task alone.
    """

    layers: tuple[int, ...]
    values: Floats
    errors: Floats
    unit: Literal["sample", "task"]
    title: str
    blocks: npt.NDArray[np.int64] | None = None
    weights: Floats | None = None
    basis: str = ""
    lacking: str = ""
    held: "Scored | None" = None
    by_task: "tuple[Scored, ...]" = ()
    baseline_name: str = SHIPPED

    def name(self, column: int) -> str:
        """Return what a column is called in a sentence."""
        return self.baseline_name if column == self.baseline else f"layer {self.layers[column]}"

    @property
    def baseline(self) -> int:
        """Column of the baseline."""
        return len(self.layers)

    @property
    def means(self) -> Floats:
        """Mean score by column."""
        return np.asarray(np.average(self.values, axis=0, weights=self.weights), dtype=np.float64)

    def without(self, block: int) -> "Scored":
        """Return the scores of all units but those of one block."""
        kept = self.blocks != block
        weights = None if self.weights is None else self.weights[kept]
        return replace(self, values=self.values[kept], blocks=None, weights=weights)

    @property
    def share(self) -> bool:
        """Whether scores are shares, shown in percent."""
        return bool(np.abs(self.values).max() <= 1)

    @property
    def points(self) -> int:
        """How many points one unit of the scores is: 100 for shares, else 1."""
        return 100 if self.share else 1

    def difference(self, one: int, two: int) -> tuple[float, float]:
        """Return the mean difference of two columns, and its standard error.

        It is paired over units where that `is_paired`; else it is that of independent scores, which
        is too large where both were judged on the same items; NaN where no error is known.
        """
        if one == two or (self.baseline in (one, two) and self._is_shipped(min(one, two))):
            return 0.0, 0.0
        apart = self.values[:, one] - self.values[:, two]
        if self.is_paired:
            return mean_of(apart, self.weights)
        return float(np.average(apart, weights=self.weights)), float(
            np.hypot(self.errors[one], self.errors[two])
        )

    def _is_shipped(self, column: int) -> bool:
        """Return whether a column is the model as shipped: its last layer, with the same score on every unit."""
        is_last = self.layers[column] == max(self.layers)
        return is_last and bool(
            np.allclose(self.values[:, column], self.values[:, -1], rtol=0, atol=1e-12)
        )

    def is_within(self, column: int, best: int) -> bool:
        """Return whether a column does not differ measurably from the best."""
        return differs(*self.difference(column, best)) is False

    @property
    def is_paired(self) -> bool:
        """Whether differences are paired over units: two tasks have no spread worth the name."""
        return len(self.values) > (1 if self.unit == "sample" else 2)


def mean_of(values: Floats, weights: Floats | None) -> tuple[float, float]:
    """Return the mean of two values or more, and its standard error, with weights where these are given."""
    shares = np.full(len(values), 1 / len(values)) if weights is None else weights / weights.sum()
    mean, n = float(shares @ values), len(values)
    return mean, math.sqrt(n / (n - 1) * float(np.square(shares) @ np.square(values - mean)))


def best_of(scored: Scored, columns: Sequence[int]) -> int:
    """Return the column of the highest mean score; of a tie the shallowest."""
    return columns[int(np.argmax(scored.means[list(columns)]))]


def one_standard_error(scored: Scored, columns: Sequence[int]) -> int:
    """Return the shallowest column whose score is within one standard error of the best; `columns` by depth.

    The error is that of the paired difference to the best, where there are two units or more: a
    layer that is worse on nearly every sample counts as worse though both have wide errors of their
    own. Of one or two tasks it is the standard error of the best score, so far as that is known.

    Source: Breiman et al. 1984, Classification and regression trees, section 3.4.3, with the
        difference paired.
    """
    best = best_of(scored, columns)
    for column in columns:
        difference, error = scored.difference(column, best)
        error = error if scored.is_paired else float(scored.errors[best])
        if -difference <= (error if math.isfinite(error) else 0) + 1e-12:
            return column
    return best


def best_if_clear(scored: Scored, columns: Sequence[int]) -> int:
    """Return the column of the highest mean score, or the baseline where that does not differ measurably from it."""
    best = best_of(scored, columns)
    return (
        scored.baseline
        if scored.baseline in columns and scored.is_within(scored.baseline, best)
        else best
    )


BY_SCORE: dict[str, Callable[[Scored, Sequence[int]], int]] = {
    "best-if-clear": best_if_clear,
    "best": best_of,
    "one-standard-error": one_standard_error,
}


def in_points(most: float) -> str:
    """Return `1 point`, `0.5 points`."""
    return f"{most:g} point" + ("" if most == 1 else "s")


def within_loss(scored: Scored, columns: Sequence[int], most: float) -> list[int]:
    """Return the columns that lose at most `most` against the baseline; raises where there is none."""
    losses = {column: -scored.difference(column, scored.baseline)[0] for column in columns}
    kept = [column for column, loss in losses.items() if loss <= most + 1e-12]
    if kept:
        return kept
    nearest = best_of(scored, columns)
    raise LayerscopeError(
        f"no layer that may be chosen loses at most {in_points(most * scored.points)}: the least is "
        f"{losses[nearest] * scored.points:.2f} ({scored.name(nearest)})"
    )


def has_labels(run: Run) -> bool:
    """Return whether a run's samples have labels that can be probed."""
    labels = run.folder.labels()
    return labels is not None and can_be_probed(labels)


def probed(
    run: Run, labels: Sequence[Any] | None, pooling: str, holdout: float | None, reporter: Reporter
) -> Scored:
    """Return which samples a linear probe gets right at each layer of a run, cross-validated on the same folds.

    The layers are taken at the site that a truncated model yields; the baseline is the last of
    them. `labels`, one a sample in their order, stand in for the run's own. The share `holdout` of
    the samples, None for none, is in no fold: `held` says which of them the probes of all the
    others get right.
    """
    options = Options(**run.info["options"])
    rows = Source(run, options).probed
    plan = run.folder.plan
    given, total = (
        plan["label"].to_numpy() if labels is None else np.asarray(labels),
        int(run.info["data"]["samples"]),
    )
    if labels is not None and given.shape != (total,):
        raise LayerscopeError(
            f"labels has shape {given.shape}: give one label for each of the {total:,} samples"
        )
    known = (given if labels is None else given[plan["sample"].to_numpy()])[rows]
    apart = held_out(known, holdout or 0, options.seed)
    if not can_be_probed(known[~apart]):
        rest = "leave them out" if holdout is None else f"hold out less than `holdout={holdout:g}`"
        raise LayerscopeError(
            f"a probe needs two classes with {FOLDS} samples each: label more, or {rest}"
        )
    names, sizes = np.unique(known[~apart], return_counts=True)
    kept = np.isin(known, names[sizes >= FOLDS])
    part = np.ones(len(known), dtype=bool) if holdout is None else apart
    sampled = drawn_from(run) is not None
    judged = Judged(
        int((part & kept).sum()), int((sizes >= FOLDS).sum()), int((part & ~kept).sum()), sampled
    )
    rows, known, apart, columns = rows[kept], known[kept], apart[kept], list[Any]()
    with reporter.bar("linear probe at every layer", len(run.layers), "layers") as advance:
        states = (run.states(pooling, (Column(run.final, layer),), rows) for layer in run.layers)
        hits = processes.team().each(
            lambda x: linear_probe_hits(x[:][:, 0], known, FOLDS, options.seed, apart), states
        )
        for own in hits:
            columns.append(own[0])
            advance(1)
    fold = own[1]
    values = np.stack([*columns, columns[-1]], 1).astype(np.float64)
    n = int((~apart).sum())
    title = f"linear probe of {judged.classes} labels, {FOLDS}-fold, {n:,} samples of {run.info['data']['name']}"
    found = of_samples(values[~apart], title, blocks=fold[~apart], layers=run.layers)
    found = found if run.has_model else replace(found, baseline_name=LAST)
    if holdout is None:
        return replace(found, basis=judged.text, lacking=judged.lacking)
    return replace(
        found,
        basis=f"judged on {judged.text}; chosen on {n:,} others",
        lacking=judged.lacking and f"`holdout={holdout:g}` leaves {judged.lacking}",
        held=of_samples(values[apart], title, layers=run.layers) if apart.any() else None,
    )


def of_samples(values: Floats, title: str, **about: Any) -> Scored:
    """Return the scores of samples that are right, 1, or wrong, 0, at each layer and at the baseline."""
    means = values.mean(0)
    errors = np.sqrt(means * (1 - means) / len(values))
    layers = about.pop("layers", range(values.shape[1] - 1))
    return Scored(tuple(layers), values, errors, "sample", title, **about)


def grid_of(evaluation: Evaluation, asked: Asked, tasks: Mapping[str, float] | None) -> Grid:
    """Return the scores of one model of an evaluation on these tasks, None for all.

    `asked` names model, revision, site and pooling, each None where it is not named.
    """
    scores = evaluation.scores
    rows = _of_tasks(scores, tasks)
    about = _one(rows.loc[rows["kind"] == "layer", list(VARIANT)].drop_duplicates(), asked)
    own = scores[where(scores, {key: about[key] for key in ("model", "revision")})]
    found = grids(
        _of_tasks(own, tasks),
        MIN_SHARE,
        {name: origin.depth for name, origin in evaluation.origins.items()},
    )
    return next(grid for grid in found if grid.about == about)


def judged(evaluation: Evaluation, asked: Asked) -> tuple[Grid, Scored, list[str]]:
    """Return the scores of one model of an evaluation on its tasks, together and each alone, and notes on them."""
    grid = grid_of(evaluation, asked, asked.tasks)
    complete, notes = grid.complete, []
    if complete.empty:
        raise LayerscopeError("no task has a score at every layer: evaluate the missing ones first")
    if grid.left_out:
        notes.append(f"left out with too few scores: layers {', '.join(map(str, grid.left_out))}")
    tasks = list(map(str, complete.columns))
    is_shipped = bool(grid.baseline.reindex(tasks).notna().all())
    if not is_shipped:
        if grid.depth not in complete.index:
            missing = (
                f"neither the model as shipped nor its last layer, {grid.depth}, has enough scores"
            )
            raise LayerscopeError(f"{missing}: evaluate one")
        notes.append(
            f"the model as shipped was not scored: its last layer, {grid.depth}, stands in for it"
        )
    for task in asked.tasks or ():
        if task not in tasks:
            raise LayerscopeError(
                f"task {task!r} has no score at every layer: evaluate it, or leave it out of `tasks`"
            )
    at = tuple(map(int, complete.index))
    found = [
        [grid.at(layer, task) for layer in (*at, None if is_shipped else grid.depth)]
        for task in tasks
    ]
    values, errors = (
        np.array([[getattr(one, name) for one in row] for row in found])
        for name in ("value", "stderr")
    )
    weights = np.array([(asked.tasks or {}).get(task, 1.0) for task in tasks])
    few = ", which decide little" if len(tasks) == 2 else ""
    hits = hits_of(grid, tasks, (*at, None if is_shipped else grid.depth)) if len(tasks) < 3 else []
    if hits:
        return grid, _by_samples(at, tasks, hits, weights, SHIPPED if is_shipped else LAST), notes
    alone = tuple(Scored(at, values[[i]], errors[i], "task", task) for i, task in enumerate(tasks))
    scored = Scored(
        at,
        values,
        np.sqrt(np.square(weights / weights.sum()) @ np.square(errors)),
        "task",
        _averaged(tasks),
        weights=None if asked.tasks is None else weights,
        blocks=np.arange(len(tasks)) if len(tasks) > 2 else None,
        basis=count(len(tasks), "task") + few,
        by_task=alone if len(tasks) > 1 else (),
        baseline_name=SHIPPED if is_shipped else LAST,
    )
    return grid, scored, notes


def _averaged(tasks: Sequence[str]) -> str:
    """Name the task, or those that a score is the average of, as far as a line holds them."""
    if len(tasks) == 1:
        return tasks[0]
    more = ", …" if len(tasks) > 3 else ""
    return f"average of {len(tasks)} tasks ({', '.join(tasks[:3])}{more})"


def _by_samples(
    layers: tuple[int, ...],
    tasks: Sequence[str],
    hits: Sequence[Floats],
    weights: Floats,
    baseline_name: str,
) -> Scored:
    """Return the scores of one or two tasks by their samples, in seeded blocks; each task has its weight as a whole."""
    sizes = [len(one) for one in hits]
    order = np.random.default_rng(0)
    blocks = [order.permutation(size) % FOLDS for size in sizes]
    about: dict[str, Any] = {"layers": layers, "baseline_name": baseline_name}
    alone = [of_samples(one, task, **about) for one, task in zip(hits, tasks, strict=True)]
    few = min(sizes)
    together = of_samples(
        np.concatenate(hits),
        _averaged(tasks),
        **about,
        blocks=np.concatenate(blocks),
        weights=np.repeat(weights / sizes, sizes),
        basis=f"{count(sum(sizes), 'sample')} of {count(len(tasks), 'task')}",
        lacking=""
        if few >= LEAST
        else f"only {few} samples: {LEAST} judged samples are needed, label more",
        by_task=tuple(alone) if len(tasks) > 1 else (),
    )
    shares = weights / weights.sum()
    errors = np.sqrt(np.square(shares) @ np.square([one.errors for one in alone]))
    return replace(together, errors=errors)


def _of_tasks(rows: pd.DataFrame, tasks: Mapping[str, float] | None) -> pd.DataFrame:
    known = list(map(str, rows["task"].unique()))
    for task, weight in (tasks or {}).items():
        if task not in known:
            raise LayerscopeError(
                f"task {task!r} is not in this evaluation{choices(task, known, 'it has')}"
            )
        if not (math.isfinite(weight) and weight > 0):
            raise LayerscopeError(f"the weight of task {task!r} is {weight}: give a number above 0")
    return rows if tasks is None else rows[rows["task"].isin(list(tasks))]


def _one(known: pd.DataFrame, asked: Asked) -> dict[str, Any]:
    """Return the model, revision, site and pooling that are meant; of two sites the normed one."""
    if asked.site is None and (known["site"] == "normed").any():
        known = known[known["site"].isna() | (known["site"] == "normed")]
    for name in VARIANT:
        names = list(dict.fromkeys(known[name].fillna("").astype(str)))
        wanted = getattr(asked, name)
        if wanted is None and len(names) > 1:
            raise LayerscopeError(
                f"this evaluation has several {name}s ({', '.join(names)}): name one, `{name}={names[0]!r}`"
            )
        if wanted is not None:
            if wanted not in names:
                raise LayerscopeError(
                    f"{name} {wanted!r} is not in this evaluation{choices(wanted, names, 'it has')}"
                )
            known = known[known[name].fillna("") == wanted]
    return {key: None if pd.isna(value) else value for key, value in known.iloc[0].items()}
