from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from layerscope.core.errors import LayerscopeError
from layerscope.core.option_kinds import SEED, Number, Whole
from layerscope.core.options import checked
from layerscope.scores.options import ScoresOptions

if TYPE_CHECKING:
    from layerscope.scores.evaluation import Evaluation

METRICS = "Metrics"


def read_scores(
    results: Any,
    *,
    min_share: Annotated[float, Number(above=0, most=1)] = 25 / 32,
    metrics: Annotated[str | Path | None, METRICS] = None,
    variant: Annotated[str | None, METRICS] = None,
    first_layer: Annotated[int, Whole(0), METRICS] = 1,
    bootstrap: Annotated[int, Whole(0), METRICS] = 1000,
    seed: Annotated[int, SEED, METRICS] = 0,
) -> "tuple[Evaluation, dict[str, Any], str]":
    """Show published scores by layer, and which metrics predict them.

    Args:
        results: CSV of scores, folder (or tar) of per-layer mteb results, or folder of an
            evaluation.
        min_share: share of the tasks (of the model with the most) on which a layer needs scores;
            layers with fewer are left out.
        metrics: CSV of metrics by layer, or the folder of a run: adds correlations with the scores,
            and what rules without labels would have chosen.
        variant: variant (normalization) of the metrics that have several; by default raw, else a
            metric's first.
        first_layer: first layer that counts for correlations and rules; 0 includes the embeddings.
        bootstrap: bootstrap resamples for the confidence intervals; 0 leaves them out.
        seed: random seed.

    Returns:
        The scores, what `Evaluation.document` shows of them, and a note, empty where there is none.

    Raises:
        LayerscopeError: for every wrong input.

    """
    options = checked(read_scores, locals(), ScoresOptions)
    from layerscope.scores import (
        corpus_averages,
        correlate,
        one_variant,
        open_evaluation,
        open_metrics,
        rules_table,
    )
    from layerscope.scores.metric_values import line_on_impossible

    evaluation = open_evaluation(options.results)
    shown: dict[str, Any] = {"min_share": options.min_share}
    evaluation.summary(**shown)  # a share that leaves nothing is refused before the long part
    if options.metrics is None:
        return evaluation, shown, ""
    measured = open_metrics(options.metrics)
    notes = []
    if impossible := line_on_impossible(measured):
        notes.append(f"{options.metrics}: {impossible}")
    values = one_variant(corpus_averages(measured), options.variant)
    which: dict[str, Any] = {"first_layer": options.first_layer, "min_share": options.min_share}
    shown["correlations"] = correlate(
        values, evaluation, **which, bootstrap=options.bootstrap, seed=options.seed
    )
    try:
        shown["rules"] = rules_table(evaluation, values, **which)
    except LayerscopeError as error:  # the rest stands without them
        notes.append(f"no rules: {error}")
    return evaluation, shown, "\n".join(notes)
