"""What rules without labels would have chosen: the layer at a metric's extremum, or at a fixed share of the depth.

A rule knows nothing of the scores. What it chooses is then looked up among them: its *gain* over the
last layer, and its *regret*, what the best layer has more. Models of one family are much alike, as
are the checkpoints of one model, so that means run over checkpoints, models and families in turn.
"""

import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import pandas as pd

from layerscope.core import LayerscopeError
from layerscope.scores.correlation import pairs
from layerscope.scores.grids import Grid, candidates
from layerscope.scores.metric_values import curves
from layerscope.scores.naming import measured_name

if TYPE_CHECKING:
    from layerscope.scores.evaluation import Evaluation
    from layerscope.scores.metric_values import Metrics

SHARES = tuple(tenth / 10 for tenth in range(1, 11))
"""Shares of the depth that are tried; the last one is the last layer."""
COLUMNS = (
    "rule", "corpus", "metric", "variant", "site", "pooling", "extremum", "share", "family", "model", "revision",
    "layer", "score", "gain", "regret",
)  # fmt: skip
PUBLISHED = {
    ("maximum", "intrinsic_dimension"): " (the peak of Valeriani et al. 2023)",
    ("maximum", "isotropy"): " (LOES without labels, Batra et al. 2026)",
}
"""Rules that others proposed, by extremum and metric."""
SIZES = ("tiny", "mini", "small", "base", "medium", "large", "xl", "xxl")
"""Words of a model's name that tell its size."""


def rules_table(
    evaluation: "Evaluation",
    metrics: "Metrics | None" = None,
) -> pd.DataFrame:
    """Return which layer each rule without labels would have chosen for each model, and what that layer scores.

    A rule takes the layer at the minimum or the maximum of a metric, or the one nearest to a share
    of the depth; of layers that tie, the shallowest. `metrics` is what `open_metrics` takes or
    returns; without them there are shares alone. Nothing is fitted or held out: the best of many
    rules looks better here than it is. `gain` is the score less that of the last layer, `regret`
    how much more the best layer scores, in the scores' own units. A model is left out where its
    last layer has no score, or scores on too few of the tasks; layer 0 is no candidate. Columns:
    those of `COLUMNS`. Raises `LayerscopeError` where no model is left.

    >>> from layerscope.scores import open_evaluation, open_metrics, rules_table
    >>> table = rules_table(open_evaluation("scores.csv"), open_metrics("metrics.csv"))
    >>> table.loc[table["extremum"] == "minimum", ["rule", "model", "layer", "gain", "regret"]].round(2)
                                rule  model  layer  gain  regret
    0  minimum dataset_entropy · wiki  small      2  0.06     0.0
    2  minimum dataset_entropy · wiki  large      2  0.02     0.0
    """
    rows: list[dict[str, Any]] = []
    deepest = {}
    if metrics is not None:
        measured = curves(metrics)
        deepest = measured.groupby("model")["layer"].max().to_dict()
    whole = []
    for grid in evaluation.grids():
        last = max(grid.depth, deepest.get(grid.about["model"], 0))
        if last in grid.complete.index and grid.complete.shape[1] >= grid.needed:
            whole.append(grid)
    if not whole:
        raise LayerscopeError(
            "no model has scores of its last layer on enough tasks: evaluate that layer too"
        )
    if metrics is not None:
        for about, grid, curve in pairs(measured, whole):
            rows += _extrema(grid, about, curve)
    for grid in whole:
        rows += _shares(grid)
    return pd.DataFrame(rows, columns=list(COLUMNS)).astype({"layer": "int64"})


def by_family(table: pd.DataFrame) -> pd.DataFrame:
    """Return the mean gain and regret of each rule and family: over a model's revisions, then over the models.

    >>> from layerscope.scores import open_evaluation, rules_table
    >>> from layerscope.scores.rules import by_family
    >>> by_family(rules_table(open_evaluation("scores.csv"))).loc["60 % of the depth"].round(2)
            gain  regret
    family
    large   0.02     0.0
    small   0.06     0.0
    """
    of_model = table.groupby(["rule", "family", "model"])[["gain", "regret"]].mean()
    return of_model.groupby(level=["rule", "family"]).mean()


def family_of(model: str) -> str:
    """Return the family of a model: its name without organisation, and up to a size or a version.

    >>> from layerscope.scores.rules import family_of
    >>> family_of("EleutherAI/pythia-410m"), family_of("bert-base-uncased"), family_of("all-MiniLM-L6-v2")
    ('pythia', 'bert', 'all-minilm')
    """
    first, *words = re.split(r"[-_ ]", model.rpartition("/")[2].lower())
    family = [first]
    for word in words:
        if word in SIZES or re.search(r"\d", word):
            break
        family.append(word)
    return "-".join(family)


def _extrema(
    grid: Grid, about: Mapping[str, Any], curve: pd.Series
) -> Iterator[dict[str, Any]]:
    """Yield what the layers of the lowest and the highest value of a metric come to."""
    averages = candidates(grid.average)
    values = curve[curve.index.isin(averages.index)]
    if values.empty:
        return
    name = " · ".join(filter(None, (measured_name(about), about["corpus"])))
    columns = ("corpus", "metric", "variant", "site", "pooling")
    measured = {column: about[column] for column in columns}
    extrema = {"minimum": values.idxmin(), "maximum": values.idxmax()}
    for extremum, layer in extrema.items():
        source = PUBLISHED.get((extremum, about["metric"]), "")
        rule = {"rule": f"{extremum} {name}{source}", "extremum": extremum, **measured}
        yield rule | _outcome(grid, averages, layer)


def _shares(grid: Grid) -> Iterator[dict[str, Any]]:
    """Yield what the layer nearest to each share of the depth comes to."""
    averages = candidates(grid.average)
    depths = pd.Series(averages.index / averages.index[-1], averages.index)
    for share in SHARES:
        layer = (depths - share).abs().round(9).idxmin()
        rule = {"rule": f"{100 * share:.0f} % of the depth", "share": share}
        yield rule | _outcome(grid, averages, layer)


def _outcome(grid: Grid, averages: pd.Series, layer: int) -> dict[str, Any]:
    """Return a layer that was chosen, its score, gain and regret."""
    model = str(grid.about["model"])
    score = averages[layer]
    return {
        "family": family_of(model),
        "model": model,
        "revision": grid.about["revision"],
        "layer": layer,
        "score": score,
        "gain": score - averages.iloc[-1],
        "regret": averages.max() - score,
    }
