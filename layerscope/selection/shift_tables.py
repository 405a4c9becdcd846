"""A choice under a shift as tables: what few labels, the source, the depth and all labels choose, and labels' worth."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from layerscope.scores.naming import Unit
from layerscope.show.document import EMPTY, Cell, Column, Row, Table, columns, row

if TYPE_CHECKING:
    from layerscope.selection.selection import Rival, UnderShift

UNIT = Unit(percent=True, decimals=2)


def trade(found: UnderShift) -> str:
    """Return in a sentence what the layer of few labels wins and loses against the one that the source chooses."""
    few, source, *_ = found.rivals
    worth = next(one for one in found.worth if one.labels == found.labels)
    mean = f"{UNIT.difference(worth.gain)} on average over draws of {found.labels:,} labels"
    known = f"{mean}, {100 * worth.worse:.0f} % of which choose a worse one"
    if few.layer == source.layer:
        return f"accuracy on the source chooses {_layer(few)} too; {known}"
    there, here = (few.target_gain, few.target_gain_error), (few.source_gain, few.source_gain_error)
    return (
        f"{_layer(few)} instead of {_layer(source)}, which accuracy on the source chooses: {UNIT.difference(*there)} "
        f"on the target, {UNIT.difference(*here)} on the source; {known}"
    )


def tables(found: UnderShift) -> Iterator[Table]:
    """Yield what each evidence chooses, and what so many labels of the target are worth."""
    titles = Column("chosen by", "left"), Column("layer"), *columns(("source", "target", "gain"), "decimal")
    legend = (
        f"Accuracy in %, ± one standard error, never on samples that chose: of the target on {found.judged:,} samples "
        "that are not among the few labels, for all labels in folds, as for accuracy on the source. Gain: on the "
        "target, over the layer that accuracy on the source chooses, paired over samples."
    )
    rows = []
    for order, one in enumerate(found.rivals):
        gain = _cell(one.target_gain, one.target_gain_error, sign=True) if one.target_gain_error else EMPTY
        layer = Cell("as shipped" if one.layer is None else str(one.layer), value=one.layer)
        cells = layer, _cell(one.source, one.source_error), _cell(one.target, one.target_error), gain
        rows.append(Row((Cell(one.by), *cells), marked=not order))
    yield Table("Under shift", titles, tuple(rows), (legend,), name="under-shift")
    chosen = [f"{'as shipped' if layer is None else layer} in {n}" for layer, n in found.layers]
    legend = (
        f"Gain on the target: mean over {sum(n for _, n in found.layers)} seeded draws of so many labels, and where "
        "90 % of them lie. Worse: draws that choose a worse layer than accuracy on the source does. "
        f"{found.labels:,} labels choose layer {', '.join([f'{chosen[0]} draws', *chosen[1:]])}."
    )
    many = []
    for each in found.worth:
        shown = [_cell(value, sign=True) for value in (each.gain, each.low, each.high)]
        many.append(
            row(
                Cell(f"{each.labels:,}", value=each.labels), *shown, Cell(f"{100 * each.worse:.0f} %", value=each.worse)
            )
        )
    titles = *columns(("labels", "gain", "from", "to"), "decimal"), Column("worse")
    yield Table("What labels of the target are worth", titles, tuple(many), (legend,), name="worth")


def _layer(one: Rival) -> str:
    return "the model as shipped" if one.layer is None else f"layer {one.layer}"


def _cell(value: float, error: float | None = None, sign: bool = False) -> Cell:
    return Cell(UNIT.number(value, sign), "" if error is None else f"±{UNIT.number(error)}", value)
