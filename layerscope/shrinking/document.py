"""How a shrunk model is shown: the answer in four lines, the trade of loss against speed, and the depths."""

import math
from typing import TYPE_CHECKING, Any

from layerscope.core.errors import count, spans
from layerscope.show.document import (
    Cell,
    Document,
    Facts,
    Row,
    Section,
    Table,
    columns,
    words,
)
from layerscope.show.plots import Axis, Chart, Meaning, Series
from layerscope.shrinking.shrunk import signed

if TYPE_CHECKING:
    from layerscope.shrinking.shrunk import Offer, Shrunk

TRADE = Meaning(
    meaning="What a model without some of its blocks loses, against how much faster it is than the full model.",
    direction="higher and further right is better",
)
LEGEND = (
    "Cut, healed: points lost before and after healing, on the samples that choose; ± is one standard error of the "
    "last one. Speed and size of what was not written are those of a model that ends at as many layers."
)


def document(shrunk: "Shrunk") -> Document:
    """Return the four lines, or the offers, and the table and the picture of all depths that were tried or priced."""
    trade = _trade(shrunk)
    table = _table(shrunk)
    if shrunk.met:
        answer = _answer(shrunk)
        reasons = _lines(shrunk)
    else:
        answer = f"{shrunk.model}: nothing is within the budget ({shrunk.budget})"
        reasons = tuple(offer.text for offer in shrunk.offers)
    settings = Facts((("budget", shrunk.budget), ("judged by", shrunk.measure)))
    return Document(
        answer,
        title=(shrunk.model, shrunk.data),
        facts=(f"{shrunk.depth} blocks",),
        reasons=reasons,
        parts=(table,),
        notes=_notes(shrunk),
        sections=(Section("shrink", "Loss and speed", "", (trade, table)),),
        details=(settings,),
        kind="shrunk models",
    )


def _answer(shrunk: "Shrunk") -> str:
    share = shrunk.megabytes / shrunk.full_megabytes
    before = ""
    if shrunk.healed:
        before = f"; {signed(shrunk.cut_loss)} before healing"
    return (
        f"{shrunk.model} at {len(shrunk.kept)} of {shrunk.depth} blocks: {signed(shrunk.loss)} "
        f"±{shrunk.error:.1f} points, {shrunk.speedup:.2f}× as fast, {share:.2f}× the size{before}"
    )


def _lines(shrunk: "Shrunk") -> tuple[str, ...]:
    held = count(shrunk.samples, "sample")
    lines = [
        f"{shrunk.measure} on {held} held out of {shrunk.data}: full model {shrunk.full_score:.1f}, "
        f"this {shrunk.full_score - shrunk.loss:.1f}",
        f"{spans(shrunk.kept, 'block')} kept: {shrunk.megabytes:.1f} of {shrunk.full_megabytes:.1f} MB",
    ]
    if shrunk.same_space and shrunk.recall is not None:
        how = ""
        if shrunk.mapped:
            how = ", by a linear map"
        lines.append(
            f"recall@10 of its vectors in an index of the full model's: {shrunk.recall:.2f}{how}"
        )
    return (*lines, shrunk.load)


def _notes(shrunk: "Shrunk") -> tuple[str, ...]:
    notes = [shrunk.healed, shrunk.measured]
    if shrunk.recall is not None and not shrunk.same_space:
        notes.append(
            f"A new vector in an index of the full model's vectors finds {shrunk.recall:.0%} of the ten nearest "
            "neighbours: rebuild your index for all, or shrink with `same_space`."
        )
    return tuple(filter(None, notes))


def _trade(shrunk: "Shrunk") -> Chart:
    cut = [offer for offer in shrunk.offers if not math.isnan(offer.cut_loss)]
    healed = [offer for offer in cut if offer.healed]
    kept = tuple(number for number, one in enumerate(healed) if one.kept == shrunk.kept)
    series = (
        Series("full model", (1.0,), (0.0,), mark="points", tone="ink"),
        _series("cut", cut, "cut_loss", tone="rival"),
        _series("healed", healed, "loss", marked=kept, mark="points", tone="own"),
    )
    return Chart(
        title="Loss against speed",
        name="loss_against_speed",
        x=Axis("speed-up (×)"),
        y=Axis("points gained"),
        series=tuple(one for one in series if one.x),
        summary=f"{shrunk.measure}, on the samples that choose",
        about=TRADE,
        marked="kept",
    )


def _series(name: str, offers: "list[Offer]", field: str, **how: Any) -> Series:
    speeds = tuple(offer.speedup for offer in offers)
    gains = tuple(-getattr(offer, field) for offer in offers)
    # the error of an offer is that of its last loss
    is_last = all(offer.healed == (field == "loss") for offer in offers)
    errors = tuple(offer.error for offer in offers) if is_last else ()
    return Series(name, speeds, gains, errors, **how)


def _table(shrunk: "Shrunk") -> Table:
    def lost(value: float) -> Cell:
        if math.isnan(value):
            return Cell("–")
        return Cell(f"{value:.1f}", value=value)

    rows = []
    for offer in shrunk.offers:
        blocks = len(offer.kept)
        cells = (
            Cell(f"{blocks} of {shrunk.depth}", value=blocks),
            words(spans(offer.kept)),
            Cell(f"{offer.speedup:.2f}×", value=offer.speedup),
            Cell(f"{offer.megabytes:.1f}", value=offer.megabytes),
            lost(offer.cut_loss),
            lost(offer.loss if offer.healed else math.nan),
            lost(offer.error),
        )
        rows.append(Row(cells, marked=offer.kept == shrunk.kept))
    titles = columns(("blocks", "kept", "faster", "MB", "cut", "healed", "±"))
    legend = (LEGEND,)
    return Table("By number of blocks", titles, (*rows,), legend, name="shrink-blocks")
