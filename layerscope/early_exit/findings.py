"""What a report of exits says in sentences and numbers, the same in a terminal and on the page."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import pandas as pd

from layerscope.show.numbers import number, percent, times

if TYPE_CHECKING:
    from layerscope.early_exit.exit_report import ExitReport

LEAST_SPAN = 0.002
"""Shares that lie closer together are no curve to look at."""


def findings(report: ExitReport) -> list[str]:
    """Return what a reader should know beside the verdict and the guarantee, a sentence each."""
    return [setting(report), *one_at_a_time(report), quality(report), *against_truncation(report)]


def one_at_a_time(report: ExitReport) -> list[str]:
    """Return what exits win without batches, in which the last row to leave keeps the others waiting."""
    if report.alone is None or report.batch_size == 1:
        return []
    batches = f", in batches of {report.batch_size} {times(report.measured)}" if math.isfinite(report.measured) else ""
    return [f"One sample at a time exits are {times(report.alone)} as fast as the plain model{batches}."]


def setting(report: ExitReport) -> str:
    """Return where samples leave, when, and how far they come."""
    if not report.exits or math.isinf(report.threshold):
        return f"No sample leaves early: all go through {report.depth} layers."
    row = report.chosen
    mean = "" if row is None else f"; the mean is layer {number(float(row['mean_layer']))} of {report.depth}"
    layers = ", ".join(map(str, report.exits))
    return (
        f"Samples leave at layer{'s' * (len(report.exits) > 1)} {layers} with a {report.criterion} of "
        f"{threshold(report.threshold)} or more{mean}, {times(report.exit_speedup)} by depth alone."
    )


def quality(report: ExitReport) -> str:
    """Return what leaving early costs in predictions, and what a sample's share of time is."""
    differ = f"{percent(report.disagreement, 2)} of predictions differ from the plain model's"
    time = f"the plain model takes {number(report.plain_milliseconds)} ms a sample."
    if report.accuracy is None or report.plain_accuracy is None:
        return f"{differ}; {time}"
    return f"Accuracy {percent(report.accuracy)}, the plain model's {percent(report.plain_accuracy)}; {differ}; {time}"


def against_truncation(report: ExitReport) -> list[str]:
    """Return which is faster at the same accuracy (without labels: agreement): exits, or the model cut at a layer."""
    rows = truncations(report, report.labelled)
    if not len(rows) or not math.isfinite(report.measured):
        return []
    own = value(report, report.labelled)
    error = math.sqrt(own * (1 - own) / report.samples) if report.labelled and report.samples else 0.0
    what = "as accurate, within one standard error," if report.labelled else "as true to the plain model"
    good = rows[rows["quality"] >= own - error]
    if not len(good):
        best = rows.loc[rows["quality"].idxmax()]
        return [
            f"No truncated model is {what.split(',')[0]}: at best layer {int(best['layer'])}, with "
            f"{percent(float(best['quality']))} where exits have {percent(own)}."
        ]
    best = good.loc[good["measured"].idxmax()]
    faster = "faster than exits" if best["measured"] > report.measured else "no faster than exits"
    return [
        f"Truncated at layer {int(best['layer'])} the model is {what} and {faster}: {percent(float(best['quality']))}, "
        f"{times(float(best['measured']))} measured, {percent(float(best['disagreement']))} of predictions differ"
        f"{_against_goal(report, float(best['disagreement']))}."
    ]


def _against_goal(report: ExitReport, disagreement: float) -> str:
    """Return the word on a truncated model that differs more than exits may."""
    most = ((report.calibration or {}).get("goal") or {}).get("max_disagreement")
    return f", which is more than the {percent(most, 2)} that exits may" if most and disagreement > most else ""


def exits_by_speed(report: ExitReport, labelled: bool) -> pd.DataFrame:
    """Return the rows of the curve that were measured, the slowest threshold first, with what is drawn as `quality`."""
    rows = report.curve[report.curve["measured"].notna()].sort_values("mean_layer", ascending=False)
    return rows.assign(quality=_quality(rows, labelled))


def truncations(report: ExitReport, labelled: bool) -> pd.DataFrame:
    """Return the truncated models that were measured, by layer, with what is drawn of them as `quality`."""
    rows = report.depths[(report.depths["layer"] < report.depth) & report.depths["measured"].notna()]
    return rows.assign(quality=_quality(rows, labelled)).sort_values("layer").dropna(subset=["quality"])


def _quality(rows: pd.DataFrame, labelled: bool) -> pd.Series:  # type: ignore[type-arg]
    """Accuracy, or agreement with the plain model, in 0 … 1."""
    return rows["accuracy"] if labelled else 1 - rows["disagreement"]


def value(report: ExitReport, labelled: bool) -> float:
    """Return the chosen setting's accuracy, or its agreement with the plain model."""
    return report.accuracy if labelled and report.accuracy is not None else 1 - report.disagreement


def plain_value(report: ExitReport, labelled: bool) -> float:
    """Return the plain model's accuracy, or its agreement with itself."""
    return report.plain_accuracy if labelled and report.plain_accuracy is not None else 1.0


def window(report: ExitReport, labelled: bool) -> tuple[tuple[float, float], tuple[float, float]] | None:
    """Return the speed-ups and the shares a plot of quality against speed begins and ends at.

    What exits reach fills it: far below, where shallow truncated models lie, nobody chooses. None is no bound, where
    exits reach nothing.
    """
    curve, cut = exits_by_speed(report, labelled), truncations(report, labelled)
    shares = [*curve["quality"].dropna(), plain_value(report, labelled)]
    low, high = min(shares), max(shares)
    if high - low < LEAST_SPAN:
        return None
    low, high = low - 0.25 * (high - low), high + 0.12 * (high - low)
    inside = cut[cut["quality"] >= low]
    high = max(high, float((inside["quality"] + 0.12 * (high - low)).max())) if len(inside) else high
    speeds = [*curve["measured"], *inside["measured"], 1.0]
    room = 0.06 * (max(speeds) - min(speeds))
    return (min(speeds) - room, max(speeds) + room), (low, high)


def threshold(found: float) -> str:
    """Return a threshold with as many digits as tell it from 1, or its distance; `never` where it is infinite."""
    if math.isinf(found):
        return "never"
    if found == int(found):
        return f"{found:.0f}"
    if 0 < 1 - found < 1e-6:
        figures, power = f"{1 - found:.1e}".split("e")
        return f"1 − {figures}e{int(power)}"
    nines = -math.floor(math.log10(1 - found)) - 1 if 0 < found < 1 else 0
    return f"{found:.{max(3, nines + 2)}f}"
