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

from layerscope.scores.rules import Rule
from layerscope.selection.selection import SHIPPED, Candidate, Refused, Selection
from layerscope.show.plain import plain

MOST_REFUSED = 6


def show(selection: Selection, console: Console | None = None) -> None:
    """Print a choice; every name that came from data is printed as it is, never as markup."""
    console = console or Console()
    console.print(Text(plain(answer(selection)), style="bold"))
    if not selection.lacking:
        console.print(Text(plain(f"{selection.rule}: {selection.why}")))
        if selection.scored_on:
            console.print(Text(plain(judged_on(selection))))
    if selection.evidence is not None:
        for line in record(selection.evidence, forced=selection.forced):
            console.print(Text(plain(line)))
    if selection.refused:
        console.print(_refused(selection.refused))
    if any(known is not None for row in selection.layers for known in (row.score, row.value, row.parameters)):
        console.print(Text(f"\n{plain(_title(selection))}", style="bold"))
        console.print(_layers(selection))
        console.print(Padding(Text(_legend(selection)), (0, 0, 0, 2), expand=False), style="dim")
    if selection.by_task:
        console.print(_tasks(selection))
    for note in selection.notes:
        console.print(Padding(Text(plain(note)), (0, 0, 0, 2), expand=False), style="dim")
    console.print(Text(ship(selection)), soft_wrap=True)  # never wrapped: a command is copied whole


def answer(selection: Selection) -> str:
    """Return the answer in one line: layer, score, how much it rests on, difference to the baseline, size and speed."""
    if selection.lacking:
        return f"no layer is recommended: {selection.lacking}"
    chosen = selection.chosen
    facts = [selection.baseline_name if selection.as_shipped else f"layer {selection.layer} of {selection.depth}"]
    if chosen.score is not None:
        facts += _scored(selection)
    elif not selection.as_shipped:
        facts.append("its score is not known: no labels, no tasks")
    if chosen.parameters is not None:
        facts += [f"{chosen.parameters:,} parameters", f"{chosen.megabytes:,.1f} MB"]
        facts += [f"{chosen.milliseconds:.2f} ms a sample", f"{chosen.speedup:.2f} × faster"]
    return " · ".join(facts)


def _scored(selection: Selection) -> list[str]:
    """Return score and difference of the choice, on data that had no part in it where there are such."""
    shown, apart, first = selection.chosen, selection.apart, selection.layers[0]
    above = first.layer == 0 != selection.layer and (first.score or 0) > (shown.score or 0)
    if apart is not None and (apart.unit == "sample" or not selection.as_shipped):
        shown = Candidate(shown.layer, apart.score, apart.stderr, apart.difference, apart.difference_error)
    facts = [f"{_score(shown, selection.share)}{f' ({selection.basis})' if selection.basis else ''}"]
    if not selection.as_shipped:
        facts.append(f"{_difference(shown, selection.share)} against {selection.baseline_name}")
    if above:
        facts.append(f"layer 0 has {_score(first, selection.share)} and is no candidate: it is before the first block")
    return facts


def judged_on(selection: Selection) -> str:
    """Return what chose the layer and what judged it, in a sentence."""
    apart = selection.apart
    if apart is not None and apart.unit == "sample":
        n = sum(n for _, n in apart.layers)
        return f"the score above is of {n:,} samples held out, which neither chose the layer nor trained a probe"
    if selection.as_shipped:
        return "its score comes from the same data that the layers were compared on"
    if apart is None:
        return "the same data chose the layer and judged it: expect a little less on new data"
    blocks = sum(n for _, n in apart.layers)
    led = ", ".join(f"{_led(layer, selection)} in {n}" for layer, n in apart.layers)
    how = (
        f"chosen on all {blocks} {apart.unit}s; the score above judges each {apart.unit} at the layer the others choose"
    )
    return f"{how} ({led})"


def _led(layer: int | None, selection: Selection) -> str:
    return selection.baseline_name if layer is None else f"layer {layer}"


def ship(selection: Selection) -> str:
    """Return the command that writes the chosen model, on a line of its own, or why there is none."""
    if selection.lacking:
        return "nothing to truncate: too little was judged to choose by"
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
    how = ["--site", "raw", "--format", "onnx"] if selection.raw_only else []
    if selection.pooled and not selection.raw_only:
        how = ["--format", "sentence-transformers", "--pooling", str(selection.pooling)]
    words = ["layerscope", "truncate", source, "--layer", str(selection.layer), *how, "--out", name]
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
    """Return what a row is, best being the highest score of all that could be chosen."""
    marks = ["◂"] if is_chosen else []
    best = next((other for other in selection.layers if other.layer == selection.best), None)
    over = best is not None and (selection.baseline.score or 0) > (best.score or 0)
    if best is not None and (shipped if over else row is best):
        marks.append("best")
    if not shipped and best is not None and row.layer == 0 != best.layer and (row.score or 0) > (best.score or 0):
        marks.append("no candidate")
    if not shipped and row.layer == selection.depth:
        marks.append("last")
    return " ".join(marks)


def _tasks(selection: Selection) -> Table:
    """Return what each task alone would choose."""
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    for i, head in enumerate(("by task alone", "layer", "score", "difference")):
        table.add_column(head, justify="right" if i else "left", overflow="fold", no_wrap=i > 0)
    for task in selection.by_task:
        row = Candidate(task.layer, task.score, None, task.difference, task.difference_error)
        cells = [_score(row, selection.share), "" if task.as_shipped else _difference(row, selection.share)]
        table.add_row(Text(plain(task.task)), "baseline" if task.as_shipped else str(task.layer), *cells)
    return table


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
