"""What drafts by a language model's early layers are worth: facts, a row for each layer, and how they are shown."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd

from layerscope.core.saved import Store
from layerscope.show.document import (
    EMPTY,
    Cell,
    Column,
    Document,
    Facts,
    Row,
    Section,
    Sentences,
    Table,
)
from layerscope.show.numbers import number, percent, times
from layerscope.show.plain import plain
from layerscope.show.plots import Axis, Chart, Meaning, Series
from layerscope.show.pushed import Stored

LAYERS = {
    "layer": "int64", "chosen": "bool", "agreement": "float64", "draft_tokens": "int64", "threshold": "float64",
    "acceptance": "float64", "length": "float64", "predicted": "float64", "measured": "float64",
    "early_exit": "float64", "tokens_per_second": "float64", "memory": "float64",
}  # fmt: skip
"""The columns of the table: shares in 0 … 1, speed-ups as factors, memory in bytes; NaN where nothing was timed."""
STORE = Store(
    "report of drafts", "drafts.json", "run layerscope exits again", {"layers": LAYERS}, "csv"
)
SPEED = Meaning(
    "How many tokens per second are written when a layer drafts and all layers verify, as a multiple of plain "
    "decoding: "
    "predicted from agreement on other texts and the time of rounds, and measured.",
    "Above 1 drafts pay.",
    "Leviathan et al. 2023; Elhoushi et al. 2024, LayerSkip",
)
AGREEMENT = Meaning(
    "Share of new tokens after which a layer's likeliest next token is the one that the model wrote.",
    "High at an early layer: drafts are cheap and accurate.",
    "measured here",
)
LEAD = "An early layer drafts some tokens, all layers verify them at once, and the text stays the model's own."
LEGEND = (
    "Agree: next tokens that the layer alone predicts as the model does. Drafts: most tokens drafted in a round, and "
    "the "
    "probability below which drafting stops. Per round: tokens that a round adds to a text. Expected from one half of "
    "the prompts, measured on the other, as multiples of plain decoding. Early exit: transformers' own, at the same "
    "layer. Memory: the peak that tensors take besides the weights."
)
"""How to read the table."""


@dataclass(frozen=True, eq=False)
class DraftReport(Stored):
    """What self-speculation costs and gains for one language model, on prompts like these, on this machine.

    With `layer` as the draft's, at most `draft_tokens` tokens a round and none below the
    probability `threshold` (0: no threshold), chosen on half of the `prompts`, texts were
    `measured` times as fast on the other half as plain decoding, which writes `plain_rate` tokens
    per second with `plain_memory` bytes beside the weights; `predicted` is what the choice
    promised. `same` of `texts` were the same as by plain decoding. `weights` tells the model from
    others; `lens` is the folder of the translators through which layers drafted, if any. `layers`
    has a row for each layer that was compared, its columns being those of `LAYERS`.

    >>> report = layerscope.open_draft_report("tiny-drafts")
    >>> report.depth, report.prompts, report.layers["layer"].tolist()
    (3, 4, [1, 2])
    """

    STORE = STORE

    model: str
    depth: int
    data: str
    prompts: int
    batch_size: int
    max_new_tokens: int
    dtype: str
    machine: str
    pays: bool
    verdict: str
    layer: int
    draft_tokens: int
    threshold: float
    predicted: float
    measured: float
    plain_rate: float
    plain_memory: float
    weights: str
    same: int
    texts: int
    layers: pd.DataFrame = field(repr=False)
    notes: tuple[str, ...] = ()
    lens: str = ""
    folder: Path | None = None

    def document(self) -> Document:
        """Return the report as it is shown."""
        table = _table(self)
        return Document(
            self.verdict,
            title=(plain(self.model), plain(self.data)),
            facts=(
                f"{self.depth} layers",
                f"{self.prompts:,} prompts",
                f"batch size {self.batch_size}",
            ),
            parts=(Sentences("", tuple(_findings(self))), table),
            notes=self.notes,
            commands=(f'layerscope generate {self.model} --drafts {self.folder} --prompt "…"',)
            if self.folder
            else (),
            sections=(
                Section(
                    "drafts", "Self-speculation", LEAD, (_speed(self), _agreement(self), table)
                ),
            ),
            details=(Sentences("Noted on the way:", self.notes), Facts(tuple(_settings(self)))),
            kind="drafts",
            depth=self.depth,
        )


def open_draft_report(folder: str | Path) -> DraftReport:
    """Return the report that `exits` saved for a language model.

    Raises `LayerscopeError` for a folder without one, and for files that are damaged or changed
    since.

    >>> layerscope.open_draft_report("tiny-drafts").data
    'reviews'
    """
    return DraftReport.opened(folder)


def _findings(report: DraftReport) -> Iterator[str]:
    row = report.layers[report.layers["chosen"]].iloc[0]
    who = f"{'Layer' if report.pays else 'At best layer'} {report.layer} of {report.depth}"
    unsure = (
        f", or fewer where its likeliest token is below {report.threshold:g}"
        if report.threshold
        else ""
    )
    if pd.isna(row["acceptance"]):
        yield f"{who} was never sure enough to draft a token (threshold {report.threshold:g})."
    else:
        yield (
            f"{who} drafts {report.draft_tokens} at a time{unsure}: {percent(row['acceptance'])} are accepted, "
            f"{number(row['length'])} tokens per round."
        )
    yield (
        f"Plain decoding writes {number(report.plain_rate)} tokens per second, drafts and verification "
        f"{number(row['tokens_per_second'])}."
    )
    if report.same < report.texts:
        yield (
            f"{report.texts - report.same} of {report.texts} texts differ from those of plain decoding: in "
            f"{report.dtype}, logits depend on how many tokens are read at once."
        )


def _settings(report: DraftReport) -> Iterator[tuple[str, str]]:
    yield from {
        **({"tuned lens": report.lens} if report.lens else {}),
        "model": report.model,
        "data": report.data,
        "prompts": f"{report.prompts:,}, half to choose on",
        "batch size": str(report.batch_size),
        "new tokens": f"{report.max_new_tokens} at most",
        "data type": report.dtype,
        "machine": report.machine,
    }.items()


def _speed(report: DraftReport) -> Chart:
    names = {
        "predicted": ("expected", "muted"),
        "measured": ("measured", "own"),
        "early_exit": ("transformers' assistant_early_exit", "rival"),
    }
    lines = [_series(report, column, name, tone=tone) for column, (name, tone) in names.items()]
    plain = ("plain decoding", (0.0, float(report.depth)), (1.0, 1.0))
    return Chart(
        title="Speed by the layer that drafts",
        name="drafts_speed",
        x=Axis("layer", whole=True, depth=report.depth),
        y=Axis("times plain decoding (×)"),
        series=(*(line for line in lines if line.x), Series(*plain, mark="guide", tone="muted")),
        summary=report.verdict,
        about=SPEED,
    )


def _series(report: DraftReport, column: str, name: str, **how: Any) -> Series:
    """Return a column of the layers that have it; the chosen layer's point of what was measured stands out."""
    rows = report.layers.dropna(subset=[column])
    if column != "measured":
        how["marked"] = ()
    return Series.of(rows, "layer", column, name, **how)


def _agreement(report: DraftReport) -> Chart:
    return Chart(
        title="How often a layer is right",
        name="drafts_agreement",
        x=Axis("layer", whole=True, depth=report.depth),
        y=Axis("% of next tokens", (0.0, 100.0), scale=100),
        series=(_series(report, "agreement", "agrees with the model"),),
        summary="The share of next tokens that each layer alone predicts as the model does",
        about=AGREEMENT,
    )


def _table(report: DraftReport) -> Table:
    every = (
        Column("layer"),
        Column("agree", unit="%"),
        Column("drafts"),
        Column("per round", unit="tokens"),
        Column("expected", unit="×"),
        Column("measured", unit="×"),
        Column("early exit", unit="×"),
        Column("tokens per s"),
        Column("memory MB"),
    )
    # of a batch, transformers' own early exit takes one text
    names = [
        "predicted",
        "measured",
        *(["early_exit"] if report.layers["early_exit"].notna().any() else []),
    ]
    titles = tuple(each for each in every if each.title != "early exit" or "early_exit" in names)

    def cell(value: float, text: str) -> Cell:
        return EMPTY if pd.isna(value) else Cell(text, value=value)

    rows = [
        Row(
            (
                Cell(f"{'● ' if row['chosen'] else ''}{row['layer']}", value=row["layer"]),
                cell(row["agreement"], percent(row["agreement"], 0)),
                _drafts(row["draft_tokens"], row["threshold"]),
                cell(row["length"], number(row["length"])),
                *(cell(row[name], times(row[name])) for name in names),
                cell(row["tokens_per_second"], number(row["tokens_per_second"])),
                cell(row["memory"], number(row["memory"] / 1e6)),
            ),
            marked=row["chosen"],
        )
        for row in report.layers.to_dict(orient="records")
    ]
    rate, memory = report.plain_rate, report.plain_memory
    last = (
        Cell(f"{report.depth}", value=report.depth),
        *[EMPTY] * 4,
        Cell("1.00×", value=1.0),
        *[EMPTY] * len(names[2:]),
        Cell(number(rate), value=rate),
        Cell(number(memory / 1e6), value=memory),
    )
    rows.append(Row(last, quiet=True))
    return Table(
        "By the layer that drafts (● chosen)", titles, tuple(rows), (LEGEND,), name="drafts"
    )


def _drafts(tokens: int, threshold: float) -> Cell:
    text = f"{tokens}, {threshold:g}" if threshold else str(tokens)
    return Cell(text, value=text) if tokens else EMPTY
