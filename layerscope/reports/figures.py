"""The figures of a run as PNG: curves by layer, heat maps of every two layers, and what the head says."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from layerscope.errors import LayerscopeError
from layerscope.metrics.registry import METRICS
from layerscope.reports.curves import Curve, curves, number
from layerscope.reports.plain import plain, pooling_name
from layerscope.runs.run import Run

DPI = 200
TEXT_WIDTH = 6.3
"""Inches: the width of a page's text."""
COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7")
"""Okabe and Ito's, told apart by the colour-blind; dashes tell the lines apart where there is no colour."""
DASHES = ("-", "--", "-.", ":")
MARK = "#E69F00"
HEAT = "cividis"
PRINTED = 13
"""Heat maps of at most this many layers print their values."""
STYLE = {
    "font.family": "DejaVu Sans", "font.size": 7.5, "axes.titlesize": 8, "axes.labelsize": 7.5, "xtick.labelsize": 7,
    "ytick.labelsize": 7, "legend.fontsize": 7, "axes.spines.top": False, "axes.spines.right": False,
    "axes.linewidth": 0.6, "axes.edgecolor": "#444444", "xtick.major.width": 0.6, "ytick.major.width": 0.6,
    "axes.grid": True, "grid.color": "#e4e4e4", "grid.linewidth": 0.5, "axes.axisbelow": True, "lines.linewidth": 1.3,
    "lines.markersize": 2.6, "figure.facecolor": "white", "legend.frameon": False, "axes.ymargin": 0.09,
    "axes.formatter.limits": (-3, 4),
}  # fmt: skip


def draw(run: Run, folder: str | Path) -> list[Path]:
    """Draw a run's figures into a folder and return their paths: PNG of 200 dpi, 6.3 inches wide.

    `curves.png` always; `cosine_similarity.png` and `cka.png` where pairs of layers were compared; `saturation.png`
    where the model has a head. Raises `LayerscopeError` where matplotlib is missing, the folder cannot be written, or
    the run has nothing to draw.
    """
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        raise LayerscopeError('figures need matplotlib: pip install "layerscope[figures]"') from None
    known = curves(run)
    if not known:
        raise LayerscopeError(f"run {str(run.path)!r} holds no metric by layer: there is nothing to draw")
    target = Path(folder)
    try:
        target.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise LayerscopeError(
            f"figures cannot be written to {str(folder)!r}: {error.strerror}; give another folder"
        ) from None
    with _style():
        figures = {"curves": draw_curves(run, known)}
        for name in ("cosine_similarity", "cka"):
            if any(c.metric == name for c in known):
                figures[name] = draw_pairs(run, name)
        if any(c.metric == "saturated" for c in known):
            figures["saturation"] = draw_saturation(run, known)
        return [_save(figure, target / f"{name}.png") for name, figure in figures.items()]


def draw_curves(run: Run, known: list[Curve]) -> Any:
    """Return a figure of small multiples: every metric by layer, with bands of one standard error."""
    panels: dict[tuple[str, str | None], list[Curve]] = {}
    for curve in known:
        panels.setdefault((curve.metric, curve.variant), []).append(curve)
    poolings = [p for p in dict.fromkeys(c.pooling for c in known) if p is not None]
    columns = min(3, len(panels))
    rows = -(-len(panels) // columns)
    figure, axes = _figure(rows, columns, 1.5 * rows + 0.75, run)
    for axis, (key, lines) in zip(axes, panels.items(), strict=False):
        for curve in lines:
            style = poolings.index(curve.pooling) if len(poolings) > 1 and curve.pooling else 0
            _line(axis, curve, style % len(COLORS))
        several = len({variant for metric, variant in panels if metric == key[0]}) > 1
        _name(axis, lines[0], several)
        _layer_ticks(axis, run.depth)
    for axis in axes[len(panels) :]:
        axis.set_visible(False)
    for axis in axes[(rows - 1) * columns : len(panels)]:
        axis.set_xlabel("layer")
    _explain(figure, known, poolings)
    return figure


def draw_pairs(run: Run, name: str) -> Any:
    """Return a figure of heat maps: one metric between every two layers, one map for each pooling."""
    rows = run.table()
    rows = rows[rows["metric"] == name]
    poolings = list(rows["pooling"].unique())
    squares = [pd.DataFrame(run.metric(name, pooling=pooling)) for pooling in poolings]
    size = len(squares[0])
    side_by_side = len(squares) > 1 and (size <= 8 or run.depth >= PRINTED)
    columns = 2 if side_by_side else 1
    down = -(-len(squares) // columns)
    figure, axes = _figure(down, columns, down * (TEXT_WIDTH / columns * (0.82 if side_by_side else 0.68)) + 0.3, run)
    lowest = min(0.0, *(float(np.nanmin(s.to_numpy())) if s.notna().any(axis=None) else 0.0 for s in squares))
    for axis, square, pooling in zip(axes, squares, poolings, strict=False):
        image = axis.imshow(square.to_numpy(), cmap=HEAT, vmin=lowest, vmax=1.0, origin="lower")
        axis.grid(visible=False)
        axis.set_title(pooling_name(pooling), loc="left")
        _pair_ticks(axis, square)
        if run.depth < PRINTED:
            _print_values(axis, square.to_numpy(), lowest, small=side_by_side or size > 10)
        bar = figure.colorbar(image, ax=axis, fraction=0.046, pad=0.03)
        bar.outline.set_visible(False)
        bar.set_label(f"{METRICS[name].title} ({rows['variant'].iloc[0].replace(',', ', ')})", parse_math=False)
    for axis in axes[len(squares) :]:
        axis.set_visible(False)
    return figure


def draw_saturation(run: Run, known: list[Curve]) -> Any:
    """Return a figure of the share of predictions settled at each layer, beside perplexity (or accuracy) by layer."""
    saturated = next(c for c in known if c.metric == "saturated")
    beside = next((c for name in ("perplexity", "layer_accuracy") for c in known if c.metric == name), None)
    figure, axes = _figure(1, 2 if beside else 1, 2.3, run)
    shares = 100 * np.diff(saturated.values, prepend=0.0)
    axes[0].bar(saturated.layers, shares, color=COLORS[0], width=0.8)
    axes[0].set_title("where predictions settle", loc="left")
    axes[0].set_ylabel(f"% of {saturated.n:,} predictions")
    axes[0].set_xlabel("layer from which the prediction stays")
    _layer_ticks(axes[0], run.depth, first=1)
    rows = run.table()
    mean = rows.loc[rows["metric"] == "saturation_layer", "value"]
    if len(mean) and math.isfinite(mean.iloc[0]):
        axes[0].axvline(mean.iloc[0], color=COLORS[1], linestyle="--", linewidth=1)
        side = "right" if mean.iloc[0] > (1 + run.depth) / 2 else "left"
        axes[0].set_ylim(0, 1.2 * max(1.0, float(np.nanmax(shares))))
        axes[0].annotate(
            f" mean {number(mean.iloc[0])} ",
            (mean.iloc[0], 0.98),
            xycoords=("data", "axes fraction"),
            ha=side,
            va="top",
            color=COLORS[1],
        )
    if beside is not None:
        _line(axes[1], beside, 0)
        _name(axes[1], beside, several=False)
        axes[1].set_xlabel("layer, read through the model's head")
        _layer_ticks(axes[1], run.depth)
    return figure


@contextmanager
def _style() -> Iterator[None]:
    """Draw in this room's style and leave the caller's settings as they were."""
    from matplotlib import rc_context

    with rc_context(STYLE), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from")  # a name in a script the font lacks
        yield


def _figure(rows: int, columns: int, height: float, run: Run) -> tuple[Any, list[Any]]:
    """Return a figure of its own canvas, and its axes in reading order."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(TEXT_WIDTH, height), dpi=DPI, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots(rows, columns, squeeze=False)
    title = plain(f"{run.info['model']['name']} on {run.info['data']['name']}")
    title = title if len(title) <= 90 else f"{title[:89]}…"
    figure.suptitle(title, x=0.01, ha="left", fontsize=8.5, fontweight="bold", parse_math=False)
    return figure, list(axes.flat)


def _line(axis: Any, curve: Curve, style: int) -> None:
    color, dash = COLORS[style], DASHES[style]
    layers, values = np.array(curve.layers), curve.values * curve.scale
    band = np.nan_to_num(curve.stderr) * curve.scale
    axis.plot(layers, values, color=color, linestyle=dash, marker="o" if len(layers) <= 30 else None)
    low = np.maximum(values - band, values / 2) if curve.log else values - band
    axis.fill_between(layers, low, values + band, color=color, alpha=0.22, linewidth=0)
    if curve.final is not None:
        axis.plot(
            layers[-1],
            curve.final * curve.scale,
            marker="D",
            markersize=4,
            mfc="white",
            mec=color,
            linestyle="none",
        )
    if curve.stands_out is not None:
        value = curve.at(curve.stands_out)[0] * curve.scale
        axis.plot(
            curve.stands_out,
            value,
            marker="o",
            markersize=6.5,
            mfc="none",
            mec=MARK,
            mew=1.4,
            linestyle="none",
        )
    if curve.log and np.nanmin(values) > 0:
        axis.set_yscale("log")


def _name(axis: Any, curve: Curve, several: bool) -> None:
    title = f"{curve.title} to the last layer" if curve.group == "similarity" else curve.title
    if several and curve.variant:
        title += f" ({curve.variant})"
    axis.set_title(title, loc="left")
    axis.set_ylabel(curve.unit)


def _layer_ticks(axis: Any, depth: int, first: int = 0) -> None:
    step = next(s for s in (1, 2, 4, 5, 6, 8, 10, 12, 20, 50, 100, 1000) if depth / s <= 8)
    axis.set_xticks([layer for layer in range(0, depth + 1, step) if layer >= first])
    room = max(0.5, 0.04 * depth)
    axis.set_xlim(first - room, depth + room)


def _pair_ticks(axis: Any, square: pd.DataFrame) -> None:
    size = len(square)
    step = max(1, -(-size // 16))
    last = size - 1
    places = [i for i in range(size) if i % step == 0 and (i == last or last - i >= step)] + [last] * (last % step != 0)
    names = [str(square.index[i]) for i in places]
    axis.set_xticks(places, names, rotation=90 if "final" in names else 0)
    axis.set_yticks(places, names)
    axis.set_xlabel("layer")
    axis.set_ylabel("layer")


def _print_values(axis: Any, values: np.ndarray[Any, Any], lowest: float, small: bool) -> None:
    for (i, j), value in np.ndenumerate(values):
        if math.isfinite(value):
            dark = (value - lowest) / (1.0 - lowest) < 0.55
            text = f"{round(float(value), 2) + 0.0:.2f}".replace("0.", ".", 1)  # + 0.0: no minus before nothing
            axis.text(
                j,
                i,
                text,
                ha="center",
                va="center",
                fontsize=5.5 if small else 6.5,
                color="white" if dark else "black",
            )


def _explain(figure: Any, known: list[Curve], poolings: list[str]) -> None:
    """Write below the panels what lines and marks stand for."""
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    handles: list[Any] = []
    if len(poolings) > 1:
        handles += [
            Line2D(
                [],
                [],
                color=COLORS[i % len(COLORS)],
                linestyle=DASHES[i % len(DASHES)],
                label=pooling_name(p),
            )
            for i, p in enumerate(poolings)
        ]
    if any(np.isfinite(c.stderr).any() for c in known):
        handles.append(Patch(color=COLORS[0], alpha=0.22, linewidth=0, label="± one standard error"))
    if any(c.stands_out is not None for c in known):
        ring: dict[str, Any] = {
            "marker": "o",
            "markersize": 6,
            "mfc": "none",
            "mec": MARK,
            "mew": 1.4,
            "linestyle": "none",
        }
        handles.append(Line2D([], [], label="layer that stands out", **ring))
    if any(c.final is not None for c in known):
        diamond: dict[str, Any] = {
            "marker": "D",
            "markersize": 4,
            "mfc": "white",
            "mec": COLORS[0],
            "linestyle": "none",
        }
        handles.append(Line2D([], [], label="after the final norm", **diamond))
    if handles:
        figure.legend(handles=handles, loc="outside lower left", ncols=min(4, len(handles)))


def _save(figure: Any, path: Path) -> Path:
    try:
        figure.savefig(path, dpi=DPI)
    except OSError as error:
        raise LayerscopeError(
            f"figure {str(path)!r} cannot be written: {error.strerror}; give another folder"
        ) from None
    return path
