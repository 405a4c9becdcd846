"""The end of a training in a terminal: each depth with its score, its time and its size, baselines beside it."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Any

from layerscope.show.plain import plain

if TYPE_CHECKING:
    from layerscope.training.depths import Trained

NAMES = {"layer_accuracy": "accuracy", "perplexity": "perplexity"}


def show(done: Trained, console: Any) -> None:
    """Print the table of depths, where the checkpoint is, and the commands that come next."""
    from rich import box
    from rich.padding import Padding
    from rich.table import Table
    from rich.text import Text

    from layerscope.reports import training
    from layerscope.runs import open_run

    console.print(Text(plain(done.headline), style="bold"), soft_wrap=True)
    for rival in done.rivals:
        console.print(Text(plain(rival)), soft_wrap=True)
    console.print()
    training.show(open_run(done.history), console)
    own = done.own
    others = {line.layer: line for line in done.lines[len(own) :]}
    first = own[0]
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    columns = ["layer", NAMES[first.metric], "ms", "MB", *(["separate model"] if others else [])]
    for column in columns:
        table.add_column(column, justify="right")
    for line in own:
        timed = ["–" if value is None else f"{value:.2f}" for value in (line.ms_per_sample, line.megabytes)]
        beside = [str(others[line.layer]) if line.layer in others else ""] if others else []
        table.add_row(f"{line.layer} of {line.depth}", str(line), *timed, *beside)
    console.print(Padding(table, (1, 0, 0, 0), expand=False))
    if done.measured:
        console.print(Text(f"ms: per sample, {plain(done.measured)}"), style="dim")
    place = str(done.path)
    console.print(Text(f"\nwritten: {place}"), soft_wrap=True)
    steps = [["layerscope", "report", str(done.history)]]
    if done.chosen is not None:
        best = str(done.chosen.layer)
        steps.insert(0, ["layerscope", "truncate", place, "--layer", best, "--out", f"{place}-{best}"])
    for lead, words in zip(("next:", "     "), steps, strict=False):
        console.print(Text(f"{lead} {shlex.join(words)}"), soft_wrap=True)
