from pathlib import Path
from typing import TYPE_CHECKING, Any

from layerscope.core import LayerscopeError, checked
from layerscope.scores.options import ScoresOptions

if TYPE_CHECKING:
    from layerscope.scores.evaluation import Evaluation


def read_scores(
    results: Any, *, metrics: str | Path | None = None
) -> "tuple[Evaluation, dict[str, Any], str]":
    """Show published scores by layer, and which metrics predict them.

    Args:
        results: CSV of scores, folder of per-layer mteb results, or folder of an evaluation.
        metrics: CSV of metrics by layer, or the folder of a run: adds correlations with the scores,
            and what rules without labels would have chosen.

    Returns:
        The scores, what `Evaluation.document` shows of them, and a note, empty where there is none.

    Raises:
        LayerscopeError: for every wrong input.

    """
    options = checked(read_scores, locals(), ScoresOptions)
    from layerscope.scores import (
        corpus_averages,
        correlate,
        line_on_impossible,
        one_variant,
        open_evaluation,
        open_metrics,
        rules_table,
    )

    evaluation = open_evaluation(options.results)
    evaluation.summary()  # where nothing is left it is refused before the long part
    if options.metrics is None:
        return evaluation, {}, ""
    measured = open_metrics(options.metrics)
    notes = []
    if impossible := line_on_impossible(measured):
        notes.append(f"{options.metrics}: {impossible}")
    values = one_variant(corpus_averages(measured))
    shown = {"correlations": correlate(values, evaluation)}
    try:
        shown["rules"] = rules_table(evaluation, values)
    except LayerscopeError as error:  # the rest stands without them
        notes.append(f"no rules: {error}")
    return evaluation, shown, "\n".join(notes)
