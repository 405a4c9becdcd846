"""A choice of a layer in a terminal: the answer in one line, why, every alternative, and the evidence."""

from __future__ import annotations

import math
import shlex
from collections.abc import Sequence

from rich import box
from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from layerscope.evaluation.rules import Rule
from layerscope.reports.plain import plain
from layerscope.selecting.selection import SHIPPED, Candidate, Refused, Selection

MOST_REFUSED = 6


def show(selection: Selection, console: Console | None = None) -> None:
    """Print a choice; every name that came from data is printed as it is, never as markup."""
    console = console or Console()
    console.print(Text(plain(answer(selection)), style="bold"))
    console.print(Text(plain(f"{selection.rule}: {selection.why}")))
    if selection.evidence is not None:
        for line in record(selection.evidence, forced=selection.forced):
            console.print(Text(plain(line)))
    if selection.refused:
        console.print(_refused(selection.refused))
    if any(known is not None for row in selection.layers for known in (row.score, row.value, row.parameters)):
        console.print(Text(f"\n{plain(_title(selection))}", style="bold"))
        console.print(_layers(selection))
        console.print(Padding(Text(_legend(selection)), (0, 0, 0, 2), expand=False), style="dim")
    for note in selection.notes:
        console.print(Padding(Text(plain(note)), (0, 0, 0, 2), expand=False), style="dim")
    console.print(Text(ship(selection)), soft_wrap=True)  # never wrapped: a command is copied whole


def answer(selection: Selection) -> str:
    """Return the answer in one line: layer, score, difference to the baseline, size and speed."""
    chosen, depth = selection.chosen, selection.depth
    where = selection.baseline_name if selection.as_shipped else f"layer {selection.layer} of {depth}"
    facts = [where]
    if chosen.score is not None:
        facts.append(_score(chosen, selection.share))
        if not selection.as_shipped:
            facts.append(f"{_difference(chosen, selection.share)} against {selection.baseline_name}")
    elif not selection.as_shipped:
        facts.append("its score is not known: no labels, no tasks")
    if chosen.parameters is not None:
        facts += [f"{chosen.parameters:,} parameters", f"{chosen.megabytes:,.1f} MB"]
        facts += [f"{chosen.milliseconds:.2f} ms a sample", f"{chosen.speedup:.2f} × faster"]
    return " · ".join(facts)


def ship(selection: Selection) -> str:
    """Return the command that writes the chosen model, on a line of its own, or why there is none."""
    if selection.as_shipped:
        kept = (
            "keep the model as it is"
            if selection.baseline_name == SHIPPED
            else "the last layer that was scored is the choice"
        )
        return f"nothing to truncate: {kept}"
    if selection.layer == 0:
        return "layer 0 is what the first block reads: no model ends there"
    source, name = selection.source or selection.model, f"{selection.model.split('/')[-1]}-layer{selection.layer}"
    raw = ["--site", "raw", "--format", "onnx"] if selection.raw_only else []
    words = ["layerscope", "truncate", source, "--layer", str(selection.layer), *raw, "--out", name]
    return f"ship it:\n{shlex.join(words)}"


def record(rule: Rule, forced: bool = False) -> list[str]:
    """Return how a rule without labels did on models held out, in lines."""
    if not rule.choices:
        return ["it was never tried on a model held out: followed because it was asked for"]
    tried, models = len(rule.choices), len({choice.model for choice in rule.choices})
    wrong = f", by {_points(rule.worst_gain)} at worst" if rule.failures else ""
    lines = [
        f"in {tried} choices on {models} model{'s' * (models > 1)} held out it gained {_points(rule.mean_gain)} over "
        f"the last layer on average (a layer at random: {_points(rule.chance_gain)}, a fixed share of depth: "
        f"{_points(rule.fixed_gain)}) and fell behind it "
        f"{rule.failures} of {tried} times{wrong}"
    ]
    for choice in rule.choices:
        most = _points(choice.best - choice.last)
        lines.append(
            f"  {choice.model} {choice.revision}: layer {choice.layer}, {_points(choice.gain)}; the best {most}"
        )
    lines += [f"  {rule.source}"] if rule.source else []
    return [*lines, "followed because it was asked for"] if forced else lines


def _refused(refused: Sequence[Refused]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    for i, heading in enumerate(("rule not followed", "gain", "at random", "fixed", "failed", "why not")):
        table.add_column(heading, justify="right" if 0 < i < 5 else "left", overflow="fold", no_wrap=0 < i < 5)
    for entry in refused[:MOST_REFUSED]:
        rule = entry.rule
        cells = [_points(gain) for gain in (rule.mean_gain, rule.chance_gain, rule.fixed_gain)]
        cells.append(f"{rule.failures} of {len(rule.choices)}")
        table.add_row(Text(plain(rule.name)), *cells, Text(plain(entry.reason)))
    left = len(refused) - MOST_REFUSED
    if left > 0:
        table.add_row(Text(f"and {left} more (--json names them)", style="dim"))
    return table


def _title(selection: Selection) -> str:
    where = ", ".join(f"{x} pooling" if x == selection.pooling else x for x in (selection.site, selection.pooling) if x)
    told = f" · {selection.scored_on}" if selection.scored_on else ""
    return f"{selection.model} by layer{f' · {where}' if where else ''}{told}"


def _layers(selection: Selection) -> Table:
    rows = [*selection.layers, selection.baseline]
    scored, cost = selection.baseline.score is not None, selection.baseline.parameters is not None
    valued = any(row.value is not None for row in rows)
    heads = ["layer", *(["score", "difference"] if scored else []), *(["value"] if valued else [])]
    heads += ["weights", "MB", "ms", "faster"] if cost else []
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    for head in [*heads, ""]:
        table.add_column(head, justify="right" if head else "left", no_wrap=bool(head))
    for row in rows:
        shipped = row is rows[-1]
        cells = ["baseline" if shipped else str(row.layer)]
        if scored:
            cells += [_score(row, selection.share), "" if shipped else _difference(row, selection.share)]
        if valued:
            cells.append("" if row.value is None else f"{row.value:.4g}")
        cells += _cost(row) if cost else []
        is_chosen = shipped == selection.as_shipped and row.layer == selection.layer
        table.add_row(*cells, _marks(row, shipped, selection, is_chosen), style="bold" if is_chosen else "")
    return table


def _marks(row: Candidate, shipped: bool, selection: Selection, is_chosen: bool) -> str:
    marks = ["◂"] if is_chosen else []
    if not shipped and row.layer == selection.best:
        marks.append("best")
    if not shipped and row.layer == selection.depth:
        marks.append("last")
    return " ".join(marks)


def _cost(row: Candidate) -> list[str]:
    if row.parameters is None:
        return ["–"] * 4
    weights = f"{row.parameters / 1e6:,.1f} M" if row.parameters >= 1e6 else f"{row.parameters:,}"
    return [weights, f"{row.megabytes:,.1f}", f"{row.milliseconds:.2f}", f"{row.speedup:.2f} ×"]


def _legend(selection: Selection) -> str:
    told = []
    if selection.baseline.score is not None:
        unit = "percent" if selection.share else "the scores' own units"
        told.append(
            f"Scores in {unit}, ± one standard error where it is known; difference to {selection.baseline_name}."
        )
    if any(row.value is not None for row in selection.layers):
        told.append("Value: what the rule reads.")
    if selection.measured is not None:
        told.append(f"ms: a sample's share, {selection.measured}.")
    told.append(
        f"Baseline: {selection.baseline_name}. Layer 0 is what the first block reads, no candidate unless asked."
    )
    return " ".join(told)


def _score(row: Candidate, share: bool) -> str:
    if row.score is None:
        return "–"
    error = "" if row.stderr is None else f" ±{_number(row.stderr, share)}"
    return f"{_number(row.score, share)}{' %' if share else ''}{error}"


def _difference(row: Candidate, share: bool) -> str:
    if row.difference is None:
        return "–"
    error = "" if row.difference_error is None else f" ±{_number(row.difference_error, share)}"
    sign = "−" if row.difference < 0 else "+"
    return f"{sign}{_number(abs(row.difference), share)}{error}"


def _number(value: float, share: bool) -> str:
    return f"{value * 100:.1f}" if share else f"{value:.2f}"


def _points(value: float) -> str:
    """Return a gain of a rule's record, whose units are those of its own scores; shares in percent."""
    if not math.isfinite(value):
        return "–"
    sign = "−" if value < 0 else "+"
    return f"{sign}{abs(value) * 100:.1f}" if abs(value) <= 1 else f"{sign}{abs(value):.2f}"
