"""What `select` returns for blocks to drop: what each way of choosing them drops, and what that costs."""

import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Self

from layerscope.core import Store, spans
from layerscope.show import Cell, Document, Section, Stored, Table, columns, row, words

STORE = Store("choice of blocks", "removal.json", "run layerscope select again", {})
MEASURES = {
    "tokens": (
        "added loss",
        "loss",
        "loss of the next token, in nats; added: over the full model's",
    ),
    "pooled": (
        "KL",
        "agreement",
        "divergence of the predictions from the full model's, in nats; share of equal ones",
    ),
    "scores": (
        "squared difference",
        "mean score",
        "difference of the scores from the full model's",
    ),
    "vectors": (
        "1 − cosine",
        "cosine",
        "cosine of the vector that the model serves with the full model's",
    ),
}
"""By what a model gives: what dropping blocks costs, what is left, and what that means."""
LEAD = "What each way of choosing blocks would drop, and what the model loses without them."


class Choice(NamedTuple):
    """The blocks that one way of choosing drops, counted from 1 as the layers they make.

    `cost` is what the model loses, `stderr` its standard error and `score` what is left, on samples
    that had no part in choosing; `chosen_on` is the cost on those that had. `fault` says why no
    checkpoint can lack these blocks.
    """

    way: str
    blocks: tuple[int, ...]
    chosen_on: float
    cost: float
    stderr: float
    score: float
    fault: str


@dataclass(frozen=True)
class Removal(Stored):
    """Blocks of one model that matter least, by several ways of choosing them.

    `choices` begin with the recommended one: that of the lowest cost on the `chosen_on` samples
    that chose, among those a checkpoint can lack; `judged_on` others judge them. `measure` is
    tokens, pooled, scores or vectors: cost is added loss, KL divergence, squared difference or 1 −
    cosine. `influence` is each block's. `source` is what `truncate` takes.
    """

    STORE = STORE

    model: str
    depth: int
    measure: str
    data: str
    chosen_on: int
    judged_on: int
    choices: tuple[Choice, ...]
    influence: tuple[float, ...]
    source: str
    folder: Path | None = None
    """Where it was opened from."""

    @property
    def blocks(self) -> tuple[int, ...]:
        """The recommended blocks; none where no checkpoint can lack any of the choices."""
        if self.choices[0].fault:
            return ()
        return self.choices[0].blocks

    def document(self) -> Document:
        """Return the recommended blocks, and what each choice costs."""
        best = self.choices[0]
        n = len(best.blocks)
        cost, score, meaning = MEASURES[self.measure]
        commands: tuple[str, ...] = ()
        answer = f"no {n} of the {self.depth} blocks can be left out: {best.fault}"
        if self.blocks:
            dropped = spans(self.blocks, "block")
            loses = f"{cost} {best.cost:.3g} ±{best.stderr:.2g}"
            answer = f"drop {dropped} of {self.depth} ({best.way}): {loses}, {score} {best.score:.4g}"
            numbers = spans(self.blocks)
            name = shlex.quote(f"{self.model.split('/')[-1]}-without-{numbers}")
            write = f"layerscope truncate {shlex.quote(self.source)} --drop {numbers} --out {name}"
            commands = write, f"{write} --heal DATA"
        rows = []
        for choice in self.choices:
            loss = Cell(f"{choice.cost:.4f}", f"±{choice.stderr:.2g}", choice.cost)
            left = Cell(f"{choice.score:.4f}", value=choice.score)
            blocks = words(spans(choice.blocks))
            rows.append(row(choice.way, blocks, loss, left, marked=choice is best))
        heads = (
            *columns(("chosen by", "blocks"), "left"),
            *columns((cost, score), "decimal"),
        )
        legend = f"{score.capitalize()}: {meaning}."
        ways = Table("Ways to choose", heads, tuple(rows), (legend,), name="ways")
        judged = f"{self.chosen_on:,} samples of {self.data} chose the blocks; {self.judged_on:,} others judge them"
        return Document(
            answer,
            title=(self.model,),
            reasons=(judged,),
            parts=(ways,),
            commands=commands,
            kind="choices of blocks",
            notes=tuple(
                f"{choice.way}: {choice.fault}"
                for choice in self.choices
                if choice.fault
            ),
            depth=self.depth,
            sections=(Section("removal", "Blocks to drop", LEAD, (ways,)),),
        )

    def _parts(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return facts as they are saved, with the recommended blocks for who reads the file alone."""
        facts, _ = super()._parts()
        return facts | {
            "choices": [choice._asdict() for choice in self.choices],
            "blocks": self.blocks,
        }, {}

    @classmethod
    def _made(cls, facts: dict[str, Any], frames: dict[str, Any], folder: Path) -> Self:
        """Return choices as they were saved."""
        del facts["blocks"]
        choices = tuple(Choice(**choice) for choice in facts["choices"])
        return super()._made(facts | {"choices": choices}, frames, folder)


def open_removal(folder: str | Path) -> Removal:
    """Return the choice of blocks that was saved into a folder.

    >>> layerscope.open_removal("runs/minilm")
    Traceback (most recent call last):
        ...
    layerscope.core.errors.LayerscopeError: 'runs/minilm' holds no ...
    """
    return Removal.opened(folder)
