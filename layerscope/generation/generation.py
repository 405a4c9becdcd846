"""What `generate` returns: the texts of every depth, their measures, and how both are shown."""

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, Self

import pandas as pd

from layerscope.core.errors import count
from layerscope.core.saved import Store
from layerscope.show.document import (
    Cell,
    Column,
    Document,
    Facts,
    Section,
    Sentences,
    Table,
    row,
)
from layerscope.show.numbers import error, number, percent
from layerscope.show.plain import plain
from layerscope.show.plots import Axis, Chart, Meaning
from layerscope.show.pushed import Stored

TEXTS = {
    "layer": "int64", "sample": "object", "prompt": "object", "text": "object", "prompt_ids": "object",
    "ids": "object", "log_probs": "object", "coherence": "float64", "diversity": "float64",
}  # fmt: skip
MEASURED = {
    "layer": "int64",
    "measure": "object",
    "value": "float64",
    "stderr": "float64",
    "n": "int64",
}
LISTS = ("prompt_ids", "ids", "log_probs")
PER_TEXT = ("coherence", "diversity")
STORE = Store(
    "set of generated texts",
    "generation.json",
    "run layerscope generate again",
    {"texts": TEXTS, "measures": MEASURED},
)
SHOWN = 3
"""Texts whose continuations are shown beside each other."""
ABOUT = {
    "accuracy": Meaning(
        "Share of the given texts' next tokens that the layer puts first, over all tokens.",
        "High: the layer knows what comes next.",
        "Tracing Representation Progression, equation 20",
    ),
    "perplexity": Meaning(
        "Exponential of the mean negative log-likelihood of the given texts' next tokens, over all tokens; from 1.",
        "Low: the next token is expected.",
        "Jelinek et al. 1977",
    ),
    "coherence": Meaning(
        "Cosine of prompt and continuation by a sentence encoder, mean over the texts; −1 to 1.",
        "High: the continuation is about what the prompt is about.",
        "Su et al. 2022, A contrastive framework for neural text generation",
    ),
    "diversity": Meaning(
        "Product over n = 2, 3, 4 of 1 − rep-n, where rep-n is the share of a continuation's n-grams of tokens that "
        "repeat an earlier one, mean over the texts; 0 to 1.",
        "High: the continuation does not repeat itself. Text at random is diverse too.",
        "Su et al. 2022; Tracing Representation Progression, equation 22",
    ),
}


@dataclass(frozen=True)
class Generation(Stored):
    """Texts continued by a language model at some of its depths, with measures of quality if asked for.

    `texts` has a row for each layer and sample: the `prompt`, the `text` that continues it, their
    token ids (`prompt_ids`, `ids`, including the token that ends a text), the `log_probs` of the
    new tokens in the layer's own distribution, and with `measure` the text's `coherence` (−1 … 1)
    and `diversity` (0 … 1), NaN where it has no word or fewer than four tokens. `measures` has a
    row for each layer and measure, none without `measure`: `value`, `stderr` (samples of texts) and
    `n`, the tokens or texts behind it.

    >>> found = layerscope.generate("tiny-gpt2", ["the food was", "this book is"], max_new_tokens=3, progress=False)
    >>> found.layers, len(found.texts), len(found.measures)
    ((3,), 2, 0)
    """

    STORE = STORE

    model: str
    data: str | None
    depth: int
    layers: tuple[int, ...]
    sampling: dict[str, Any]
    prefix: int | None
    encoder: str
    texts: pd.DataFrame = field(repr=False)
    measures: pd.DataFrame = field(repr=False)
    notes: tuple[str, ...] = ()
    folder: Path | None = None
    """Where it was opened from."""

    def measure(self, name: str) -> pd.Series:
        """Return one measure by layer, such as "accuracy"; empty where nothing was measured."""
        rows = self.measures[self.measures["measure"] == name]
        return rows.set_index("layer")["value"].rename(name)

    @property
    def summary(self) -> str:
        """The answer in one line."""
        samples = count(self.texts["sample"].nunique(), "text")
        if self.measures.empty:
            layers = f"layer{'s' * (len(self.layers) > 1)} {', '.join(map(str, self.layers))}"
            return f"{samples} continued at {layers} of {self.depth}"
        last = self.measures[self.measures["layer"] == self.layers[-1]].set_index(
            "measure"
        )["value"]
        values = ", ".join(f"{name} {_shown(name, last[name])}" for name in ABOUT)
        return f"layer {self.layers[-1]} of {self.depth}: {values} · {samples}"

    def document(self) -> Document:
        """Return the measures by layer and the texts as they are shown."""
        table = [] if self.measures.empty else [_by_layer(self)]
        charts = [] if self.measures.empty else [_chart(self, name) for name in ABOUT]
        data = [] if self.data is None else [plain(self.data)]
        facts = Facts(tuple(_settings(self)), "How the texts were made")
        measured = Section("measures", "How good each depth is", "", (*charts, *table))
        written = Section("texts", "What each depth writes", "", tuple(_texts(self)))
        return Document(
            self.summary,
            title=(plain(self.model), *data),
            facts=(f"{self.depth} layers", _drawn(self)),
            parts=(*table, *_texts(self)),
            lead=tuple(table),
            notes=self.notes,
            sections=(measured, written) if table else (written,),
            details=(facts, Sentences("Noted on the way:", self.notes)),
            kind="generations",
            depth=self.depth,
        )

    def _parts(self) -> tuple[dict[str, Any], dict[str, pd.DataFrame]]:
        facts, frames = super()._parts()
        return {"summary": self.summary} | facts, frames

    @classmethod
    def _made(
        cls, facts: dict[str, Any], frames: dict[str, pd.DataFrame], folder: Path
    ) -> Self:
        del facts["summary"]
        lists = {
            name: frames["texts"][name].map(lambda row: tuple(row.tolist()))
            for name in LISTS
        }
        return super()._made(
            facts, frames | {"texts": frames["texts"].assign(**lists)}, folder
        )


def open_generation(folder: str | Path) -> Generation:
    """Return the texts that `generate` saved into a folder.

    Raises `LayerscopeError` for a folder without any, and for files that are damaged or changed
    since.

    >>> found = layerscope.generate("tiny-gpt2", "the food was", max_new_tokens=3, out="texts", progress=False)
    >>> open_generation("texts").texts.equals(found.texts)
    True
    """
    return Generation.opened(folder)


def _shown(name: str, value: float) -> str:
    """Return a value as it is shown; empty where a text has no word, or too few tokens."""
    if math.isnan(value):
        return ""
    return (
        percent(value)
        if name == "accuracy"
        else number(value)
        if name == "perplexity"
        else f"{value:.3f}"
    )


def _drawn(generation: Generation) -> str:
    """Return in words how tokens were chosen."""
    how = generation.sampling
    if how["top_p"] is None:
        return "greedy"
    warmth = "" if how["temperature"] == 1 else f", temperature {how['temperature']:g}"
    return f"nucleus p = {how['top_p']:g}{warmth}, seed {how['seed']}"


def _settings(generation: Generation) -> Iterator[tuple[str, str]]:
    yield "tokens", _drawn(generation)
    yield "new tokens", f"{generation.sampling['max_new_tokens']} at most"
    if generation.prefix is not None:
        yield "prompt", f"the first {count(generation.prefix, 'token')} of each text"
    if not generation.measures.empty:
        yield "sentence encoder", generation.encoder


def _by_layer(generation: Generation) -> Table:
    rows = []
    for layer, at_layer in generation.measures.groupby("layer"):
        cells = [
            Cell(_shown(name, value), error(stderr * scale), value=value * scale)
            for name, value, stderr in zip(
                at_layer["measure"], at_layer["value"], at_layer["stderr"], strict=True
            )
            for scale in (100.0 if name == "accuracy" else 1.0,)
        ]
        rows.append(
            row(
                Cell(str(layer), value=int(layer)),
                *cells,
                quiet=layer == generation.depth,
            )
        )
    columns = (
        Column("layer"),
        *(Column(name, unit="%" if name == "accuracy" else "") for name in ABOUT),
    )
    tokens, texts = (
        generation.measures["n"][generation.measures["measure"] == name].max()
        for name in ("accuracy", "diversity")
    )
    legend = (
        f"Accuracy and perplexity of {tokens:,} next tokens of the given texts; coherence and diversity of "
        f"{count(int(texts), 'continuation')}, {_drawn(generation)}. ±: one standard error, of texts drawn anew.",
    )
    return Table("By layer", columns, tuple(rows), legend, name="generated-by-layer")


def _chart(generation: Generation, name: str) -> Chart:
    measured = generation.measures[generation.measures["measure"] == name]
    scale, unit = (100.0, "%") if name == "accuracy" else (1.0, "")
    counted = "tokens" if name in ("accuracy", "perplexity") else "continuations"
    values = zip(measured["layer"], measured["value"], strict=True)
    return Chart.of(
        measured,
        ("layer", Axis("layer", whole=True, depth=generation.depth)),
        (
            "value",
            Axis(
                name + (f" ({unit})" if unit else ""),
                log=name == "perplexity",
                scale=scale,
            ),
        ),
        error="stderr",
        title=name.capitalize(),
        summary=", ".join(f"{layer}: {_shown(name, value)}" for layer, value in values),
        unit=unit,
        about=ABOUT[name],
        note="" if counted == "tokens" else _drawn(generation),
        name=f"generated_{name}",
        sheet="generated",
        overlaid=True,
    )


def _texts(generation: Generation) -> Iterator[Table]:
    """Yield a table for each of the first samples: what every depth writes after its prompt."""
    per_text = [name for name in PER_TEXT if not generation.measures.empty]
    columns = (
        Column("layer"),
        Column("continuation", "left", wraps=True),
        *map(Column, per_text),
    )
    for sample, of_sample in islice(
        generation.texts.groupby("sample", sort=False), SHOWN
    ):
        rows = tuple(
            row(
                Cell(str(one["layer"]), value=one["layer"]),
                Cell(plain(one["text"]), value=one["text"]),
                *(Cell(_shown(name, one[name]), value=one[name]) for name in per_text),
            )
            for one in of_sample.to_dict(orient="records")
        )
        yield Table(
            plain(of_sample["prompt"].iloc[0]),
            columns,
            rows,
            name=f"generated-{sample}",
        )
