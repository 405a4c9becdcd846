"""What a report of exits says in sentences and numbers, the same in a terminal and on the page."""

import math
from typing import TYPE_CHECKING

import pandas as pd

from layerscope.show.numbers import number, percent, times

if TYPE_CHECKING:
    from layerscope.early_exit.exit_report import ExitReport

LEAST_SPAN = 0.002
"""Shares that lie closer together are no curve to look at."""
SLACK, OVERHEAD = 1.05, 0.5
"""How far speeds may lie beyond what is possible, and the milliseconds a batch that a model with exits may cost."""


def findings(report: "ExitReport") -> list[str]:
    """Return what a reader should know beside the verdict and the guarantee, a sentence each."""
    sentences = [f"No sample leaves early: all go through {report.depth} layers."]
    if report.exits and math.isfinite(report.threshold):
        layers = ", ".join(map(str, report.exits))
        mean = ""
        if report.chosen is not None:
            layer = number(float(report.chosen["mean_layer"]))
            mean = f"; the mean is layer {layer} of {report.depth}"
        sentences = [
            f"Samples leave at layer{'s' * (len(report.exits) > 1)} {layers} with a {report.criterion} of "
            f"{threshold(report.threshold)} or more{mean}, {times(report.exit_speedup)} by depth alone."
        ]
    # in batches the last row to leave keeps the others waiting
    if report.alone is not None and report.batch_size > 1:
        in_batches = ""
        if math.isfinite(report.measured) and not report.busy:
            speed = timed(report.measured, report.error)
            in_batches = f", in batches of {report.batch_size} {speed}"
        alone = timed(report.alone, report.alone_error)
        sentences.append(
            f"One sample at a time, exits are {alone} as fast as the plain model{in_batches}."
        )
    accuracy = ""
    if report.accuracy is not None and report.plain_accuracy is not None:
        accuracy = f"Accuracy {percent(report.accuracy)}, the plain model's {percent(report.plain_accuracy)}; "
    sentences.append(
        f"{accuracy}{percent(report.disagreement, 2)} of predictions differ from the plain model's; the plain model "
        f"takes {number(report.plain_milliseconds)} ms per sample."
    )
    return [*sentences, *against_truncation(report)]


def against_truncation(report: "ExitReport") -> list[str]:
    """Return which is faster at the same accuracy (without labels: agreement): exits, or the model cut at a layer."""
    rows = truncations(report)
    if not len(rows) or not math.isfinite(report.measured):
        return []
    quality, _ = qualities(report)
    error, what = 0.0, "as true to the plain model"
    if report.labelled:
        what = "as accurate, within one standard error,"
        if report.samples:
            error = math.sqrt(quality * (1 - quality) / report.samples)
    good = rows[rows["quality"] >= quality - error]
    if not len(good):
        best = rows.loc[rows["quality"].idxmax()]
        return [
            f"No truncated model is {what.split(',')[0]}: at best layer {int(best['layer'])}, with "
            f"{percent(float(best['quality']))} where exits have {percent(quality)}."
        ]
    best = good.loc[good["measured"].idxmax()]
    ahead = float(best["measured"]) - report.measured
    if report.busy:
        best = good.loc[good["layer"].idxmin()]
        faster = "which of the two is faster cannot be read from these times"
    elif abs(ahead) <= 2 * math.hypot(_error(best["error"]), _error(report.error)):
        faster = "as fast as exits, within two standard errors"
    else:
        faster = "faster than exits" if ahead > 0 else "slower than exits"
    goal = (report.calibration or {}).get("goal") or {}
    differ, most = float(best["disagreement"]), goal.get("max_disagreement")
    more = ""
    if most and differ > most:
        more = f", which is more than the {percent(most, 2)} that exits may"
    speed = timed(float(best["measured"]), float(best["error"]))
    return [
        f"Truncated at layer {int(best['layer'])} the model is {what} and {faster}: {percent(float(best['quality']))}, "
        f"{speed} measured, {percent(differ)} of predictions differ{more}."
    ]


def truncations(report: "ExitReport") -> pd.DataFrame:
    """Return the truncated models that were measured, by layer, with what is drawn of them as `quality`."""
    rows = measured(report, report.depths[report.depths["layer"] < report.depth])
    return rows.sort_values("layer").dropna(subset=["quality"])


def measured(report: "ExitReport", rows: pd.DataFrame) -> pd.DataFrame:
    """Return the rows that were measured, with their accuracy, or agreement with the plain model, as `quality`."""
    quality = rows["accuracy"] if report.labelled else 1 - rows["disagreement"]
    return rows.assign(quality=quality)[rows["measured"].notna()]


def qualities(report: "ExitReport") -> tuple[float, float]:
    """Return the accuracy of the chosen setting and of the plain model, or their agreement with the plain model."""
    if report.accuracy is None or report.plain_accuracy is None:
        return 1 - report.disagreement, 1.0
    return report.accuracy, report.plain_accuracy


def window(report: "ExitReport") -> tuple[tuple[float, float], tuple[float, float]] | None:
    """Return the speed-ups and the shares a plot of quality against speed begins and ends at.

    What exits reach fills it: far below, where shallow truncated models lie, nobody chooses. None
    is no bound, where exits reach nothing.
    """
    curve, cut = measured(report, report.curve), truncations(report)
    shares = [*curve["quality"].dropna(), qualities(report)[1]]
    low, high = min(shares), max(shares)
    if high - low < LEAST_SPAN:
        return None
    low, high = low - 0.25 * (high - low), high + 0.12 * (high - low)
    inside = cut[cut["quality"] >= low]
    high = (
        max(high, float((inside["quality"] + 0.12 * (high - low)).max())) if len(inside) else high
    )
    speeds = [*curve["measured"], *inside["measured"], 1.0]
    room = 0.06 * (max(speeds) - min(speeds))
    return (min(speeds) - room, max(speeds) + room), (low, high)


def threshold(value: float) -> str:
    """Return a threshold with as many digits as tell it from 1, or its distance; `never` where it is infinite."""
    if math.isinf(value):
        return "never"
    if value == int(value):
        return f"{value:.0f}"
    if 0 < 1 - value < 1e-6:
        digits, power = f"{1 - value:.1e}".split("e")
        return f"1 − {digits}e{int(power)}"
    nines = -math.floor(math.log10(1 - value)) - 1 if 0 < value < 1 else 0
    return f"{value:.{max(3, nines + 2)}f}"


def judged(
    predicted: float, measured: float, worth: float, error: float = math.nan, busy: str = ""
) -> tuple[bool, str]:
    """Return whether a speed-up is worth having, in hundredths, as it is shown, and a line that says so.

    Where the machine was `busy`, what is expected decides alone.
    """
    counted = [predicted] if busy or math.isnan(measured) else [predicted, measured]
    pays = all(round(value, 2) >= worth for value in counted)
    verdict = f"{'pays' if pays else 'does not pay'}: {times(predicted)} expected"
    if busy:
        verdict += f"; the machine was busy, so {times(measured)} measured does not count"
    elif not math.isnan(measured):
        verdict += f", {timed(measured, error)} measured"
    return pays, verdict


def disturbance(
    measured: float,
    error: float,
    ceiling: float,
    control: float,
    control_error: float,
    milliseconds: float,
) -> str:
    """Return why a speed-up was measured on a busy machine, with the mend; empty where nothing speaks for that.

    It exceeds the `ceiling`, what the blocks left out allow, or the `control`, a model that no
    sample leaves early, is not as fast as the plain model, of which a batch takes these
    `milliseconds`.
    """
    overhead = OVERHEAD / milliseconds
    if measured - 2 * error > SLACK * ceiling:
        why = f"exits measured {timed(measured, error)}, and the blocks they leave out allow {times(ceiling)}"
    elif (
        control - 2 * control_error > SLACK or 1 / (control + 2 * control_error) > SLACK + overhead
    ):
        why = f"with exits that nobody takes the model measured {timed(control, control_error)} its own speed"
    else:
        return ""
    return f"the machine was busy: {why}; measure again when it is quiet"


def timed(factor: float, stderr: float) -> str:
    """Return a speed-up with its standard error, where both are known."""
    if math.isfinite(factor) and stderr >= 0.005:
        return f"{times(factor)} ±{stderr:.2f}"
    return times(factor)


def _error(stderr: float) -> float:
    return 0.0 if math.isnan(stderr) else float(stderr)
