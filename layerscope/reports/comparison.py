"""A comparison in a terminal: the answer, a map of layers by layers, differences by depth, layers by checkpoints."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from layerscope.comparison.comparison import Comparison, place
from layerscope.metrics.registry import about
from layerscope.reports.comparison_findings import (
    SURE,
    Pair,
    alike,
    as_values,
    best,
    candidates,
    checkpoints,
    differences,
    findings,
    headline,
    layer_name,
    maps,
    pairs,
    scale_of,
    shown,
    signed,
    similarity_name,
)
from layerscope.show.document import MARK
from layerscope.show.numbers import error, number
from layerscope.show.plain import plain
from layerscope.show.spark import spark

SHADES = " ·░▒▓█"
CELL = 6
"""Characters of a value and the space before it."""
MOST_PAIRS = 3
"""Of more pairs than this only the answers are printed: the page has the rest."""


def show(comparison: Comparison, console: Console | None = None) -> None:
    """Print a comparison, the answer first; every name that came from a model or data is printed as it is."""
    console = console or Console()
    known = pairs(comparison)
    if comparison.series:
        _series(comparison, console)
    for pair in known:
        console.print(Text(headline(pair), style="bold"))
    console.print(Text(_facts(comparison)))
    detailed = known[-1:] if comparison.series else known[:MOST_PAIRS]
    for pair in detailed:
        for line in findings(pair):
            console.print(Text(f"  • {line}"))
        square = pair.square(comparison.similarities[0])
        title = f"{similarity_name(comparison.similarities[0])}: layers of {plain(pair.a.name)} down, of "
        console.print(Text(f"\n{title}{plain(pair.b.name)} across", style="bold"))
        console.print(_square(square, comparison.similarities[0], console.width))
        _differences(pair, console)
    if len(known) > len(detailed):
        console.print(
            Text(
                f"\nMaps and differences of all {len(known)} pairs: on the page that --out FOLDER writes.", style="dim"
            )
        )
    for note in comparison.notes:
        console.print(Text(f"Note: {plain(note)}", style="dim"))


def _facts(comparison: Comparison) -> str:
    told = [f"{plain(comparison.data)} · {comparison.n:,} samples"]
    told += [f"{plain(m.name)}: {m.depth} layers, {m.width:,} wide, {m.pooling} pooling" for m in comparison.runs]
    return " · ".join(told)


def _square(square: pd.DataFrame, metric: str, width: int) -> Text:
    """Return a map with values where the window is wide enough, else with a shade for each, and each row's best."""
    values, marked = as_values(square), best(square, metric)
    fits = 8 + CELL * len(square.columns) + 16 <= width
    columns = [str(name) if name != "final" else "fin" for name in square.columns]
    lines = []
    if fits:
        lines.append(f"{'':>6}" + "".join(f"{name:>{CELL}}" for name in columns) + "   most like")
    else:
        lines.append(f"{'':>6} layers 0 to {columns[-1]}; {SHADES[1:]}: from 0 to 1")
    for name, line, found in zip(square.index, values, marked, strict=True):
        cells = "".join(f"{shown(v):>{CELL}}" for v in line) if fits else " " + "".join(map(_shade, line))
        told = "" if found is None else f"   {square.columns[found[0]]} ({shown(found[1])})"
        lines.append(f"{name!s:>6}{cells}{told}")
    return Text("\n".join(lines), no_wrap=True)


def _shade(value: float) -> str:
    return " " if not math.isfinite(value) else SHADES[max(1, min(len(SHADES) - 1, 1 + int(value * 5)))]


def _differences(pair: Pair, console: Console) -> None:
    """Print the differences, as many metrics beside each other as the window is wide."""
    rows = differences(pair)
    keys = list(dict.fromkeys(zip(rows["metric"], rows["variant"], strict=True)))
    columns = [_column(pair, rows, key) for key in keys]
    free = console.options.update(width=10_000)
    start = 0
    while start < len(columns):
        end = start + 1
        while end < len(columns):
            if console.measure(_table(columns[start : end + 1]), options=free).maximum > console.width:
                break
            end += 1
        title = f"{plain(pair.b.name)} less {plain(pair.a.name)}" + (", continued" if start else "")
        console.print(Text(f"\n{title}", style="bold"))
        console.print(_table(columns[start:end]))
        start = end
    if columns:
        console.print(Text(
            f"±: one standard error, by sample where both runs keep each sample's values; {MARK} the largest of those "
            f"beyond {SURE:.0f} of them, layer 0 aside.", style="dim",
        ))  # fmt: skip


def _column(pair: Pair, rows: pd.DataFrame, key: tuple[str, str | None]) -> tuple[str, dict[str, Text]]:
    """Return a metric's title and its cells by the layers they stand at."""
    metric, variant = key
    same = rows["variant"].isna() if variant is None else rows["variant"] == variant
    own = rows[(rows["metric"] == metric) & same]
    sure = own[own["value"].abs() > SURE * own["stderr"]]
    sure = candidates(sure)
    most = sure["value"].abs().idxmax() if len(sure) else None
    cells = {}
    for index, row in own.iterrows():
        a, b = place(row["layer"], row["site"], pair.a), place(row["layer_b"], row["site_b"], pair.b)
        name = str(a) if a == b else f"{a} | {b}"
        told = f"{signed(scale_of(metric) * row['value'])} {error(scale_of(metric) * row['stderr'])}".strip()
        cells[name] = Text(f"{told} {MARK}" if index == most else told, style="bold green" if index == most else "")
    several = len(set(rows.loc[rows["metric"] == metric, "variant"])) > 1
    title = about(metric).title.replace(" ", "\n", 1) + (f"\n{variant}" if several and variant else "")
    return title, cells


def _table(columns: list[tuple[str, dict[str, Text]]]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    table.add_column("layer", justify="right", no_wrap=True)
    for title, _ in columns:
        table.add_column(title, no_wrap=True)
    for name in dict.fromkeys(name for _, cells in columns for name in cells):
        table.add_row(name, *(cells.get(name, Text("")) for _, cells in columns))
    return table


def _series(comparison: Comparison, console: Console) -> None:
    """Print layers by checkpoints: similarity to the last one in numbers, each metric's course as a line of blocks."""
    known = list(maps(comparison))
    names = checkpoints(comparison)
    metric, title, first = known[0]
    ends, near = as_values(first)[:, 0], alike(first, metric)[:, 0]
    near = np.where([layer != 0 for layer in first.index], near, np.nan)
    if np.isfinite(near).any():
        low = int(np.nanargmin(near))
        console.print(Text(
            f"From the first to the last checkpoint {layer_name(first.index[low])} changes most: "
            f"{similarity_name(metric)} {shown(ends[low])}; the last layer {shown(ends[-1])}.",
            style="bold",
        ))  # fmt: skip
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, title_justify="left")
    for name in ("layer", *names):
        table.add_column(name, justify="right", no_wrap=True, max_width=18)
    for layer, line in zip(first.index, as_values(first), strict=True):
        table.add_row(str(layer), *map(shown, line))
    console.print(Text(f"\n{title}", style="bold"))
    console.print(table)
    courses = [entry for entry in known if about(entry[0]).needs != "pairs"]
    if courses:
        console.print(Text(f"\nFrom {names[0]} to {names[-1]}, and the value at the last", style="bold"))
        _courses(courses, console)


def _courses(known: list[tuple[str, str, pd.DataFrame]], console: Console) -> None:
    """Print a line of blocks by layer and metric, as many metrics beside each other as the window is wide."""
    columns = []
    for metric, title, values in known:
        cells = {
            str(layer): Text(f"{spark(line)} {number(scale_of(metric) * line[-1])}")
            for layer, line in zip(values.index, as_values(values), strict=True)
        }
        columns.append((title.replace(" ", "\n", 1), cells))
    width = max(max(cell.cell_len for cell in cells.values()) + 4 for _, cells in columns)
    size = max(1, (console.width - 8) // max(width, 14))
    for start in range(0, len(columns), size):
        console.print(_table(columns[start : start + size]))
