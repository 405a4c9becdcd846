"""Scores by layer and task in a terminal: a row for each layer, or for each task where these are too many."""

from __future__ import annotations

import math
import re

from rich import box
from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from layerscope.scores.scored import AVERAGE, SHIPPED, Score, Scored, told
from layerscope.show.document import MARK
from layerscope.show.plain import plain
from layerscope.show.spark import spark

HEADING, ROW = 16, 24
"""So many letters of a task's name stand in one line of a heading, and of a row."""


def show_tasks(entry: Scored, title: str, decimals: int, console: Console) -> None:
    """Print one model's scores by layer and task: the best of each task marked, the model as shipped below."""
    table, mark = _by_layer(entry, decimals), f"{MARK} "
    free = console.options.update(width=10_000)
    if console.measure(table, options=free).maximum > console.width:
        table, mark = _by_task(entry, decimals), "In parentheses: "
    console.print(Text(f"\n{plain(title)}", style="bold"))
    console.print(table)
    console.print(Padding(Text(_legend(entry, mark)), (0, 0, 0, 2), expand=False), style="dim")


def _by_layer(entry: Scored, decimals: int) -> Table:
    tasks, average = entry.tasks, entry.average
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    table.add_column("layer", justify="right", no_wrap=True)
    for name in (*tasks, *([AVERAGE] if len(tasks) > 1 else [])):
        table.add_column(Text(folded(plain(name), HEADING)), justify="right", no_wrap=True)
    best = {task: entry.best_on(task) for task in tasks}
    for layer in [*entry.layers, *([None] if len(entry.grid.baseline) else [])]:
        cells = [_cell(entry.at(layer, task), decimals, layer is not None and best[task] == layer) for task in tasks]
        if len(tasks) > 1:
            mean = entry.shipped if layer is None else average.get(layer, math.nan)
            cells.append(_cell(Score(mean), decimals, layer is not None and layer == entry.best))
        table.add_row(Text(SHIPPED if layer is None else str(layer)), *cells, style="dim" if layer is None else "")
    if len(entry.layers) > 1:
        lines = [spark(entry.grid.scores[task]) for task in tasks]
        lines += [spark(average.values())] if len(tasks) > 1 else []
        table.add_row(Text("shape", style="dim"), *(Text(f"{line}  ", style="cyan") for line in lines))
    return table


def _by_task(entry: Scored, decimals: int) -> Table:
    shipped, several = bool(len(entry.grid.baseline)), len(entry.layers) > 1
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    table.add_column("task", overflow="fold")
    for name in ("first", "best", "last", *([SHIPPED] if shipped else []), *(["by layer"] * several)):
        table.add_column(name, justify="left" if name == "by layer" else "right", no_wrap=True)
    first, last = entry.layers[0], entry.grid.depth
    for task in entry.tasks:
        best = entry.best_on(task)
        found = Text("–") if best is None else Text.assemble(
            (_told(entry.at(best, task), decimals), "bold green"), f" ({best})"
        )  # fmt: skip
        ends = [Text(_told(entry.at(layer, task), decimals)) for layer in (first, last)]
        more = [Text(_told(entry.at(None, task), decimals))] if shipped else []
        line = [Text(spark(entry.grid.scores[task]), style="cyan")] * several
        table.add_row(Text(folded(plain(task), ROW)), ends[0], found, ends[1], *more, *line)
    return table


def _cell(score: Score, decimals: int, marked: bool) -> Text:
    style = "bold green" if marked else ""
    return Text.assemble((_told(score, decimals), style), (f" {MARK}" if marked else "  ", style))


def _told(score: Score, decimals: int) -> str:
    error = f" ±{told(score.error, decimals)}" if math.isfinite(score.error) else ""
    return told(score.value, decimals) + (error if math.isfinite(score.value) else "")


def _legend(entry: Scored, mark: str) -> str:
    known = [entry.at(layer, task) for layer, task in entry.known]
    shipped = f"; {SHIPPED}: the model as its makers serve it" if len(entry.grid.baseline) else ""
    lines = [f"{mark}the best layer of a task, chosen on these scores{shipped}."]
    if any(math.isfinite(score.error) for score in known):
        lines.append("± one standard error.")
    return "\n".join(lines)


def folded(name: str, room: int) -> str:
    """Return a name in lines of so many letters, broken between its words where it can be."""
    lines = [""]
    for word in re.split(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[-_./ ])", name):
        if lines[-1] and len(lines[-1]) + len(word) > room:
            lines.append("")
        lines[-1] += word
    return "\n".join(line[i : i + room] for line in lines for i in range(0, max(1, len(line)), room))
