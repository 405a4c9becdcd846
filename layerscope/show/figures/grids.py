"""Grids of predictions in figures, broken into panels below each other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from matplotlib.colors import LinearSegmentedColormap, to_hex
from matplotlib.patches import Patch, Rectangle

from layerscope.show.document import Head, Prediction, TokenGrid
from layerscope.show.figures import style

PALE, STRONG, EDGE = "#ffffff", "#6ca3d7", "#9a5b00"
COLUMN = 0.52
"""Inches that a token takes."""
ROW = 0.15
TALL = 8.5
"""Inches that a grid may be high; tables hold the tokens beyond."""
ROWS = 40
LONG = 12
"""Characters of the name of a row, above which it takes more room."""
SIZE = 6


def draw_grid(grid: TokenGrid, title: str, width: float) -> Any:
    """Return a figure of a grid; of a text that was continued it shows the new tokens alone."""
    grid = _shown(grid)
    wide = 1.3 if max(len(head.text) for head, _ in grid.rows) > LONG else 0.6
    most = max(1, int((width - wide) / COLUMN))
    height = ROW * len(grid.rows) + 0.3
    chunks = [range(i, min(i + most, len(grid.columns))) for i in range(0, len(grid.columns), most)]
    chunks = chunks[: max(1, int(TALL / height))]
    figure, axes = style.sheet(width, len(chunks), 1, height, title)
    for axis, columns in zip(axes, chunks, strict=True):
        _panel(figure, axis, grid, columns, len(chunks[0]), (width - wide) / width)
    style.explain(figure, [
        Patch(facecolor=PALE, edgecolor="#999999", linewidth=0.4, label="probability 0"),
        Patch(facecolor=STRONG, label="1"),
        Patch(fill=False, edgecolor=EDGE, linewidth=0.9, label="the prediction stays"),
    ])  # fmt: skip
    return style.finish(figure)


def _shown(grid: TokenGrid) -> TokenGrid:
    """Return the grid with its new tokens alone, where there are any, and no more rows than a page holds."""
    kept = [i for i, column in enumerate(grid.columns) if column.marked] or list(range(len(grid.columns)))

    def of(cells: Sequence[Prediction]) -> tuple[Prediction, ...]:
        return tuple(cells[i] for i in kept)

    rows = tuple((head, of(cells)) for head, cells in grid.rows[:ROWS])
    return replace(grid, columns=tuple(grid.columns[i] for i in kept), rows=rows)


def _panel(figure: Any, axis: Any, grid: TokenGrid, columns: range, most: int, share: float) -> None:
    """Draw some columns of a grid, as wide as those of a full panel."""
    colors = LinearSegmentedColormap.from_list("chances", [PALE, STRONG])
    room = 0.92 * share / most

    def shown(head: Head) -> str:
        return style.fitted(figure, head.text, room, SIZE)

    for y, (_, cells) in enumerate(grid.rows):
        for x, column in enumerate(columns):
            cell = cells[column]
            color = to_hex(colors(cell.probability))
            axis.add_patch(Rectangle((x, y), 1, 1, facecolor=color, edgecolor="#e4e4e4", linewidth=0.4))
            if cell.settles:
                box = Rectangle((x + 0.03, y + 0.06), 0.94, 0.88, fill=False, edgecolor=EDGE, linewidth=0.9, zorder=3)
                axis.add_patch(box)
            text = style.fitted(figure, cell.text, room, SIZE)
            axis.text(x + 0.5, y + 0.53, text, ha="center", va="center", size=SIZE, color=style.DARK, zorder=4)
    axis.set_xlim(0, most)
    axis.set_ylim(len(grid.rows), 0)
    axis.grid(visible=False)
    axis.xaxis.set_ticks_position("top")
    axis.set_xticks([x + 0.5 for x in range(len(columns))], [shown(grid.columns[i]) for i in columns], size=SIZE)
    names = [style.fitted(figure, head.text, (1 - share) * 0.95, SIZE) for head, _ in grid.rows]
    axis.set_yticks([y + 0.5 for y in range(len(names))], names, size=SIZE)
    axis.tick_params(length=0)
    for side in axis.spines.values():
        side.set_visible(False)
