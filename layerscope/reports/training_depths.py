"""The end of a training in a terminal: each depth with its score, its time and its size, baselines beside it."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Any

from layerscope.reports.plain import plain

if TYPE_CHECKING:
    from layerscope.training.depths import Line, Trained

NAMES = {"layer_accuracy": "accuracy", "perplexity": "perplexity"}


def show(done: Trained, console: Any) -> None:
    """Print the table of depths, where the checkpoint is, and the commands that come next."""
    from rich import box
    from rich.padding import Padding
    from rich.table import Table
    from rich.text import Text

    from layerscope.reports import training
    from layerscope.runs import open_run

    training.show(open_run(done.history), console)
    own = [line for line in done.lines if line.depth == done.lines[0].depth]
    others = {line.layer: line for line in done.lines[len(own) :]}
    first = own[0]
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    columns = ["layer", NAMES[first.metric], "ms", "MB", *(["separate model"] if others else [])]
    for column in columns:
        table.add_column(column, justify="right")
    for line in own:
        timed = ["–" if value is None else f"{value:.2f}" for value in (line.ms_per_sample, line.megabytes)]
        beside = [_score(others[line.layer]) if line.layer in others else ""] if others else []
        table.add_row(f"{line.layer} of {line.depth}", _score(line), *timed, *beside)
    console.print(Padding(table, (1, 0, 0, 0), expand=False))
    if done.measured:
        console.print(Text(f"ms: per sample, {plain(done.measured)}"), style="dim")
    place, history = str(done.path), str(done.history)
    console.print(Text(f"\nwritten: {place}"), soft_wrap=True)
    best = _shortest(own)
    truncate = ["layerscope", "truncate", place, "--layer", str(best), "--out", f"{place}-{best}"]
    for lead, words in (("next:", truncate), ("     ", ["layerscope", "report", history])):
        console.print(Text(f"{lead} {shlex.join(words)}"), soft_wrap=True)


def _shortest(own: list[Line]) -> int:
    """The first layer as good as the last, within its standard error; else the middle one."""
    last, sign = own[-1], -1 if own[-1].metric == "perplexity" else 1
    error = 0.0 if last.stderr != last.stderr else last.stderr
    found = next(line.layer for line in own if sign * (line.value - last.value) >= -error)
    return found if found < last.layer else max(1, last.layer // 2)


def _score(line: Line) -> str:
    blind = line.metric == "perplexity"
    value, error = (number if blind else 100 * number for number in (line.value, line.stderr))
    shown = f"{value:,.1f}" + ("" if error != error else f" ±{error:,.1f}")
    return shown if blind else f"{shown} %"
