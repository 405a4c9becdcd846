"""A layer chosen by few labels of the target of a shift, beside what else would choose, judged on the others."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from layerscope.core.errors import LayerscopeError
from layerscope.core.options import Asked
from layerscope.core.saved import jsonable
from layerscope.inputs.corpus import LEAST
from layerscope.probes.scores import error_of
from layerscope.scores.evaluation import Evaluation
from layerscope.scores.grids import Grid
from layerscope.scores.naming import Unit
from layerscope.scores.shifts import Floats, Shift, paired, shifts_of
from layerscope.selection.by_score import Scored, grid_of, most_right, of_samples
from layerscope.show.document import EMPTY, Cell, Column, Row, Table, columns, row

if TYPE_CHECKING:
    from layerscope.selection.choice import Case
    from layerscope.selection.selection import Selection

LABELS = 100
NUMBERS = (10, 25, 50, 100, 250, 500, 1000)
"""Labels of the target whose worth is shown."""
DRAWS = 200
BLOCKS = 5
UNIT = Unit(percent=True)


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


def under_shift(found: "Selection", shift: Shift, case: "Case", asked: Asked) -> dict[str, Any]:
    """Return the layer that few labels found beside those that source, depth and all labels choose, and labels' worth.

    Each is judged on samples that had no part in choosing it, those of the target on all but the few.
    """
    labels, n, baseline = asked.target_labels or LABELS, len(shift.on_target), len(shift.layers) - 1
    _, rest = _drawn(n, labels, asked.seed)
    columns = [shift.layers.index(layer) for layer in case.candidates()]
    columns += [baseline] if case.fits_as_shipped() else []
    prior, even = shift.on_source.mean(0).tolist(), [0.0] * len(shift.layers)
    by_source = most_right(shift.on_source, even, columns)
    by_few = baseline if found.as_shipped else shift.layers.index(found.layer)
    last = shift.layers.index(case.last) if case.last in shift.layers else baseline
    crossed, _ = _crossed(shift.on_source, even, columns, asked.seed)
    all_labels, most = _crossed(shift.on_target, prior, columns, asked.seed)
    names = f"{labels:,} target labels", "source accuracy", "last layer", "all other target labels"
    rivals = []
    for by, column in zip(names, (by_few, by_source, last, most), strict=True):
        rival: dict[str, Any] = {"by": by, "layer": shift.layers[column]}
        here = crossed if by == names[1] else shift.on_source[:, column]
        there = (all_labels if by == names[-1] else shift.on_target[:, column])[rest]
        for on, own, other in ("source", here, crossed), ("target", there, shift.on_target[rest, by_source]):
            gain, error = paired(own, other)
            rival |= {on: own.mean(), f"{on}_error": error_of(own), f"{on}_gain": gain, f"{on}_gain_error": error}
        rivals.append(rival)
    worth = []
    for number in (number for number in sorted({*NUMBERS, labels}) if n - number >= LEAST):
        draws = [_drawn(n, number, asked.seed, draw) for draw in range(1, DRAWS + 1)]
        chosen = [(most_right(shift.on_target[few], prior, columns), others) for few, others in draws]
        right = shift.on_target
        gains = [(right[others, column] - right[others, by_source]).mean() for column, others in chosen]
        low, high = np.quantile(gains, (0.05, 0.95))
        worse = np.less(gains, 0).mean()
        worth.append({"labels": number, "gain": np.mean(gains), "low": low, "high": high, "worse": worse})
    about = {"source": shift.source, "target": shift.target, "labels": labels, "judged": len(rest)}
    return about | {"rivals": tuple(map(jsonable, rivals)), "worth": tuple(map(jsonable, worth))}


def _drawn(n: int, labels: int, seed: int, draw: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Return the samples of one seeded draw of labels, and all others."""
    order = np.random.default_rng([seed, 6, draw]).permutation(n)
    return order[:labels], order[labels:]


def _crossed(values: Floats, prior: Sequence[float], columns: Sequence[int], seed: int) -> tuple[Floats, int]:
    """Return which samples are right at the column that those of other blocks choose, and what most blocks choose."""
    block = np.random.default_rng([seed, 7]).permutation(len(values)) % BLOCKS
    led = [most_right(values[block != number], prior, columns) for number in range(BLOCKS)]
    return values[np.arange(len(values)), np.array(led)[block]], Counter(led).most_common(1)[0][0]


def trade(found: Mapping[str, Any]) -> str:
    """Return in a sentence what the layer of few labels wins and loses against the one that the source chooses."""
    few, source, *_ = found["rivals"]
    worth = next(one for one in found["worth"] if one["labels"] == found["labels"])
    mean = f"{UNIT.difference(worth['gain'])} on average over draws of {found['labels']:,} labels"
    known = f"{mean}, {100 * worth['worse']:.0f} % of which choose a worse one"
    if few["layer"] == source["layer"]:
        return f"accuracy on the source chooses {_layer(few)} too; {known}"
    there, here = (UNIT.difference(few[f"{on}_gain"], few[f"{on}_gain_error"]) for on in ("target", "source"))
    return (
        f"{_layer(few)} instead of {_layer(source)}, which accuracy on the source chooses: {there} on the target, "
        f"{here} on the source; {known}"
    )


def tables(found: Mapping[str, Any]) -> Iterator[Table]:
    """Yield the layer that each kind of evidence chooses, and the gain by number of target labels."""
    titles = Column("chosen by", "left"), Column("layer"), *columns(("source", "target", "gain"), "decimal")
    legend = (
        f"Accuracy in %, ± one standard error, never on samples that chose: of the target on {found['judged']:,} "
        "samples that are not among the few labels, for all labels in folds, as for source accuracy. Gain: on the "
        "target, over the layer that source accuracy chooses, paired over samples."
    )
    rows = []
    for order, one in enumerate(found["rivals"]):
        layer = Cell("as shipped" if one["layer"] is None else str(one["layer"]), value=one["layer"])
        gain = UNIT.cell(one["target_gain"], one["target_gain_error"], sign=True) if one["target_gain_error"] else EMPTY
        cells = [UNIT.cell(one[name], one[f"{name}_error"]) for name in ("source", "target")]
        rows.append(Row((Cell(one["by"]), layer, *cells, gain), marked=not order))
    yield Table("Under shift", titles, tuple(rows), (legend,), name="under-shift")
    legend = (
        f"Gain on the target: mean over {DRAWS} seeded draws of that many labels, and the range of 90 % of them. "
        "Worse: draws that choose a worse layer than source accuracy does."
    )
    titles = *columns(("labels", "gain", "from", "to"), "decimal"), Column("worse")
    many = []
    for one in found["worth"]:
        shown = [UNIT.cell(one[name], sign=True) for name in ("gain", "low", "high")]
        ends = Cell(f"{one['labels']:,}", value=one["labels"]), Cell(f"{100 * one['worse']:.0f} %", value=one["worse"])
        many.append(row(ends[0], *shown, ends[1]))
    yield Table("What labels of the target are worth", titles, tuple(many), (legend,), name="worth")


def _layer(one: Mapping[str, Any]) -> str:
    return "the model as shipped" if one["layer"] is None else f"layer {one['layer']}"
