"""A layer chosen by few labels of the target of a shift, beside what else would choose, judged on the others."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from layerscope.core.errors import LayerscopeError
from layerscope.core.options import Asked
from layerscope.inputs.corpus import LEAST
from layerscope.scores.evaluation import Evaluation
from layerscope.scores.grids import Grid
from layerscope.scores.shifts import Floats, Shift, paired, shifts_of
from layerscope.selection.by_score import Scored, grid_of, most_right, of_samples
from layerscope.selection.choice import Case
from layerscope.selection.selection import Rival, Selection, UnderShift, Worth

LABELS = 100
NUMBERS = (10, 25, 50, 100, 250, 500, 1000)
"""Labels of the target whose worth is shown."""
DRAWS = 200
BLOCKS = 5


def scored_under_shift(evaluation: Evaluation, asked: Asked) -> tuple[Grid, Scored, Shift]:
    """Return the scores of few seeded samples of the target, and as `held` those of all its others."""
    grid = grid_of(evaluation, asked, None)
    found = list(shifts_of(grid))
    if not found:
        raise LayerscopeError("this evaluation has no shift to choose under: evaluate a linear-probe with one first")
    found = [one for one in found if asked.tasks is None or one.target in asked.tasks]
    if len(found) != 1:
        names = [one.target for one in shifts_of(grid)]
        raise LayerscopeError(f"this evaluation has the shifts {', '.join(names)}: name one, `tasks={names[0]!r}`")
    (shift,) = found
    labels, n = asked.target_labels or LABELS, len(shift.on_target)
    if n - labels < LEAST:
        raise LayerscopeError(
            f"{shift.target} has {n:,} samples, of which `target_labels={labels}` leaves {max(n - labels, 0)}, and "
            f"{LEAST} must judge the choice: give fewer, or label more"
        )
    few, rest = _drawn(n, labels, asked.seed)
    about: dict[str, Any] = {
        "title": f"{labels:,} labels of the target of {shift.target}",
        "layers": shift.layers[:-1], "prior": tuple(shift.on_source.mean(0)),
    }  # fmt: skip
    basis = f"judged on {len(rest):,} samples of the target, chosen by {labels:,} others"
    held = of_samples(shift.on_target[rest], **about)
    return grid, of_samples(shift.on_target[few], **about, basis=basis, held=held), shift


def under_shift(found: Selection, shift: Shift, case: Case, asked: Asked) -> UnderShift:
    """Return the layer that few labels found beside those that the source, the depth and all labels choose."""
    labels, n, baseline = asked.target_labels or LABELS, len(shift.on_target), len(shift.layers) - 1
    _, rest = _drawn(n, labels, asked.seed)
    columns = [shift.layers.index(layer) for layer in case.candidates()]
    columns += [baseline] if case.fits_as_shipped() else []
    prior, even = shift.on_source.mean(0).tolist(), [0.0] * len(shift.layers)
    by_source = most_right(shift.on_source, even, columns)
    by_few = baseline if found.as_shipped else shift.layers.index(found.layer)
    crossed, _ = _crossed(shift.on_source, even, columns, asked.seed)
    all_labels, most = _crossed(shift.on_target, prior, columns, asked.seed)
    last = shift.layers.index(case.last) if case.last in shift.layers else baseline
    reference = shift.on_target[rest, by_source]

    def rival(by: str, column: int, source: Floats, target: Floats) -> Rival:
        both = (source, crossed), (target, reference)
        shown = [float(n) for own, _ in both for n in (own.mean(), own.std(ddof=1) / len(own) ** 0.5)]
        return Rival(by, shift.layers[column], *shown, *(n for pair in both for n in paired(np.stack(pair, 1), 0, 1)))

    rivals = (
        rival(f"{labels:,} target labels", by_few, shift.on_source[:, by_few], shift.on_target[rest, by_few]),
        rival("source accuracy", by_source, crossed, reference),
        rival("last layer", last, shift.on_source[:, last], shift.on_target[rest, last]),
        rival("all other target labels", most, shift.on_source[:, most], all_labels[rest]),
    )
    worth, led = [], Counter[int]()
    for number in sorted({*NUMBERS, labels}):
        if n - number < LEAST:
            break
        gains = []
        for draw in range(DRAWS):
            chosen, others = _drawn(n, number, asked.seed, draw + 1)
            column = most_right(shift.on_target[chosen], prior, columns)
            gains.append(float((shift.on_target[others, column] - shift.on_target[others, by_source]).mean()))
            led[column] += number == labels
        low, high = np.quantile(gains, (0.05, 0.95)).tolist()
        worth.append(Worth(number, float(np.mean(gains)), low, high, float(np.mean(np.array(gains) < 0))))
    layers = tuple((shift.layers[column], count) for column, count in led.most_common() if count)
    return UnderShift(shift.source, shift.target, labels, len(rest), rivals, layers, tuple(worth))


def _drawn(n: int, labels: int, seed: int, draw: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Return the samples of one seeded draw of labels, and all others."""
    order = np.random.default_rng([seed, 6, draw]).permutation(n)
    return order[:labels], order[labels:]


def _crossed(values: Floats, prior: Sequence[float], columns: Sequence[int], seed: int) -> tuple[Floats, int]:
    """Return which samples are right at the column that those of other blocks choose, and what most blocks choose."""
    block = np.random.default_rng([seed, 7]).permutation(len(values)) % BLOCKS
    led = [most_right(values[block != number], prior, columns) for number in range(BLOCKS)]
    return values[np.arange(len(values)), np.array(led)[block]], Counter(led).most_common(1)[0][0]
