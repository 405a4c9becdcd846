"""How metrics by layer correlate with scores, and what rules without labels gain, as tables."""

import math
from collections.abc import Iterator, Sequence
from typing import Any

import pandas as pd

from layerscope.core.errors import count
from layerscope.scores.correlation import MEAN_OF_TASKS, MEAN_SCORE
from layerscope.scores.grids import Grid
from layerscope.scores.naming import Unit, signed
from layerscope.scores.rules import Rule
from layerscope.scores.trust import distrust
from layerscope.show.document import EMPTY, Cell, Column, Part, Row, Sentences, Table, columns, row

LETTERS = {"spearman": "ρ", "kendall": "τ", "pearson": "r", "dcor": "dCor"}
NAMES = {"spearman": "Spearman", "kendall": "Kendall", "pearson": "Pearson", "dcor": "distance correlation"}
FEWEST_LAYERS = 4
"""Layers below which no correlation is shown: over three any order is likely by chance alone (1 in 6)."""
MODEL = ["model", "revision", "scored_site", "scored_pooling"]
MEASURED = ["corpus", "metric", "variant", "site", "pooling"]
MEANS = "Means over the checkpoints of each model and then over models."
BY_MODEL = "Layers are in parentheses; a model with several checkpoints has only its mean gain."
SHOWN_RULES = 3
"""Rules whose gain on each model is shown where there is no room for all."""


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
        yield _correlations(f"{title} · {counted}", means.assign(low=math.nan, high=math.nan), (*legend, MEANS))
        name = NAMES[rows["statistic"].iloc[0]]
        for corpus, part in rows.groupby("corpus", sort=False, dropna=False):
            yield _by_series(f"{name} by model{f' · on {corpus}' if corpus else ''}", part)
    if few:
        text = f"Metrics and scores by layer: a correlation needs {FEWEST_LAYERS} layers; too few in"
        yield Sentences("", (f"{text} {', '.join(few)}.",))


def _by_series(title: str, rows: pd.DataFrame) -> Table:
    """Return the first statistic with a row for each model, their mean first, and a column for each metric."""
    own = rows[(rows["target"] == MEAN_SCORE) & (rows["statistic"] == rows["statistic"].iloc[0])]
    own = own.assign(measured=[_measured(found) for found in own.to_dict(orient="records")])
    mean = own.groupby(["measured", "model"], sort=False)["estimate"].mean().groupby("measured", sort=False).mean()
    wide = own.pivot(index="series", columns="measured", values="estimate")[mean.index]
    lines = [Row((Cell("mean"), *map(signed, mean)), marked=True)]
    lines += [row(str(name), *map(signed, values)) for name, values in wide.dropna(how="all").iterrows()]
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
            between = f"{signed(own['low']).text} … {signed(own['high']).text}" if math.isfinite(own["low"]) else ""
            by_task = signed(found[MEAN_OF_TASKS, statistics[0]])
            lines.append(row(f"  {_measured(own)}", cells[0], *([between] * intervals), *cells[1:], by_task))
    return Table(title, (Column("metric", "left"), *columns(titles)), tuple(lines), legend)


def _measured(row: Any) -> str:
    where = [str(row[key]) for key in ("variant", "site", "pooling") if not pd.isna(row[key]) and row[key] != "raw"]
    return str(row["metric"]) + (f" ({', '.join(where)})" if where else "")


def rule_tables(rules: Sequence[Rule], unit: Unit) -> Iterator[Table]:
    """Yield a row for each rule, then a row for each model with the gain of the rules that gain most."""
    failed = any(rule.failures for rule in rules)
    titles = ["gain", "rival", "regret", "failed", *(["worst"] if failed else []), "agree"]
    lines = []
    for rule in rules:
        of = len(rule.choices)
        worst = [unit.cell(rule.worst_gain if rule.failures else None, sign=True)] if failed else []
        agree = "" if rule.direction is None else f"{rule.agreeing} of {of}"
        means = *(unit.cell(gain, sign=True) for gain in (rule.mean_gain, rule.rival_gain)), unit.cell(rule.mean_regret)
        cells = [Cell(rule.name), *means, Cell(f"{rule.failures} of {of}"), *worst, Cell(agree)]
        lines.append(Row(tuple(cells), marked=rule.share is None and rule.mean_gain > rule.rival_gain))
    scale = ", in points" if unit.percent else ""
    chosen = [rule for rule in rules if rule.choices]
    legend = (
        "Gain over the last layer on models that took no part in fitting the rule, mean over the checkpoints of each "
        "and then over models. Rival: the better of a layer drawn at random and a fixed share of depth chosen on the "
        f"other models. Regret: how much more the best layer scores. Agree: how often the direction was that of all "
        f"models. Tried on {max((len(rule.gains) for rule in chosen), default=0)} models."
    )
    yield Table(f"Rules without labels{scale}", (Column("rule", "left"), *columns(titles)), tuple(lines), (legend,))
    if chosen:
        title = f"Gain over the last layer by model{scale}"
        best = sorted(chosen, key=lambda rule: -rule.mean_gain)[:SHOWN_RULES]
        narrow = (_by_model(f"{title}: the rules that gain most", best, unit),) if len(chosen) > len(best) else ()
        yield _by_model(title, chosen, unit, narrow)


def _by_model(title: str, rules: Sequence[Rule], unit: Unit, narrow: tuple[Table, ...] = ()) -> Table:
    """Return a row for each model: the gain of each rule there, and the layer it chose where the model has one."""
    models = list(dict.fromkeys(model for rule in rules for model in rule.gains))
    lines = []
    for model in models:
        cells = []
        for rule in rules:
            layer = f"({rule.layers[model]})" if model in rule.layers else ""
            cells.append(unit.cell(rule.gains.get(model, math.nan), sign=True, detail=layer))
        lines.append(row(model, *cells))
    titles = columns(rule.name for rule in rules)
    return Table(title, (Column("model", "left"), *titles), tuple(lines), (BY_MODEL,), narrow)


def rules_verdict(rules: Sequence[Rule]) -> str:
    """Return how many rules are worth following, in a sentence."""
    chosen = [rule for rule in rules if rule.choices and rule.share is None]
    ahead = sum(rule.mean_gain > rule.rival_gain for rule in chosen)
    if not ahead:
        return "No rule gains more than its rival: none has found anything."
    certain = sum(distrust(rule, None, len(rules)) is None for rule in chosen)
    gain = "gains more than its rival" if ahead == 1 else "gain more than their rivals"
    sure = (
        "and may be followed" if certain == ahead else f"and {certain or 'none'} so certainly that it may be followed"
    )
    return f"{ahead} of {len(chosen)} rules {gain}, {sure}."
