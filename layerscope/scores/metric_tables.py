"""How metrics by layer correlate with scores, and what rules without labels gain, as tables."""

import math
from collections.abc import Iterator, Sequence

import pandas as pd

from layerscope.core.errors import count, listed
from layerscope.scores.correlation import MEAN_OF_TASKS, MEAN_SCORE
from layerscope.scores.grids import Grid
from layerscope.scores.naming import Unit, measured_name, signed
from layerscope.scores.rules import by_family
from layerscope.show.document import EMPTY, Cell, Column, Part, Sentences, Table, columns, row

LETTERS = {"spearman": "ρ", "kendall": "τ", "pearson": "r", "dcor": "dCor"}
NAMES = {
    "spearman": "Spearman",
    "kendall": "Kendall",
    "pearson": "Pearson",
    "dcor": "distance correlation",
}
FEWEST_LAYERS = 4
"""Layers below which no correlation is shown: over three any order is likely by chance alone (1 in 6)."""
MODEL = ["model", "revision", "scored_site", "scored_pooling"]
MEASURED = ["corpus", "metric", "variant", "site", "pooling"]
MEANS = "Means over the checkpoints of each model and then over models."
BY_MODEL = "Layers are in parentheses; a model with several checkpoints has only its mean gain."
SHOWN_RULES = 3
"""Rules whose gain on each model is shown."""
MOST_FAMILIES = 4
"""Families that have a column each."""


def correlation_tables(correlations: pd.DataFrame, grids: Sequence[Grid]) -> Iterator[Part]:
    """Yield how metrics go with scores: of one model every statistic, of several their means and a row a model."""
    names = {tuple(grid.about.values()): grid.name for grid in grids}
    series = correlations.groupby(MODEL, sort=False, dropna=False)
    shown, few = {}, []
    for _, rows in series:
        name, layers = names[tuple(rows.iloc[0][MODEL])], rows["layers"].max()
        if layers < FEWEST_LAYERS:
            few.append(f"{name} ({layers})")
        else:
            shown[name] = rows
    counted = f"{count(correlations['tasks'].max(), 'task')}, {correlations['layers'].max()} layers at most"
    statistics = list(correlations["statistic"].unique())
    letters = ", ".join(f"{LETTERS[each]}: {NAMES[each]}" for each in statistics)
    legend = (
        f"{letters}, with the mean score over layers. {LETTERS[statistics[0]]} by task: the tasks' own, averaged. "
        "dCor has no sign and is above 0 for noise."
    )
    title = "Metrics and scores by layer"
    if len(shown) == 1:
        ((name, rows),) = shown.items()
        yield _correlations(f"{title} · {name} · {counted}", rows, (legend,))
    elif shown:
        rows = pd.concat([rows.assign(series=name) for name, rows in shown.items()])
        title_of_mean = f"{title} · mean of {len(shown)} series · {counted}"
        yield _correlations(title_of_mean, _mean_over_models(rows), (legend, MEANS))
        for corpus, part in rows.groupby("corpus", sort=False, dropna=False):
            on = f" · on {corpus}" if corpus else ""
            yield _by_series(f"{NAMES[statistics[0]]} by model{on}", part)
    if few:
        text = f"{title}: a correlation needs {FEWEST_LAYERS} layers; too few in {', '.join(few)}."
        yield Sentences("", (text,))


def _mean_over_models(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the mean correlations over the series of each model, and then over models, without intervals."""
    what = [*MEASURED, "target", "statistic"]
    by_model = rows.groupby([*what, "model"], sort=False, dropna=False)["estimate"].mean()
    means = by_model.groupby(level=what, sort=False, dropna=False).mean().reset_index()
    return means.assign(low=math.nan, high=math.nan)


def _by_series(title: str, rows: pd.DataFrame) -> Table:
    """Return the first statistic with a row for each model, their mean first, and a column for each metric."""
    first = rows["statistic"] == rows["statistic"].iloc[0]
    rows = rows[first & (rows["target"] == MEAN_SCORE)]
    names = [measured_name(row) for row in rows.to_dict(orient="records")]
    rows = rows.assign(measured=names)
    by_model = rows.groupby(["measured", "model"], sort=False)["estimate"].mean()
    mean = by_model.groupby("measured", sort=False).mean()
    wide = rows.pivot(index="series", columns="measured", values="estimate")[mean.index]
    lines = [row("mean", *map(signed, mean), marked=True)]
    for name, values in wide.dropna(how="all").iterrows():
        lines.append(row(str(name), *map(signed, values)))
    return Table(title, (Column("model", "left"), *columns(mean.index)), tuple(lines))


def _correlations(title: str, rows: pd.DataFrame, legend: Sequence[str]) -> Table:
    """Return a row for each metric, those of each corpus together."""
    statistics, has_intervals = list(rows["statistic"].unique()), rows["low"].notna().any()
    first, *more = (LETTERS[name] for name in statistics)
    titles = [first, *more, f"{first} by task"]
    if has_intervals:
        titles.insert(1, f"{first}, 95 %")
        legend = (*legend, "The interval resamples tasks, layers held fixed.")
    lines = []
    for corpus, part in rows.groupby("corpus", sort=False, dropna=False):
        if corpus:
            lines.append(row(f"on {corpus}", *[EMPTY] * len(titles), quiet=True))
        for _, group in part.groupby(MEASURED[1:], sort=False, dropna=False):
            estimates, about = group.set_index(["target", "statistic"])["estimate"], group.iloc[0]
            cells = [signed(estimates[MEAN_SCORE, name]) for name in statistics]
            cells.append(signed(estimates[MEAN_OF_TASKS, statistics[0]]))
            if has_intervals:
                cells.insert(1, Cell(_between(about["low"], about["high"])))
            lines.append(row(f"  {measured_name(about)}", *cells))
    return Table(title, (Column("metric", "left"), *columns(titles)), tuple(lines), tuple(legend))


def _between(low: float, high: float) -> str:
    return f"{signed(low).text} … {signed(high).text}" if math.isfinite(low) else ""


def rule_tables(table: pd.DataFrame, unit: Unit) -> Iterator[Table]:
    """Yield a row for each rule, those that gain most first, then a row for each model with the best of them."""
    by_rule = by_family(table)
    means = by_rule.groupby(level="rule").mean()
    means = means.sort_values("gain", ascending=False, kind="stable")
    families = list(table["family"].unique())
    shown = families if 1 < len(families) <= MOST_FAMILIES else []
    lines = []
    for rule, (gain, regret) in means.iterrows():
        gains = by_rule.loc[rule]["gain"].reindex(shown)
        cells = [unit.cell(value, sign=True) for value in (gain, *gains)]
        lines.append(row(str(rule), cells[0], unit.cell(regret), *cells[1:]))
    titles = Column("rule", "left"), *columns(("gain", "regret", *shown))
    scale = ", in points" if unit.percent else ""
    legend = (
        "Gain: over the last layer. Regret: how much more the best layer scores. Means over the checkpoints of each "
        f"model, over the models of each family, then over families ({listed(families)}). Nothing was held out: the "
        f"best of {len(means)} rules looks better here than it is."
    )
    yield Table(f"Rules without labels{scale}", titles, tuple(lines), (legend,), name="rules")
    title = f"Gain over the last layer by model{scale}: the rules that gain most"
    yield _by_model(title, table, means.index[:SHOWN_RULES], unit)


def _by_model(title: str, table: pd.DataFrame, rules: Sequence[str], unit: Unit) -> Table:
    """Return a row for each model: the gain of each of these rules, and the layer where the model has one revision."""
    lines = []
    for model, rows in table.groupby("model", sort=False):
        cells = []
        for rule in rules:
            of_rule = rows[rows["rule"] == rule]
            layer = f"({of_rule['layer'].iloc[0]})" if len(of_rule) == 1 else ""
            cells.append(unit.cell(of_rule["gain"].mean(), sign=True, detail=layer))
        lines.append(row(str(model), *cells))
    titles = Column("model", "left"), *columns(rules)
    return Table(title, titles, tuple(lines), (BY_MODEL,), name="rules-by-model")


def best_rules(table: pd.DataFrame, unit: Unit) -> str:
    """Return which rule gains most, beside the fixed share of depth that does, in a sentence."""
    gains = by_family(table)["gain"].groupby(level="rule").mean()
    shares = gains[gains.index.isin(table.loc[table["share"].notna(), "rule"])]
    share, best = shares.idxmax(), gains.idxmax()
    gain = unit.difference(gains[best])
    text = f"Of {len(gains)} rules without labels {best!r} gains most: {gain} over the last layer"
    if best != share:
        text += f", a fixed share of depth at most {unit.difference(shares[share])} ({share})"
    return f"{text}; all by hindsight."
