"""How metrics by layer correlate with scores, and what rules without labels gain, as tables."""

import math
from collections.abc import Iterator, Sequence

import pandas as pd

from layerscope.core.errors import count, listed
from layerscope.scores.correlation import MEAN_OF_TASKS, MEAN_SCORE
from layerscope.scores.grids import Grid
from layerscope.scores.naming import Unit, measured_name, signed
from layerscope.scores.rules import by_family
from layerscope.show.document import EMPTY, Cell, Column, Part, Row, Sentences, Table, columns, row

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


def correlation_tables(correlations: pd.DataFrame, scored: Sequence[Grid]) -> Iterator[Part]:
    """Yield how metrics go with scores: of one model every statistic, of several their means and a row a model."""
    known, few, names = {}, [], {tuple(grid.about.values()): grid.name for grid in scored}
    for _, rows in correlations.groupby(MODEL, sort=False, dropna=False):
        name = names[tuple(rows.iloc[0][MODEL])]
        if rows["layers"].max() < FEWEST_LAYERS:
            few.append(f"{name} ({rows['layers'].max()})")
        else:
            known[name] = rows
    counted = f"{count(correlations['tasks'].max(), 'task')}, {correlations['layers'].max()} layers at most"
    statistics = list(correlations["statistic"].unique())
    legend = [
        f"{', '.join(f'{LETTERS[each]}: {NAMES[each]}' for each in statistics)}, with the mean score over layers. "
        f"{LETTERS[statistics[0]]} by task: the tasks' own, averaged. dCor has no sign and is above 0 for noise."
    ]
    if len(known) == 1:
        ((name, rows),) = known.items()
        yield _correlations(f"Metrics and scores by layer · {name} · {counted}", rows, legend)
    elif known:
        rows = pd.concat([rows.assign(series=name) for name, rows in known.items()])
        title = f"Metrics and scores by layer · mean of {len(known)} series"
        what = [*MEASURED, "target", "statistic"]
        own = rows.groupby([*what, "model"], sort=False, dropna=False)["estimate"].mean()
        means = own.groupby(level=what, sort=False, dropna=False).mean().reset_index()
        yield _correlations(
            f"{title} · {counted}", means.assign(low=math.nan, high=math.nan), (*legend, MEANS)
        )
        name = NAMES[rows["statistic"].iloc[0]]
        for corpus, part in rows.groupby("corpus", sort=False, dropna=False):
            yield _by_series(f"{name} by model{f' · on {corpus}' if corpus else ''}", part)
    if few:
        text = (
            f"Metrics and scores by layer: a correlation needs {FEWEST_LAYERS} layers; too few in"
        )
        yield Sentences("", (f"{text} {', '.join(few)}.",))


def _by_series(title: str, rows: pd.DataFrame) -> Table:
    """Return the first statistic with a row for each model, their mean first, and a column for each metric."""
    own = rows[(rows["target"] == MEAN_SCORE) & (rows["statistic"] == rows["statistic"].iloc[0])]
    own = own.assign(measured=[measured_name(found) for found in own.to_dict(orient="records")])
    mean = (
        own.groupby(["measured", "model"], sort=False)["estimate"]
        .mean()
        .groupby("measured", sort=False)
        .mean()
    )
    wide = own.pivot(index="series", columns="measured", values="estimate")[mean.index]
    lines = [Row((Cell("mean"), *map(signed, mean)), marked=True)]
    lines += [
        row(str(name), *map(signed, values)) for name, values in wide.dropna(how="all").iterrows()
    ]
    return Table(title, (Column("model", "left"), *columns(mean.index)), tuple(lines))


def _correlations(title: str, rows: pd.DataFrame, legend: Sequence[str]) -> Table:
    statistics, intervals = list(rows["statistic"].unique()), bool(rows["low"].notna().any())
    first, *more = (LETTERS[name] for name in statistics)
    titles = (first, *([f"{first}, 95 %"] if intervals else []), *more, f"{first} by task")
    legend = (*legend, *["The interval resamples tasks, layers held fixed."] * intervals)
    lines = []
    for corpus, part in rows.groupby("corpus", sort=False, dropna=False):
        if corpus:
            lines.append(Row((Cell(f"on {corpus}"), *[EMPTY] * len(titles)), quiet=True))
        for _, group in part.groupby(MEASURED[1:], sort=False, dropna=False):
            found, own = group.set_index(["target", "statistic"])["estimate"], group.iloc[0]
            cells = [signed(found[MEAN_SCORE, name]) for name in statistics]
            between = (
                f"{signed(own['low']).text} … {signed(own['high']).text}"
                if math.isfinite(own["low"])
                else ""
            )
            by_task = signed(found[MEAN_OF_TASKS, statistics[0]])
            lines.append(
                row(
                    f"  {measured_name(own)}",
                    cells[0],
                    *([between] * intervals),
                    *cells[1:],
                    by_task,
                )
            )
    return Table(title, (Column("metric", "left"), *columns(titles)), tuple(lines), legend)


def rule_tables(table: pd.DataFrame, unit: Unit) -> Iterator[Table]:
    """Yield a row for each rule, those that gain most first, then a row for each model with the best of them."""
    families = by_family(table)
    means = (
        families.groupby(level="rule").mean().sort_values("gain", ascending=False, kind="stable")
    )
    names = list(dict.fromkeys(table["family"]))
    shown = names if 1 < len(names) <= MOST_FAMILIES else []
    lines = []
    for rule, (gain, regret) in means.iterrows():
        own = families.loc[rule]["gain"]
        each = [unit.cell(own.get(name, math.nan), sign=True) for name in shown]
        lines.append(row(str(rule), unit.cell(gain, sign=True), unit.cell(regret), *each))
    titles = Column("rule", "left"), *columns(("gain", "regret", *shown))
    scale = ", in points" if unit.percent else ""
    legend = (
        "Gain: over the last layer. Regret: how much more the best layer scores. Means over the checkpoints of each "
        f"model, over the models of each family, then over families ({listed(names)}). Nothing was held out: the "
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
            own = rows[rows["rule"] == rule]
            layer = f"({own['layer'].iloc[0]})" if len(own) == 1 else ""
            cells.append(unit.cell(own["gain"].mean(), sign=True, detail=layer))
        lines.append(row(str(model), *cells))
    return Table(
        title,
        (Column("model", "left"), *columns(rules)),
        tuple(lines),
        (BY_MODEL,),
        name="rules-by-model",
    )


def best_rules(table: pd.DataFrame, unit: Unit) -> str:
    """Return which rule gains most, beside the fixed share of depth that does, in a sentence."""
    means = by_family(table)["gain"].groupby(level="rule").mean()
    shares = means[means.index.isin(table.loc[table["share"].notna(), "rule"])]
    share, best = shares.idxmax(), means.idxmax()
    gain = f"Of {len(means)} rules without labels {best!r} gains most"
    beside = (
        ""
        if best == share
        else f", a fixed share of depth at most {unit.difference(shares[share])} ({share})"
    )
    return f"{gain}: {unit.difference(means[best])} over the last layer{beside}; all by hindsight."
