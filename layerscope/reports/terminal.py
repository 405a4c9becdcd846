"""A run in a terminal: layers by metrics, a spark line each, and what stands out in sentences."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from rich import box
from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from layerscope.metrics.registry import about
from layerscope.reports.curves import SIMILAR, Curve, Group, curves
from layerscope.reports.findings import findings
from layerscope.reports.sublayers import first_panel, site_name, told_steps
from layerscope.runs.run import Run
from layerscope.runs.states import PROJECTED
from layerscope.show.numbers import NIL, error, number
from layerscope.show.plain import plain, pooling_name

BLOCKS = "▁▂▃▄▅▆▇█"
SPARK_WIDTH = 16
MARK = "◂"
TITLES: dict[Group, str] = {
    "quality": "Quality of each layer",
    "similarity": "Similarity to the last layer",
    "decisions": "What can be read from each layer",
}


def show(run: Run, console: Console | None = None) -> None:
    """Print a run: a table for each group of metrics, how to read it, and what stands out.

    Rows are layers 0 … L, and `final` where a norm follows layer L; columns go to a second table where the console is
    narrow. Every text that came from a model or data is printed as it is, never as markup.
    """
    console = console or Console()
    known = curves(run)
    console.print(_heading(run))
    if not known:
        console.print(Text("No metric that was asked for has a value here."))
    for group in TITLES:
        members = [c for c in known if c.group == group]
        if members:
            for title, columns in _by_pooling(group, members):
                _print_tables(title, columns, console, run)
            console.print(Padding(_legend(group, members, run), (0, 0, 0, 2), expand=False), style="dim")
    if panel := first_panel(run):
        _print_inside(panel, run, console)
    said = findings(run, known)
    if said:
        console.print(Text("\nWhat stands out", style="bold"))
        for finding in said:
            console.print(_hanging(plain(finding.text)))


def summary_json(run: Run) -> dict[str, Any]:
    """Return a run as JSON can hold it: model, data, depth, pooling, path, the table's rows and what stands out.

    What is not a number (NaN, infinity, empty) is null.
    """
    known = curves(run)
    rows = run.table().astype(object).to_dict(orient="records")
    return {
        "model": run.info["model"],
        "data": run.info["data"],
        "depth": run.depth,
        "pooling": list(run.info["pooling"]),
        "path": str(run.path),
        "rows": [{str(key): _jsonable(value) for key, value in row.items()} for row in rows],
        "stands_out": [
            {"metric": c.metric, "variant": c.variant, "pooling": c.pooling, "layer": c.stands_out} for c in known
        ],
        "findings": [
            {"name": f.name, "text": f.text, **{key: _jsonable(value) for key, value in f.numbers.items()}}
            for f in findings(run, known)
        ],
    }


def spark(values: Iterable[float], log: bool = False) -> str:
    """Return a series as one line of blocks, its minimum the lowest and its maximum the highest.

    Not-finite values are gaps; more than 16 values are averaged in neighbouring groups; a constant is a flat line.
    """
    series = np.array(list(values), dtype=np.float64)
    if log:
        series = np.log(np.where(series > 0, series, np.nan))
    series = np.where(np.isfinite(series), series, np.nan)
    if len(series) > SPARK_WIDTH:
        series = np.array([_mean(part) for part in np.array_split(series, SPARK_WIDTH)])
    known = series[~np.isnan(series)]
    if not len(known):
        return " " * len(series)
    low, span = float(known.min()), float(known.max() - known.min())
    top = len(BLOCKS) - 1
    heights = np.full(len(series), top / 2) if span == 0 else (series - low) / span * top
    return "".join(
        " " if math.isnan(h) else BLOCKS[round(float(h))] for h in np.where(np.isnan(series), np.nan, heights)
    )


def _mean(part: np.ndarray[Any, Any]) -> float:
    known = part[~np.isnan(part)]
    return float(known.mean()) if len(known) else math.nan


def _heading(run: Run) -> Text:
    model, data = run.info["model"], run.info["data"]
    facts = [
        f"layers {run.columns[0].layer} to {run.depth}",
        f"{data['samples']:,} samples",
        f"{', '.join(run.info['pooling'])} pooling" if run.has_states else f"step {run.steps[-1]:,}",
    ]
    return Text.assemble(
        (plain(str(model["name"])), "bold"),
        " on ",
        (plain(str(data["name"])), "bold"),
        " · " + " · ".join(facts),
    )


def _print_inside(panel: list[Curve], run: Run, console: Console) -> None:
    """Print one metric at every site of the blocks, and by how much each addition changes it."""
    columns = [replace(curve, title=site_name(curve.site), final=None, stands_out=None) for curve in panel]
    _print_tables(f"Inside the blocks · {panel[0].title}", columns, console, run)
    lines = [told_steps(panel), "Every other metric has these sites in the run's table and on its page."]
    console.print(Padding(Text("\n".join(filter(None, lines))), (0, 0, 0, 2), expand=False), style="dim")


def _by_pooling(group: Group, members: list[Curve]) -> Iterator[tuple[str, list[Curve]]]:
    """Yield titles and columns: one table where there is one pooling, else one for each; projected states last."""
    projected = [c for c in members if c.site == PROJECTED]
    if projected and len(projected) < len(members):
        yield from _by_pooling(group, [c for c in members if c.site != PROJECTED])
        members = projected
    poolings = list(dict.fromkeys(c.pooling for c in members))
    named = [p for p in poolings if p is not None]
    if len(named) <= 1:
        suffix = f" · {pooling_name(named[0])}" if named else ""
        yield TITLES[group] + suffix, members
        return
    for pooling in poolings:
        yield f"{TITLES[group]} · {pooling_name(pooling)}", [c for c in members if c.pooling == pooling]


def _print_tables(title: str, columns: Sequence[Curve], console: Console, run: Run) -> None:
    """Print as many columns beside each other as the console is wide, and the rest below."""
    free = console.options.update(width=10_000)
    start = 0
    while start < len(columns):
        end = start + 1
        while end < len(columns):
            if console.measure(_table(columns[start : end + 1], run), options=free).maximum > console.width:
                break
            end += 1
        heading = title if start == 0 else f"{title}, continued"
        console.print(Text(f"\n{heading}", style="bold"))
        console.print(_table(columns[start:end], run))
        start = end


def _table(columns: Sequence[Curve], run: Run) -> Table:
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    layers = sorted({layer for c in columns for layer in c.layers})
    table.add_column("layer", justify="right", no_wrap=True)
    after = any(c.final is not None for c in columns)
    for column in columns:
        table.add_column(_header(column, columns), no_wrap=True)
    cells = [_cells(column, layers, after) for column in columns]
    names = [str(layer) for layer in layers] + (["final"] if after else [])
    for i, name in enumerate(names):
        table.add_row(name, *(column[i] for column in cells))
    lines = (spark([column.at(layer)[0] for layer in layers], column.log) for column in columns)
    table.add_row(Text("shape", style="dim"), *(Text(line, style="cyan") for line in lines))
    return table


def _header(curve: Curve, beside: Sequence[Curve]) -> Text:
    words = curve.title.split(" ", 1)
    variants = {c.variant for c in beside if c.metric == curve.metric}
    if len(variants) > 1 and curve.variant:
        words += curve.variant.split(",")[-1:]
    return Text("\n".join(words))


def _cells(curve: Curve, layers: list[int], after: bool) -> list[Text]:
    """Return a column's cells: values aligned at their points, errors beside them, a mark on one."""
    points = [curve.at(layer) if layer in curve.layers else None for layer in layers]
    if after:
        points.append(None if curve.final is None else curve.last())
    shown = [("", "") if p is None else _shown(curve, *p) for p in points]
    marked = [layer == curve.stands_out for layer in layers] + [False] * after
    values = _aligned([value for value, _ in shown])
    width = max(len(err) for _, err in shown)
    rows = zip(values, shown, marked, strict=True)
    return [_cell(f"{v} {err:<{width}}" if width else v, mark) for v, (_, err), mark in rows]


def _cell(text: str, mark: bool) -> Text:
    return Text.assemble((text, "bold green" if mark else ""), (f" {MARK}" if mark else "  ", "bold green"))


def _shown(curve: Curve, value: float, stderr: float) -> tuple[str, str]:
    if curve.unit == "%" and math.isfinite(value):
        return f"{100 * value:.1f}", f"±{100 * stderr:.1f}" if stderr >= NIL else ""
    if curve.group == "similarity" and math.isfinite(value):
        return f"{round(value, 3) + 0.0:.3f}", error(stderr)  # + 0.0: no minus before nothing
    return number(value), error(stderr) if math.isfinite(value) else ""


def _aligned(numbers: list[str]) -> list[str]:
    """Pad numbers so that their decimal points stand below each other."""
    parts = [text.partition(".") for text in numbers]
    left = max(len(whole) for whole, _, _ in parts)
    right = max(len(point + rest) for _, point, rest in parts)
    return [f"{whole:>{left}}{point + rest:<{right}}" for whole, point, rest in parts]


def _legend(group: Group, members: list[Curve], run: Run) -> Text:
    """Return how to read a group of metrics, what was counted, and where it was taken."""
    readings: dict[str, str] = {}
    for curve in members:
        reading = about(curve.metric).reading
        variant = f" ({curve.variant.replace(',', ', ')})" if curve.variant else ""
        reading += ", spark line logarithmic" if curve.log else ""
        readings.setdefault(f"{curve.title}{variant}", reading)
    lines = [" · ".join(f"{title}: {reading}" for title, reading in readings.items())]
    lines.append(f"N: {_counted(members, run)}." + (" ± is one standard error." if _has_error(members) else ""))
    if group == "similarity" and any(not np.isfinite(c.values).all() for c in members):
        lines.append("– where samples are too few for a measure, or a layer does not vary.")
    if group == "decisions" and run.final == "normed":
        lines.append(f"Every layer is read after the final norm; layer {run.depth} is the model as it is.")
    if any(c.stands_out is not None for c in members):
        lines.append(f"{MARK} {_marked(group, members)}.")
    return Text("\n".join(lines))


def _marked(group: Group, members: list[Curve]) -> str:
    """Say which layers of a group are marked."""
    if group == "similarity":
        far = list(dict.fromkeys(c.title for c in members if about(c.metric).low))
        below = f" ({', '.join(far)}: below {1 - SIMILAR:.1f})" if far else ""
        return f"the layer from which on the value stays above {SIMILAR}{below}"
    low = list(dict.fromkeys(c.title for c in members if about(c.metric).low))
    rest = any(not about(c.metric).low for c in members)
    ends = f"the highest ({', '.join(low)}: the lowest)" if low and rest else "the lowest" if low else "the highest"
    text = f"{ends} of layers 1 and up"
    if any(c.metric == "saturated" for c in members):
        text += "; saturated: the layer from which on it stays above half"
    return text if group == "decisions" else f"{text}: no verdict, which end serves a task differs by model and data"


def _counted(members: list[Curve], run: Run) -> str:
    """Say how many samples (of a language model's lens: tokens) each metric is about, and how many it skips."""
    groups: dict[str, list[str]] = {}
    for c in members:
        lens = about(c.metric).needs == "lens"
        unit = "tokens" if lens and run.info["model"].get("language_model") else "samples"
        if c.n_least < c.n:
            text = f"{c.n_least:,} to {c.n:,} {unit} by layer, the others skipped"
        else:
            text = f"{c.n:,} {unit}, " + (f"{c.n_skipped:,} skipped" if c.n_skipped else "none skipped")
        titles = groups.setdefault(text, [])
        if c.title not in titles:
            titles.append(c.title)
    if len(groups) == 1:
        return next(iter(groups))
    return "; ".join(f"{text} ({', '.join(titles)})" for text, titles in groups.items())


def _has_error(members: list[Curve]) -> bool:
    return any(bool(np.isfinite(c.stderr).any()) for c in members)


def _hanging(text: str) -> Table:
    grid = Table.grid(padding=(0, 1))
    grid.add_row("  •", Text(text))
    return grid


def _jsonable(value: Any) -> Any:
    if value is None or isinstance(value, (str, bool)):
        return value
    if isinstance(value, (int, np.integer)):
        return int(value)
    if isinstance(value, (float, np.floating)):
        return float(value) if math.isfinite(value) else None
    return None  # pandas' own sign for an empty cell
