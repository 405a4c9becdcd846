"""Scores of a run's layers: which samples a linear probe gets right, or what each adds to a ridge probe's R²."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from layerscope.core import LayerscopeError, Reporter
from layerscope.core.labels import Judged, is_target
from layerscope.inputs.columns import needed_labels
from layerscope.profiling.labels import hits_by_layer
from layerscope.profiling.options import PassOptions
from layerscope.profiling.source import FOLDS, Source, can_be_probed
from layerscope.runs.probed import drawn_from
from layerscope.runs.run import Run
from layerscope.selection.scored import LAST, SHIPPED, Scored, of_samples


def has_labels(run: Run) -> bool:
    """Return whether a run's samples have labels that can be probed."""
    labels = run.folder.labels()
    return labels is not None and can_be_probed(labels)


def probed(
    run: Run, labels: Sequence[Any] | None, pooling: str, reporter: Reporter
) -> Scored:
    """Return which samples a probe gets right at each layer of a run, cross-validated on the same folds.

    Where the labels are numbers it is what each sample contributes to R².

    The layers are taken at the site that a truncated model yields; the baseline is the last of
    them. `labels`, one a sample in their order, stand in for the run's own.
    """
    source = Source(run, PassOptions.of_run(run.info["options"]))
    classes = _labels(run, labels)[source.probed]
    if not can_be_probed(classes):
        raise LayerscopeError(
            f"a probe needs two classes with {FOLDS} samples each: label more, or leave them out"
        )
    judged = Judged.of(classes, drawn_from(run) is not None)
    what = f"linear probe of {judged.classes} labels"
    if is_target(classes):
        what = "ridge probe of numbers (R²)"
    hits = hits_by_layer(source, classes, pooling, reporter)
    values = np.hstack([hits.values, hits.values[:, -1:]])
    title = f"{what}, {FOLDS}-fold, {judged.n:,} samples of {run.info['data']['name']}"
    return replace(
        of_samples(values, title, run.layers),
        blocks=hits.fold,
        baseline_name=SHIPPED if run.has_model else LAST,
        basis=judged.text,
        lacking=judged.lacking,
    )


def _labels(run: Run, labels: Sequence[Any] | None) -> Any:
    """Return the label of each row of the plan, of the run's own or of those given by sample."""
    plan = run.folder.plan
    if labels is None:
        return plan["label"].to_numpy()
    by_sample = np.asarray(labels)
    total = int(run.info["data"]["samples"])
    if by_sample.shape != (total,):
        raise LayerscopeError(
            f"labels has shape {by_sample.shape}: give one label for each of the {total:,} samples"
        )
    return np.array(needed_labels(labels))[plan["sample"].to_numpy()]
