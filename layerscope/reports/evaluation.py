"""Scores of layers on tasks in a terminal: a row per model, what metrics say about them, and what rules gain."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import Any

import pandas as pd
from rich import box
from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from layerscope.reports.score_tables import show_tasks
from layerscope.scores.correlation import MEAN_OF_TASKS, MEAN_SCORE
from layerscope.scores.evaluation import Evaluation
from layerscope.scores.rules import Rule, rules_table
from layerscope.scores.scored import (
    PLACE,
    SHOWN,
    decimals,
    named_layers,
    one_model,
    place_name,
    scored,
    series_name,
    shared_place,
    told,
)
from layerscope.scores.summary import MIN_SHARE
from layerscope.show.plain import plain
from layerscope.show.spark import spark

LETTERS = {"spearman": "ρ", "kendall": "τ", "pearson": "r", "dcor": "dCor"}
FEWEST_LAYERS = 4
"""Layers below which no correlation is printed: over three any order is likely by chance alone (1 in 6)."""
NAMES = {"spearman": "Spearman", "kendall": "Kendall", "pearson": "Pearson", "dcor": "distance correlation"}


def show(
    evaluation: Evaluation,
    *,
    min_share: float = MIN_SHARE,
    correlations: pd.DataFrame | None = None,
    rules: Sequence[Rule] = (),
    console: Console | None = None,
) -> None:
    """Print an evaluation: a row per model, of one model its layers by task, then correlations and rules, if any.

    Scores are in their own units. `correlations` are those of `Evaluation.correlate` averaged over tasks. Every text
    that came from data is printed as it is, never as markup.
    """
    console = console or Console()
    missing = f"{evaluation.missing:,} missing" if evaluation.missing else "none missing"
    console.print(Text.assemble((plain(evaluation.source), "bold"), f" · {len(evaluation.scores):,} scores, {missing}"))
    known, places = scored(evaluation, min_share), decimals(evaluation)
    where = shared_place(evaluation.scores)
    single = one_model(evaluation.scores)
    model = known[0].grid.about["model"] if single else ""
    title = " · ".join(filter(None, ("Scores by layer", model, where)))
    _print(console, title, _summary(evaluation, min_share, console), _summary_legend(evaluation, min_share))
    if single:
        for entry in known:
            by_task = " · ".join(filter(None, ("Layers by task", entry.name if len(known) > 1 else "", where)))
            show_tasks(entry, by_task, places, console)
    if correlations is not None:
        for title, rows in _by_model(correlations, evaluation.scores):
            if rows["layers"].max() < FEWEST_LAYERS:
                few = f"{title}: {rows['layers'].max()} layers are too few to correlate, {FEWEST_LAYERS} are needed"
                console.print(Text(plain(f"Metrics and scores by layer · {few}.")))
                continue
            _print(console, f"Metrics and scores by layer · {title}", _correlations(rows), _correlation_legend(rows))
    if rules:
        _print(console, "Rules without labels", _rules(rules, places, console), _rules_legend(rules))


def summary_json(
    evaluation: Evaluation,
    *,
    min_share: float = MIN_SHARE,
    correlations: pd.DataFrame | None = None,
    rules: Sequence[Rule] = (),
) -> dict[str, Any]:
    """Return an evaluation as JSON can hold it: source, missing, summary, scores, correlations, rules; NaN is null."""
    return {
        "source": evaluation.source,
        "missing": evaluation.missing,
        "min_share": min_share,
        "summary": _records(evaluation.summary(min_share)),
        "scores": _records(evaluation.scores),
        "correlations": [] if correlations is None else _records(correlations),
        "rules": [
            row | {"choices": [vars(choice) | {"gain": choice.gain} for choice in rule.choices]}
            for row, rule in zip(_records(rules_table(rules)), rules, strict=True)
        ],
    }


def _records(frame: pd.DataFrame) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(frame.to_json(orient="records", double_precision=15))
    return found


def _print(console: Console, title: str, table: Table, legend: str) -> None:
    console.print(Text(f"\n{plain(title)}", style="bold"))
    console.print(table)
    console.print(Padding(Text(legend), (0, 0, 0, 2), expand=False), style="dim")


def _table(*headings: str) -> Table:
    """Return a table whose first column gives way where the console is narrow."""
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    for i, heading in enumerate(headings):
        table.add_column(Text(heading), justify="right" if i else "left", overflow="fold", no_wrap=i > 0)
    return table


def _summary(evaluation: Evaluation, min_share: float, console: Console) -> Table:
    """Return a row a model, site and pooling; without its shapes where these leave no room for names."""
    table = _rows(evaluation, min_share, any(len(grid.complete) > 1 for grid in evaluation.grids(min_share)))
    wanted = console.measure(table, options=console.options.update(width=10_000)).maximum
    return table if wanted <= console.width else _rows(evaluation, min_share, False)


def _rows(evaluation: Evaluation, min_share: float, shapes: bool) -> Table:
    frame, places = evaluation.summary(min_share), decimals(evaluation)
    shown = [name for name in SHOWN if frame[name].notna().any()]
    if (frame["best_layer"] == frame["best_block_layer"]).all():
        shown = [name for name in shown if name != "best_block"]
    several, heading = len(frame) > 1, _heading(evaluation)
    table = _table(*([heading] * several), *(SHOWN[name] for name in shown), *(["by depth"] * shapes))
    for row, grid in zip(frame.to_dict(orient="records"), evaluation.grids(min_share), strict=True):
        cells = [_scored(row, name, places) for name in shown]
        line = spark(grid.average) if len(grid.complete) > 1 and not grid.complete.empty else ""
        names = [Text(_name(row, evaluation).removesuffix(" pooling" if "pooling" in heading else ""))] * several
        table.add_row(*names, *cells, *([Text(line, style="cyan")] * shapes))
    return table


def _name(about: dict[str, Any], evaluation: Evaluation) -> str:
    """Return what tells a row from the others: site and pooling, and the model where there are several."""
    own = place_name(about, evaluation.scores) if one_model(evaluation.scores) else ""
    return own or series_name(about, evaluation.scores)


def _heading(evaluation: Evaluation) -> str:
    """Return what `_name` names."""
    if not one_model(evaluation.scores):
        return "model"
    layers = evaluation.scores[evaluation.scores["kind"] == "layer"]
    return ", ".join(key for key in PLACE if layers[key].nunique(dropna=False) > 1) or "model"


def _scored(row: dict[str, Any], name: str, decimals: int) -> str:
    """Return a score, with the layer it is of where that is a finding."""
    if pd.isna(row[name]):
        return "–"
    return told(row[name], decimals) + (f" ({row[f'{name}_layer']})" if name.startswith("best") else "")


def _summary_legend(evaluation: Evaluation, min_share: float) -> str:
    embedded = any(0 in grid.complete.index for grid in evaluation.grids(min_share))
    lines = [
        "In parentheses the layer. Means run over the tasks present at every layer; the oracle takes each task's own "
        f"best layer{'; layer 0, the embedding output, is one of the layers' if embedded else ''}."
    ]
    frame = evaluation.summary(min_share)
    for row, grid in zip(frame.to_dict(orient="records"), evaluation.grids(min_share), strict=True):
        tasks = "1 task" if row["tasks"] == 1 else f"{row['tasks']} tasks"
        facts = f"{named_layers([int(layer) for layer in grid.complete.index])} on {tasks}"
        if grid.left_out:
            needed, of = math.ceil(min_share * grid.scores.shape[1] - 1e-9), grid.scores.shape[1]
            facts += f"; left out with scores on fewer than {needed} of {of} tasks: {named_layers(grid.left_out)}"
        if grid.missing:
            facts += f"; {grid.missing} of {grid.scores.size} scores missing"
        lines.append(f"{_name(row, evaluation)}: {facts}.")
    return "\n".join(lines)


def _by_model(correlations: pd.DataFrame, scores: pd.DataFrame) -> list[tuple[str, pd.DataFrame]]:
    keys = ["model", "revision", "scored_site", "scored_pooling"]
    found = []
    for _, rows in correlations.groupby(keys, sort=False, dropna=False):
        first = rows.iloc[0]
        about = {"site": first["scored_site"], "pooling": first["scored_pooling"]}
        found.append((series_name(first[["model", "revision"]].to_dict() | about, scores), rows))
    return found


def _correlations(rows: pd.DataFrame) -> Table:
    statistics = list(rows["statistic"].unique())
    letters = [LETTERS[name] for name in statistics]
    table = _table("metric", letters[0], f"{letters[0]}, 95 %", *letters[1:], f"{letters[0]} by task")
    for corpus, part in rows.groupby("corpus", sort=False, dropna=False):
        table.add_row(Text(f"on {plain(str(corpus))}" if corpus else "", style="dim"))
        for _, group in part.groupby(["metric", "variant", "site", "pooling"], sort=False, dropna=False):
            found = group.set_index(["target", "statistic"])
            first = found.loc[(MEAN_SCORE, statistics[0])]
            cells = [_signed(found.loc[(MEAN_SCORE, name), "estimate"]) for name in statistics]
            between = f"{_signed(first['low'])} … {_signed(first['high'])}" if math.isfinite(first["low"]) else ""
            rest = _signed(found.loc[(MEAN_OF_TASKS, statistics[0]), "estimate"])
            table.add_row(Text(f"  {_measured(first)}"), cells[0], between, *cells[1:], rest)
    return table


def _interval(rows: pd.DataFrame) -> bool:
    return bool(rows["low"].notna().any())


def _measured(row: Any) -> str:
    where = [str(row[key]) for key in ("variant", "site", "pooling") if not pd.isna(row[key]) and row[key] != "raw"]
    return plain(str(row["metric"]) + (f" ({', '.join(where)})" if where else ""))


def _correlation_legend(rows: pd.DataFrame) -> str:
    name = rows["statistic"].iloc[0]
    known = ", ".join(f"{LETTERS[each]}: {NAMES[each]}" for each in rows["statistic"].unique())
    text = (
        f"{known}, with the mean score of {rows['tasks'].max()} tasks over {rows['layers'].max()} layers at most. "
        f"{LETTERS[name]} by task: the tasks' own, averaged. dCor has no sign and is above 0 for noise."
    )
    if _interval(rows):
        text += " The interval resamples tasks, layers held fixed."
    return text


def _rules(rules: Sequence[Rule], decimals: int, console: Console) -> Table:
    """Return a row a rule; without the gain on each of more than two models where these leave no room for names."""
    models = list(dict.fromkeys(model for rule in rules for model in rule.gains))
    table = _rules_on(models, rules, decimals)
    wanted = console.measure(table, options=console.options.update(width=10_000)).maximum
    return table if wanted <= console.width or len(models) <= 2 else _rules_on([], rules, decimals)


def _rules_on(models: Sequence[str], rules: Sequence[Rule], decimals: int) -> Table:
    failed = any(rule.failures for rule in rules)
    table = _table("rule", *map(plain, models), "mean", "rival", "failed", *(["worst"] * failed), "agree")
    for rule in rules:
        layers = rule.layers
        gains = {model: told(gain, decimals, sign=True) for model, gain in rule.gains.items()}
        gains |= {model: f"{gain} ({layers[model]})" for model, gain in gains.items() if model in layers}
        cells = [gains.get(model, "–") for model in models]
        means = (rule.mean_gain, rule.rival_gain)
        found = [told(gain, decimals, sign=True) if math.isfinite(gain) else "–" for gain in means]
        worst = told(rule.worst_gain, decimals, sign=True) if rule.failures else "–"
        of = len(rule.choices)
        agree = "" if rule.direction is None else f"{rule.agreeing} of {of}"
        table.add_row(
            Text(plain(rule.name)), *cells, *found, f"{rule.failures} of {of}", *([worst] * failed), agree
        )  # fmt: skip
    return table


def _rules_legend(rules: Sequence[Rule]) -> str:
    chosen = [rule for rule in rules if rule.choices]
    models = max((len(rule.gains) for rule in chosen), default=0)
    ahead = sum(rule.mean_gain > rule.rival_gain for rule in chosen)
    return (
        "Gain over the last layer (and the layer chosen) on models that took no part in fitting the direction, mean "
        "over the checkpoints of each and then over models; rival: the better of a layer drawn at random and a fixed "
        "share of depth chosen on the other models, for the same models; agree: how often the direction was the one "
        f"of all models. {_ahead(ahead, len(chosen))} Tried on {models} models."
    )


def _ahead(ahead: int, rules: int) -> str:
    """Return how many rules are worth following, in a sentence."""
    if not ahead:
        return "No rule gains more than its rival: none has found anything."
    return f"{ahead} of {rules} rules gain{'s' * (ahead == 1)} more than the rival; any other has found nothing."


def _signed(value: float) -> str:
    return told(value, 2, sign=True)
