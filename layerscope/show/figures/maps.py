"""Heat maps, box plots and bars in figures, a panel for each result; grids of predictions, broken into panels."""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from matplotlib.colors import LinearSegmentedColormap, LogNorm, Normalize, to_hex
from matplotlib.lines import Line2D
from matplotlib.patches import Patch, Rectangle

from layerscope.show.document import TokenGrid
from layerscope.show.figures import style
from layerscope.show.figures.charts import Owned
from layerscope.show.plain import plain
from layerscope.show.plots import Bars, Boxes, HeatMap, ends

AROUND = LinearSegmentedColormap.from_list("around", ("#b35806", "#f7f7f5", "#2166ac"))
"""Orange below, blue above: distinct to the colour-blind."""
PRINTED = 13
"""Maps of at most this many rows and columns print their values, where they fit."""
SMALLEST = 5.0
"""Points: the smallest values that are printed."""
ROW = 0.15
"""Inches of a row that has a name."""
LIGHT = 0.35
OUTLIER: dict[str, Any] = {
    "marker": ".",
    "markersize": 2,
    "linestyle": "none",
    "linewidth": 0,
    "alpha": 0.6,
}
PARTS = ("q1", "med", "q3", "whislo", "whishi")
PALE, STRONG, EDGE = "#ffffff", "#6ca3d7", "#9a5b00"
TOKEN, LINE = 0.52, 0.15
"""Inches that a token takes across and down."""
TALL, LINES = 8.5, 40
"""Inches that a grid may be high, and its rows at most; tables hold the tokens beyond."""
LONG = 12
"""Characters of the name of a row, above which it takes more room."""
SIZE = 6


def draw_maps(owned: Sequence[Owned], title: str, width: float) -> Any:
    """Return a figure of heat maps of one scale, a map for each result and choice; of several kinds each on its own."""
    parts: list[HeatMap] = [one.plot for one in owned]
    if len({part.title for part in parts}) > 1:
        return _draw_sheet(owned, title, width)
    first = parts[0]
    columns = min(2, len(parts)) if first.square else style.panel_columns(width, len(parts))
    side = (width - 0.55) / columns - (0.3 if columns == 2 else 0.7)
    side = min(side, 3.9) if columns == 1 else side
    tall = max(len(part.rows) for part in parts)
    height = side + 0.55 if first.square else tall * ROW + 0.7 if _named(first) else 1.9
    figure, axes = style.sheet(width, len(parts), columns, height, title)
    colors: Any = AROUND if first.diverging else _even(first)
    same = all(part.rows == first.rows for part in parts)
    alike = len({(part.across, part.down) for part in parts}) == 1
    for i, (axis, one) in enumerate(zip(axes, owned, strict=True)):
        cell = 72 * side / max(len(one.plot.rows), len(one.plot.columns)) if first.square else 0.0
        image = _map(axis, one.plot, _norm(parts), colors, cell)
        name = plain(one.name) + (
            f"\n{one.plot.choice}" if len({part.choice for part in parts}) > 1 else ""
        )
        axis.set_title(one.plot.choice if one.alone else name)
        _mark(figure, axis, one.plot, side, first_column=i % columns == 0 or not same)
        if not alike or i >= len(axes) - columns:
            axis.set_xlabel(
                "\n".join(style.broken(figure, one.plot.across, 0.9 * side / width, style.SIZE))
            )
        if not alike or (i % columns == 0 and not _words(first)):
            axis.set_ylabel(
                "\n".join(style.broken(figure, one.plot.down, 0.8 * side / width, style.SIZE))
            )
    _bar(figure, axes, image, first)
    return style.finish(figure)


def _draw_sheet(owned: Sequence[Owned], title: str, width: float) -> Any:
    """Return a figure of maps of several kinds, each on a scale of its own."""
    parts: list[HeatMap] = [one.plot for one in owned]
    columns = 1 if style.is_narrow(width) else 2
    height = 1.9
    if parts[0].square:
        columns += 1
        height = 0.9 * width / columns
    figure, axes = style.sheet(width, len(parts), columns, height, title)
    for axis, one in zip(axes, owned, strict=True):
        part: HeatMap = one.plot
        image = _map(axis, part, _norm([part]), _even(part), 0.0)
        name = _title(part)
        if part.square:
            name = name.replace(" of every two layers", "")
            choice = part.choice if len({other.choice for other in parts}) > 1 else ""
            name = "\n".join(filter(None, (plain(one.name) if not one.alone else "", name, choice)))
        axis.set_title(name)
        axis.set_ylabel(part.down)
        _mark(figure, axis, part, 0.6 * height, first_column=True)
        bar = figure.colorbar(image, ax=axis, fraction=0.06, pad=0.02)
        style.plain_ticks(bar)
        bar.set_label(part.unit)
    for axis in axes[-columns:]:
        axis.set_xlabel(parts[0].across)
    return style.finish(figure)


def _title(part: HeatMap) -> str:
    return part.title + (f" ({part.variant})" if part.variant else "")


def _named(part: HeatMap) -> bool:
    """Return whether rows have names of their own, as tasks do."""
    return not (part.square or part.upward)


def _words(part: HeatMap) -> bool:
    """Return whether the names of rows say themselves what they are, as numbers of steps do not."""
    return _named(part) and not all(name.isdigit() for name in part.rows)


def _norm(parts: Sequence[HeatMap]) -> Any:
    """Return the one scale of the colours of maps."""
    low, high = ends(parts)
    return LogNorm(low, high) if parts[0].log and low > 0 else Normalize(low, high)


def _even(part: HeatMap) -> str:
    """Return the colours whose brightness rises evenly: the same map in grey."""
    return "cividis_r" if part.reversed else "cividis"


def _map(axis: Any, part: HeatMap, norm: Any, colors: Any, cell: float) -> Any:
    """Draw the cells, each `cell` points wide, with their values where these fit, and return what has the colours."""
    values = np.array(part.values, dtype=np.float64)
    image = axis.pcolormesh(
        values, cmap=colors, norm=norm, edgecolors="face", linewidth=0.5
    )  # no seams in PDF
    _bare(axis)
    if part.square:
        axis.set_aspect("equal")
    if _named(part):
        axis.set_ylim(len(part.rows), 0)
    size = min(6.5, cell / 2.5)
    printed = max(values.shape) <= PRINTED and size >= SMALLEST
    for (i, j), value in np.ndenumerate(values):
        if printed and math.isfinite(value):
            text = f"{round(float(value), 2) + 0.0:.2f}"  # + 0.0: no minus before nothing
            text = text.replace("1.00", "1.0").replace("0.", ".", 1)
            color = "white" if norm(value) < 0.55 else "black"
            axis.text(j + 0.5, i + 0.5, text, ha="center", va="center", fontsize=size, color=color)
    found = [(i + 0.5, j + 0.5) for i, j in enumerate(part.rings) if j is not None]
    wide = {"markersize": 3 * size if printed else 4}
    for mark in (
        ({"mec": "white", "mew": 1.8}, {}) if found else ()
    ):  # white below, to be seen on the darkest cells
        axis.plot([x for _, x in found], [y for y, _ in found], **style.RING | wide | mark)
    return image


def _mark(figure: Any, axis: Any, part: HeatMap, side: float, *, first_column: bool) -> None:
    """Name rows and columns, or only as many as there is room for."""
    most = max(5, int(side * 5)) if part.square else 6
    short = [name if len(name) <= 10 else f"{name[:4]}…{name[-5:]}" for name in part.columns]
    axis.set_xticks(*style.name_columns(short, most))
    if _named(part):
        names = [
            style.fitted(figure, name, 0.32, style.SIZE) if first_column else ""
            for name in part.rows
        ]
        axis.set_yticks(np.arange(len(names)) + 0.5, names)
    else:
        axis.set_yticks(*style.name_columns(list(part.rows), most))
    if part.square and not part.columns[-1].isdigit():
        axis.get_xticklabels()[-1].set_rotation(90)


def _bar(figure: Any, axes: list[Any], image: Any, part: HeatMap) -> None:
    """Draw what the colours stand for: beside a single map, below several."""
    beyond = "both" if part.diverging else "neither"
    if len(axes) == 1 and not _named(part):
        bar = figure.colorbar(image, ax=axes, fraction=0.05, pad=0.02, aspect=30, extend=beyond)
    else:
        figure.set_figheight(figure.get_figheight() + (0.7 if _named(part) else 0.5))
        bar = figure.colorbar(
            image,
            ax=axes,
            location="bottom",
            pad=0.04,
            shrink=0.6,
            aspect=6 * figure.get_figwidth(),
            extend=beyond,
            fraction=0.25 / figure.get_figheight() if _named(part) else 0.05,
        )
    style.plain_ticks(bar)
    note = part.note.split("; ") if part.note and _named(part) else []
    lines = [
        line
        for text in [_title(part), *note]
        for line in style.broken(figure, text, 0.65, style.SIZE)
    ]
    figure.set_figheight(figure.get_figheight() + 0.14 * (len(lines) - 1))
    bar.set_label("\n".join(lines))


def draw_boxes(owned: Sequence[Owned], title: str, width: float) -> Any:
    """Return a figure of box plots, a panel for each result."""
    columns = style.panel_columns(width, len(owned))
    figure, axes = style.sheet(width, len(owned), columns, 2.0, title)
    first: Boxes = owned[0].plot
    thin: dict[str, Any] = {"color": style.DARK, "linewidth": 0.6}
    thick: dict[str, Any] = {"color": style.DARK, "linewidth": 1.2}
    shade: dict[str, Any] = {"edgecolor": style.DARK, "linewidth": 0.6}
    for axis, one in zip(axes, owned, strict=True):
        part: Boxes = one.plot
        color = style.look(0 if one.alone else one.number)["color"]
        axis.bxp(
            [dict(zip(PARTS, (*box.quartiles, *box.whiskers), strict=True)) for box in part.boxes],
            positions=[int(box.name) for box in part.boxes],
            widths=0.6,
            showfliers=False,
            patch_artist=True,
            manage_ticks=False,
            boxprops={"facecolor": (color, LIGHT), **shade},
            medianprops=thick,
            whiskerprops=thin,
            capprops=thin,
        )
        far = [(int(box.name), value) for box in part.boxes for _, value in box.outliers]
        axis.plot([x for x, _ in far], [y for _, y in far], **OUTLIER, color=color)
        style.mark_layers(axis, int(part.boxes[-1].name), most=8 if width / columns > 2 else 5)
        axis.set_title(
            f"{part.title}, {part.choice}" if one.alone else f"{plain(one.name)}\n{part.choice}"
        )
        axis.set_ylabel(part.y)
    for axis in axes[-columns:]:
        axis.set_xlabel(first.x)
    face = style.COLORS[0] if owned[0].alone else "#777777"
    median, middle, whiskers = first.legend
    handles = [
        Line2D([], [], **thick, label=median),
        Patch(facecolor=face, alpha=LIGHT, **shade, label=middle),
        Line2D([], [], **thin, label=whiskers),
        Line2D([], [], **OUTLIER, color=face, label=f"furthest {first.each}s"),
    ]
    style.explain(
        figure,
        handles if any(box.outliers for one in owned for box in one.plot.boxes) else handles[:-1],
    )
    return style.finish(figure)


def draw_bars(owned: Sequence[Owned], title: str, width: float) -> Any:
    """Return a figure of bars with their intervals, a panel for each title; several results below each other."""
    titles = list(dict.fromkeys(one.plot.choice or one.plot.title for one in owned))
    rows = list(dict.fromkeys(row for one in owned for row in one.plot.rows))
    results = list(dict.fromkeys((one.number, one.name) for one in owned))
    columns = 1 if style.is_narrow(width) else min(2, len(titles))
    high = len(rows) * max(ROW, 0.07 * (len(results) + 1)) + 0.5
    figure, axes = style.sheet(width, len(titles), columns, high, title)
    for i, (axis, name) in enumerate(zip(axes, titles, strict=True)):
        mine = [one for one in owned if name == (one.plot.choice or one.plot.title)]
        for one in mine:
            part: Bars = one.plot
            number, height = results.index((one.number, one.name)), 0.7 / len(results)
            at = [rows.index(row) - 0.35 + (number + 0.5) * height for row in part.rows]
            axis.barh(at, part.values, height=height, color=style.look(number)["color"], alpha=0.75)
            for y, low, high in zip(at, part.low, part.high, strict=bool(part.low)):
                axis.plot([low, high], [y, y], color=style.DARK, linewidth=0.8)
        axis.set_title(name)
        if mine[0].plot.x.range:
            axis.set_xlim(*mine[0].plot.x.range)
        if mine[0].plot.x.title != name:
            axis.set_xlabel(mine[0].plot.x.title)
        axis.axvline(0, color=style.DARK, linewidth=0.6)
        axis.set_ylim(len(rows) - 0.5, -0.5)
        there = i % columns == 0
        axis.set_yticks(
            range(len(rows)),
            [style.fitted(figure, row, 0.3, style.SIZE) if there else "" for row in rows],
        )
        axis.tick_params(axis="y", length=0)
        axis.grid(visible=False, axis="y")
    handles: list[Any] = [
        Patch(color=style.look(i)["color"], label=name) for i, (_, name) in enumerate(results)
    ]
    note = owned[0].plot.note
    notes = [Line2D([], [], color=style.DARK, linewidth=0.8, label=note)] if note else []
    style.explain(figure, [*(handles if len(results) > 1 else ()), *notes])
    return style.finish(figure)


def draw_grid(grid: TokenGrid, title: str, width: float) -> Any:
    """Return a figure of a grid; of a text that was continued it shows the new tokens alone."""
    kept = [i for i, column in enumerate(grid.columns) if column.marked] or list(
        range(len(grid.columns))
    )
    rows = tuple((head, tuple(cells[i] for i in kept)) for head, cells in grid.rows[:LINES])
    grid = replace(grid, columns=tuple(grid.columns[i] for i in kept), rows=rows)
    wide = 1.3 if max(len(head.text) for head, _ in grid.rows) > LONG else 0.6
    most = max(1, int((width - wide) / TOKEN))
    height = LINE * len(grid.rows) + 0.3
    chunks = [range(i, min(i + most, len(grid.columns))) for i in range(0, len(grid.columns), most)]
    chunks = chunks[: max(1, int(TALL / height))]
    figure, axes = style.sheet(width, len(chunks), 1, height, title)
    for axis, columns in zip(axes, chunks, strict=True):
        _panel(figure, axis, grid, columns, len(chunks[0]), (width - wide) / width)
    style.explain(
        figure,
        [
            Patch(facecolor=PALE, edgecolor="#999999", linewidth=0.4, label="probability 0"),
            Patch(facecolor=STRONG, label="1"),
            Patch(fill=False, edgecolor=EDGE, linewidth=0.9, label="the prediction stays"),
        ],
    )
    return style.finish(figure)


def _panel(
    figure: Any, axis: Any, grid: TokenGrid, columns: range, most: int, share: float
) -> None:
    """Draw some columns of a grid, as wide as those of a full panel."""
    colors = LinearSegmentedColormap.from_list("chances", [PALE, STRONG])
    room = 0.92 * share / most
    for y, (_, cells) in enumerate(grid.rows):
        for x, cell in enumerate(cells[column] for column in columns):
            color = to_hex(colors(cell.probability))
            axis.add_patch(
                Rectangle((x, y), 1, 1, facecolor=color, edgecolor="#e4e4e4", linewidth=0.4)
            )
            if cell.settles:
                box = Rectangle(
                    (x + 0.03, y + 0.06),
                    0.94,
                    0.88,
                    fill=False,
                    edgecolor=EDGE,
                    linewidth=0.9,
                    zorder=3,
                )
                axis.add_patch(box)
            text = style.fitted(figure, cell.text, room, SIZE)
            axis.text(
                x + 0.5,
                y + 0.53,
                text,
                ha="center",
                va="center",
                size=SIZE,
                color=style.DARK,
                zorder=4,
            )
    axis.set_xlim(0, most)
    axis.set_ylim(len(grid.rows), 0)
    axis.xaxis.set_ticks_position("top")
    heads = [style.fitted(figure, grid.columns[column].text, room, SIZE) for column in columns]
    axis.set_xticks([x + 0.5 for x in range(len(heads))], heads, size=SIZE)
    names = [style.fitted(figure, head.text, (1 - share) * 0.95, SIZE) for head, _ in grid.rows]
    axis.set_yticks([y + 0.5 for y in range(len(names))], names, size=SIZE)
    _bare(axis)


def _bare(axis: Any) -> None:
    """Leave an axis its names alone, without grid, ticks and frame."""
    axis.grid(visible=False)
    axis.tick_params(length=0)
    for side in axis.spines.values():
        side.set_visible(False)
