"""One sentence about a run, and the numbers it was made of."""

from __future__ import annotations

import math
from dataclasses import dataclass

from layerscope.show.numbers import INTERVAL

VERDICTS = {
    None: "how sure that is, is not known",
    True: "that is within the error of the difference",
    False: "that is more than the error of the difference",
}
Numbers = dict[str, float | int | str | bool | None]
Point = tuple[float, float]
"""Value and standard error."""


@dataclass(frozen=True)
class Finding:
    """One sentence about a run, and the numbers it was made of; `answer` is what it has to say in the first line."""

    name: str
    text: str
    numbers: Numbers
    answer: str = ""


def is_within(a: Point, b: Point) -> bool | None:
    """Return whether two values differ by no more than the error of their difference; None where it is unknown."""
    # The error of unrelated samples. Layers are measured on the same samples, whose errors mostly cancel in the
    # difference: this rather says "within" where it is not.
    reach = INTERVAL * math.hypot(a[1], b[1])
    return bool(abs(a[0] - b[0]) <= reach) if math.isfinite(reach) else None
