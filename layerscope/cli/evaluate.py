from __future__ import annotations

import sys
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from layerscope.cli import output, usage
from layerscope.cli.options import WHOLE, AsJson, app

if TYPE_CHECKING:
    import pandas as pd

    from layerscope.evaluation import Evaluation, Rule

SCORES = "Published scores"


@app.command(
    epilog="""
[bold]Examples[/bold]

First, best and last layer of every model in a table of scores (model, revision, layer, task, main_score):
  layerscope evaluate --results mteb_scores.csv.gz

How metrics by layer go with them, and what choosing a layer by a metric gains on a model held out:
  layerscope evaluate --results mteb_scores.csv.gz --metrics metrics.csv.gz
"""
)
def evaluate(  # noqa: D417
    results: Annotated[
        str | None,
        typer.Option(
            help="CSV of scores, folder of per-layer mteb results, or a saved evaluation.", rich_help_panel=SCORES
        ),
    ] = None,
    metrics: Annotated[
        str | None,
        typer.Option(help="CSV of metrics by layer, or a run folder: correlations and rules.", rich_help_panel=SCORES),
    ] = None,
    variant: Annotated[
        str | None,
        typer.Option(
            help="Variant (normalization) of the metrics that have it.",
            show_default="raw, else a metric's first",
            rich_help_panel=SCORES,
        ),
    ] = None,
    min_share: Annotated[
        str, typer.Option(help="Leave out layers with less than this share of the tasks.", rich_help_panel=SCORES)
    ] = "25/32",
    first_layer: Annotated[
        str,
        typer.Option(
            help="First layer of correlations and rules; 0 takes the embeddings in.",
            metavar=WHOLE,
            rich_help_panel=SCORES,
        ),
    ] = "1",
    bootstrap: Annotated[
        str, typer.Option(help="Resamples of the intervals; 0: none.", metavar=WHOLE, rich_help_panel=SCORES)
    ] = "1000",
    seed: Annotated[str, typer.Option(help="Of the resamples.", metavar=WHOLE, rich_help_panel=SCORES)] = "0",
    save: Annotated[
        Path | None, typer.Option(help="Write the scores into this folder.", rich_help_panel=SCORES)
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show the scores of [bold]every layer[/bold] on tasks, and which metrics tell them."""
    from layerscope.errors import LayerscopeError

    if results is None:
        raise LayerscopeError("layerscope evaluate needs --results: a CSV of scores, or a folder of mteb results")
    from layerscope.evaluation import open_evaluation
    from layerscope.progress import paper
    from layerscope.reports import evaluation as report

    evaluation, share = open_evaluation(results), _share(min_share)
    evaluation.summary(share)  # a share that leaves nothing is told before the long part
    found: dict[str, Any] = {}
    if metrics is not None:
        found = _against(evaluation, metrics, variant, {
            "first_layer": usage.whole(first_layer), "min_share": share,
        }, {"bootstrap": usage.whole(bootstrap), "seed": usage.whole(seed)})  # fmt: skip
    if save is not None:
        print(f"saved: {evaluation.save(save)}", file=sys.stderr)
    if as_json:
        output.as_json(report.summary_json(evaluation, min_share=share, **found))
        return
    report.show(evaluation, min_share=share, **found, console=paper())


def _against(
    evaluation: Evaluation, metrics: str, variant: str | None, shared: dict[str, Any], resampled: dict[str, Any]
) -> dict[str, Any]:
    """Return the correlations of metrics with scores, and the rules where there are models enough to test them."""
    from importlib.util import find_spec

    from layerscope.errors import LayerscopeError
    from layerscope.evaluation import corpus_averages, fit_rules, one_variant, open_metrics
    from layerscope.evaluation.statistics import STATISTICS

    statistics = [name for name in STATISTICS if name != "dcor" or find_spec("dcor") is not None]
    if "dcor" not in statistics:
        print("without distance correlation: pip install 'layerscope[evaluation]'", file=sys.stderr)
    values = one_variant(corpus_averages(open_metrics(metrics)), variant)
    correlations: pd.DataFrame = evaluation.correlate(values, statistics=statistics, **shared, **resampled)
    rules: list[Rule] = []
    try:
        rules = fit_rules(values, evaluation, **shared)
    except LayerscopeError as error:  # the rest stands without them
        print(f"no rules: {error}", file=sys.stderr)
    return {"correlations": correlations, "rules": rules}


def _share(text: str) -> Any:
    """Return the share a text such as 25/32 or 0.8 holds, or the text itself, which is then refused by name."""
    try:
        return float(Fraction(text))
    except (ValueError, ZeroDivisionError):
        return text
