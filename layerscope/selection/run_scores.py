"""Scores of a run's layers: which samples a linear probe gets right."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from layerscope.core import processes
from layerscope.core.errors import LayerscopeError
from layerscope.core.progress import Reporter
from layerscope.inputs.corpus import Judged
from layerscope.probes.linear import held_out, linear_probe_hits
from layerscope.profiling.options import PassOptions
from layerscope.profiling.source import FOLDS, Source, can_be_probed
from layerscope.runs.probed import drawn_from
from layerscope.runs.run import Run
from layerscope.runs.states import Column
from layerscope.selection.scored import LAST, SHIPPED, Bools, Scored, of_samples


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
    options = PassOptions.of_run(run.info["options"])
    rows = Source(run, options).probed
    classes = _labels(run, labels)[rows]
    apart = held_out(classes, holdout or 0, options.seed)
    if not can_be_probed(classes[~apart]):
        rest = "leave them out" if holdout is None else f"hold out less than `holdout={holdout:g}`"
        raise LayerscopeError(
            f"a probe needs two classes with {FOLDS} samples each: label more, or {rest}"
        )
    names, sizes = np.unique(classes[~apart], return_counts=True)
    common = np.isin(classes, names[sizes >= FOLDS])
    is_judged = np.ones(len(classes), dtype=bool) if holdout is None else apart
    judged = Judged(
        int((is_judged & common).sum()),
        int((sizes >= FOLDS).sum()),
        int((is_judged & ~common).sum()),
        drawn_from(run) is not None,
    )
    rows, classes, apart = rows[common], classes[common], apart[common]
    columns = list[Bools]()
    with reporter.bar("linear probe at every layer", len(run.layers), "layers") as advance:
        states = (run.states(pooling, (Column(run.final, layer),), rows) for layer in run.layers)
        judgements = processes.team().each(
            lambda x: linear_probe_hits(x[:][:, 0], classes, FOLDS, options.seed, apart), states
        )
        for judgement in judgements:
            columns.append(judgement[0])
            advance(1)
    fold = judgement[1]
    values = np.stack([*columns, columns[-1]], 1).astype(np.float64)
    n = int((~apart).sum())
    title = f"linear probe of {judged.classes} labels, {FOLDS}-fold, {n:,} samples of {run.info['data']['name']}"
    scored = replace(
        of_samples(values[~apart], title, layers=run.layers),
        blocks=fold[~apart],
        baseline_name=SHIPPED if run.has_model else LAST,
        basis=judged.text,
        lacking=judged.lacking,
    )
    if holdout is None:
        return scored
    return replace(
        scored,
        basis=f"judged on {judged.text}; chosen on {n:,} others",
        lacking=judged.lacking and f"`holdout={holdout:g}` leaves {judged.lacking}",
        held=of_samples(values[apart], title, layers=run.layers) if apart.any() else None,
    )


def _labels(run: Run, labels: Sequence[Any] | None) -> Any:
    """Return the label of each row of the plan, of the run's own or of those given by sample."""
    plan = run.folder.plan
    if labels is None:
        return plan["label"].to_numpy()
    by_sample, total = np.asarray(labels), int(run.info["data"]["samples"])
    if by_sample.shape != (total,):
        raise LayerscopeError(
            f"labels has shape {by_sample.shape}: give one label for each of the {total:,} samples"
        )
    return by_sample[plan["sample"].to_numpy()]
