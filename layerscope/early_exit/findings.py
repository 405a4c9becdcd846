"""What a report of exits says in sentences and numbers, the same in a terminal and on the page."""

import math
from typing import TYPE_CHECKING

import pandas as pd

from layerscope.show import number, percent, times

if TYPE_CHECKING:
    from layerscope.early_exit.exit_report import ExitReport


def findings(report: "ExitReport") -> list[str]:
    """Return what a reader should know beside the verdict and the guarantee, a sentence each."""
    chosen = report.chosen
    first = f"No sample leaves early: all go through {report.depth} layers."
    if report.exits and math.isfinite(report.threshold):
        layers = ", ".join(map(str, report.exits))
        first = (
            f"Samples leave at layer{'s' * (len(report.exits) > 1)} {layers} with a confidence of "
            f"{threshold(report.threshold)} or more; the mean is layer {number(chosen['mean_layer'])} of "
            f"{report.depth}, {times(chosen['exit_speedup'])} by depth alone."
        )
    accuracy = ""
    if report.labelled:
        quality, plain = map(percent, qualities(report))
        accuracy = f"Accuracy {quality}, the plain model's {plain}; "
    second = (
        f"{accuracy}{percent(report.disagreement, 2)} of predictions differ from the plain model's; the plain model "
        f"takes {number(report.plain_milliseconds)} ms per sample."
    )
    return [first, second, *against_truncation(report)]


def against_truncation(report: "ExitReport") -> list[str]:
    """Return which is faster at the same accuracy (without labels: agreement): exits, or the model cut at a layer."""
    rows = truncations(report)
    if rows.empty:
        return []
    quality = qualities(report)[0]
    error = 0.0
    what = "as true to the plain model"
    if report.labelled:
        what = "as accurate, within one standard error,"
        error = math.sqrt(quality * (1 - quality) / report.samples)
    as_good = rows[rows["quality"] >= quality - error]
    if as_good.empty:
        best = rows.loc[rows["quality"].idxmax()]
        return [
            f"No truncated model is {what.split(',')[0]}: at best layer {best['layer']:.0f}, with "
            f"{percent(best['quality'])} where exits have {percent(quality)}."
        ]
    best = as_good.loc[as_good["measured"].idxmax()]
    ahead = best["measured"] - report.measured
    faster = "faster than exits" if ahead > 0 else "slower than exits"
    if abs(ahead) <= 2 * math.hypot(best["error"], report.error):
        faster = "as fast as exits, within two standard errors"
    return [
        f"Truncated at layer {best['layer']:.0f} the model is {what} and {faster}: {percent(best['quality'])}, "
        f"{timed(best['measured'], best['error'])} measured, {percent(best['disagreement'])} of predictions differ."
    ]


def truncations(report: "ExitReport") -> pd.DataFrame:
    """Return the truncated models that were measured, by layer, with what is drawn of them as `quality`."""
    rows = report.depths[report.depths["layer"] < report.depth]
    return with_quality(report, rows[rows["measured"].notna()])


def with_quality(report: "ExitReport", rows: pd.DataFrame) -> pd.DataFrame:
    """Return rows with their accuracy, or agreement with the plain model, as `quality`."""
    quality = 1 - rows["disagreement"]
    if report.labelled:
        quality = rows["accuracy"]
    return rows.assign(quality=quality)


def qualities(report: "ExitReport") -> tuple[float, float]:
    """Return the accuracy of the chosen setting and of the plain model, or their agreement with the plain model."""
    if report.accuracy is None or report.plain_accuracy is None:
        return 1 - report.disagreement, 1.0
    return report.accuracy, report.plain_accuracy


def threshold(value: float) -> str:
    """Return a threshold with as many digits as tell it from 1, or its distance; `never` where it is infinite."""
    if math.isinf(value):
        return "never"
    if value == int(value):
        return f"{value:.0f}"
    if 1 - value < 1e-6:
        digits, power = f"{1 - value:.1e}".split("e")
        return f"1 − {digits}e{int(power)}"
    nines = -math.floor(math.log10(1 - value)) - 1
    return f"{value:.{max(3, nines + 2)}f}"


def judged(measured: float, error: float, worth: float) -> tuple[bool, str]:
    """Return whether a speed-up is worth having, in hundredths, as it is shown, and a line that says so.

    One that is worth having is beyond two standard errors of none at all.
    """
    enough = round(measured, 2) >= worth
    pays = enough and (worth <= 1 or measured - 2 * error > 1)
    verdict = "does not pay"
    if pays:
        verdict = "pays"
    return pays, f"{verdict}: {timed(measured, error)} measured"


def timed(factor: float, stderr: float) -> str:
    """Return a speed-up with its standard error, where both are known."""
    if math.isfinite(factor) and stderr >= 0.005:
        return f"{times(factor)} ±{stderr:.2f}"
    return times(factor)
