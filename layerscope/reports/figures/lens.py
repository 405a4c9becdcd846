"""The grid of predictions and the cumulative saturation curve of a reading, ready for a paper."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from layerscope.core.errors import LayerscopeError
from layerscope.logit_lens.document import grids
from layerscope.logit_lens.reading import Reading
from layerscope.show.document import Head, Prediction, TokenGrid
from layerscope.show.plain import plain

PALE, STRONG, EDGE = "#ffffff", "#6ca3d7", "#9a5b00"
COLUMN = 0.52
"""Inches that a token takes."""
ROW = 0.15
TALL = 8.5
"""Inches that a grid may be high; the tables hold the tokens beyond."""
SAMPLES = 40
SIZE = 6


def draw_reading(reading: Reading, folder: str | Path) -> list[Path]:
    """Draw the grid of the first sample and the saturation curve into a folder and return the paths of the files.

    `lens` (of a classifier: all its samples) and `lens_saturation` are there as PNG and PDF, 6.3 inches wide and, with
    `-column` in their name, 3.15. A grid is broken into panels below each other and ends with the page; of a text
    that was continued it shows the new tokens.

    Raises `LayerscopeError` where matplotlib is missing or the folder cannot be written.
    """
    try:
        from layerscope.show.figures import style
    except ImportError:
        raise LayerscopeError('figures need matplotlib: pip install "layerscope[figures]"') from None
    target = Path(folder).expanduser()
    try:
        target.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise LayerscopeError(
            f"figures cannot be written to {str(folder)!r}: {error.strerror}; give another folder"
        ) from None
    drawers: dict[str, Callable[[float], Any]] = {
        "lens": partial(_grid, reading), "lens_saturation": partial(_curve, reading),
    }  # fmt: skip
    written: list[Path] = []
    with style.styled():
        for name, drawer in drawers.items():
            written += style.save(drawer(style.TEXT_WIDTH), target, name)
            written += style.save(drawer(style.COLUMN_WIDTH), target, f"{name}-column")
    return written


def _grid(reading: Reading, width: float) -> Any:
    from matplotlib.patches import Patch

    from layerscope.show.figures import style

    grid = _shown(reading, grids(reading)[0])
    wide = 1.3 if reading.kind == "class" else 0.6
    most = max(1, int((width - wide) / COLUMN))
    height = ROW * len(grid.rows) + 0.3
    chunks = [range(i, min(i + most, len(grid.columns))) for i in range(0, len(grid.columns), most)]
    chunks = chunks[: max(1, int(TALL / height))]
    figure, axes = style.sheet(width, len(chunks), 1, height, _title(reading, style.is_narrow(width)))
    for axis, columns in zip(axes, chunks, strict=True):
        _panel(figure, axis, grid, columns, len(chunks[0]), (width - wide) / width)
    if reading.kind == "class":
        axes[-1].set_xlabel("layer")
    style.explain(figure, [
        Patch(facecolor=PALE, edgecolor="#999999", linewidth=0.4, label="probability 0"),
        Patch(facecolor=STRONG, label="1"),
        Patch(fill=False, edgecolor=EDGE, linewidth=0.9, label="the prediction stays"),
    ])  # fmt: skip
    return style.finish(figure)


def _title(reading: Reading, narrow: bool) -> str:
    what = {"next": "next token", "masked": "masked token", "itself": "token", "tag": "tag", "class": "class"}
    return (
        f"{plain(reading.model)}: {what[reading.kind]} by layer"
        if narrow
        else (f"{plain(reading.model)}: the {what[reading.kind]} each layer would predict")
    )


def _shown(reading: Reading, grid: TokenGrid) -> TokenGrid:
    """Return the grid with its new tokens alone, where there are any, and no more samples than a page holds."""
    rows = grid.rows[:SAMPLES] if reading.kind == "class" else grid.rows
    kept = [i for i, column in enumerate(grid.columns) if column.marked] or list(range(len(grid.columns)))

    def of(cells: Sequence[Prediction]) -> tuple[Prediction, ...]:
        return tuple(cells[i] for i in kept)

    return replace(
        grid, columns=tuple(grid.columns[i] for i in kept), rows=tuple((head, of(cells)) for head, cells in rows)
    )


def _panel(figure: Any, axis: Any, grid: TokenGrid, columns: range, most: int, share: float) -> None:
    """Draw some columns of a grid, as wide as those of a full panel."""
    from matplotlib.colors import LinearSegmentedColormap, to_hex
    from matplotlib.patches import Rectangle

    from layerscope.show.figures import style

    colors = LinearSegmentedColormap.from_list("lens", [PALE, STRONG])
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


def _curve(reading: Reading, width: float) -> Any:
    from layerscope.show.figures import style
    from layerscope.show.figures.axes import mark_layers

    table = reading.cumulative
    figure, (axis,) = style.sheet(width, 1, 1, 1.9, plain(reading.model))
    axis.plot(table["layer"], 100 * table["share"], **style.look(0))
    axis.set_ylabel(f"% of {len(reading.counted):,} predictions")
    axis.set_xlabel("settled by layer")
    axis.set_ylim(-3, 103)
    mark_layers(axis, reading.depth, 8, first=1)
    return style.finish(figure)
