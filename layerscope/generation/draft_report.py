"""What drafts by a language model's early layers are worth: facts, a row for each way to decode, how both are shown."""

import shlex
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd

from layerscope.core import Store, count
from layerscope.show import (
    Axis,
    Chart,
    Column,
    Document,
    Facts,
    Meaning,
    Section,
    Sentences,
    Stored,
    Table,
    number,
    percent,
    times,
)
from layerscope.show.numbers import error
from layerscope.show.plain import plain

PLAIN = "none"
"""What stands for a layer where none drafts."""
EXIT = "exit "
"""What stands before the layer at which tokens leave unverified."""
AUTO = "auto"
"""What stands for a layer that is chosen while the text is written."""
WAYS = {
    "draft_layer": "object", "chosen": "bool", "acceptance": "float64", "tokens_per_second": "float64",
    "measured": "float64", "error": "float64",
}  # fmt: skip
"""The columns of the table: shares in 0 … 1, speed-ups as factors with their standard errors; NaN where none drafts."""
STORE = Store(
    "report of drafts",
    "drafts.json",
    "run layerscope exits again",
    {"ways": WAYS},
    "csv",
)
LEAD = "An early layer drafts some tokens, all layers verify them at once, and the text stays the model's own."
SPEED = Meaning(
    "How many times faster than plain decoding a text is written when a layer drafts and all layers verify.",
    "Above 1 drafts pay.",
    "Leviathan et al. 2023; Elhoushi et al. 2024, LayerSkip",
)


@dataclass(frozen=True, eq=False)
class DraftReport(Stored):
    """What self-speculation costs and gains for one language model, on prompts like these, on this machine.

    `ways` has a row for each `draft_layer` that wrote the prompts in turns (none: plain decoding,
    auto: chosen while the text is written), its columns being those of `WAYS`; the fastest is
    `chosen`. `draft_tokens` is auto or the number of tokens in a draft. `same` of the `prompts` got
    the text of plain decoding.

    Where the texts were enough to certify an exit for next tokens, `guarantee` says in a line what
    holds of it, `calibration` has the evidence, and its row of `ways` begins with "exit": tokens
    leave unverified, and `acceptance` is the share that does.

    >>> report = layerscope.open_draft_report("tiny-drafts")
    >>> report.depth, report.prompts, report.ways["draft_layer"].tolist()
    (3, 4, ['none', '1', '2', 'auto'])
    """

    STORE = STORE

    model: str
    depth: int
    data: str
    prompts: int
    batch_size: int
    max_new_tokens: int
    draft_tokens: str
    dtype: str
    machine: str
    pays: bool
    verdict: str
    draft_layer: str
    same: int
    ways: pd.DataFrame = field(repr=False)
    guarantee: str = ""
    calibration: dict[str, Any] | None = None
    notes: tuple[str, ...] = ()
    folder: Path | None = None

    @property
    def command(self) -> str:
        """The command that writes with these drafts."""
        tokens = ""
        if self.draft_tokens != AUTO:
            tokens = f" --draft-tokens {self.draft_tokens}"
        write = f"layerscope generate {shlex.quote(self.model)}"
        return f'{write} --draft-layer {self.draft_layer}{tokens} --prompt "…"'

    def _exit(self) -> Iterator[str]:
        """Yield what is certified of tokens that leave unverified, and how fast they are written."""
        if self.guarantee:
            yield f"Exits for next tokens, one token of each text: {self.guarantee}."
        for way in self.ways.to_dict(orient="records"):
            if self.calibration and way["draft_layer"].startswith(EXIT):
                layer = way["draft_layer"].removeprefix(EXIT)
                faster = f"{times(way['measured'])} {error(way['error'])}".rstrip()
                yield (
                    f"A token leaves at layer {layer} with a probability of {self.calibration['threshold']:.6g} or "
                    f"more: {percent(way['acceptance'])} did, {faster} as fast as plain decoding; the text may differ."
                )

    def document(self) -> Document:
        """Return the report as it is shown."""
        columns = [
            Column("drafts", field="draft_layer"),
            Column("accepted", field="acceptance", form=percent, unit="% of tokens"),
            Column("tokens per s", field="tokens_per_second", form=number),
            Column("speed", field="measured", form=times, unit="× plain decoding"),
            Column("±", field="error", form=error),
        ]
        table = Table.of(
            self.ways, columns, "By the layer that drafts", "chosen", name="drafts"
        )
        same = f"{self.same} of {self.prompts} texts are those of plain decoding"
        if self.same < self.prompts:
            same += f": in {self.dtype} a near tie may fall either way"
        layers = self.ways[self.ways["draft_layer"].str.isdigit()]
        chart = Chart.of(
            layers,
            ("draft_layer", Axis("layer", whole=True, depth=self.depth)),
            ("measured", Axis("times plain decoding (×)")),
            error="error",
            title="Speed by the layer that drafts",
            name="drafts_speed",
            summary=self.verdict,
            about=SPEED,
        )
        facts = {
            "batch size": str(self.batch_size),
            "new tokens": f"{self.max_new_tokens} at most",
            "draft tokens": self.draft_tokens,
            "data type": self.dtype,
            "machine": self.machine,
        }
        return Document(
            self.verdict,
            title=(plain(self.model), plain(self.data)),
            facts=(f"{self.depth} layers", count(self.prompts, "prompt")),
            parts=(Sentences("", (f"{same}.", *self._exit())), table),
            notes=self.notes,
            commands=(self.command,) if self.pays else (),
            sections=(Section("drafts", "Self-speculation", LEAD, (chart, table)),),
            details=(
                Sentences("Noted on the way:", self.notes),
                Facts(tuple(facts.items())),
            ),
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
