"""What `generate` returns: the texts of every depth, their measures, and how both are shown."""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, Self

import pandas as pd

from layerscope.core import Store, count, spans
from layerscope.show import (
    Axis,
    Cell,
    Chart,
    Column,
    Document,
    Meaning,
    Section,
    Sentences,
    Stored,
    Table,
    number,
    percent,
    row,
)
from layerscope.show.numbers import error
from layerscope.show.plain import plain

TEXTS = {
    "layer": "int64", "sample": "object", "prompt": "object", "text": "object", "prompt_ids": "object",
    "ids": "object", "coherence": "float64", "diversity": "float64",
}  # fmt: skip
MEASURED = {
    "layer": "int64",
    "measure": "object",
    "value": "float64",
    "stderr": "float64",
    "n": "int64",
}
LISTS = ("prompt_ids", "ids")
FORMS: dict[str, Callable[[float], str]] = {
    "accuracy": percent,
    "perplexity": number,
    "coherence": "{:.3f}".format,
    "diversity": "{:.3f}".format,
}
OTHERS = ("perplexity", "coherence", "diversity")
SCALES = {"accuracy": 100.0}
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
        "Cosine of prompt and continuation by all-MiniLM-L6-v2, mean over the texts; −1 to 1.",
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
    token ids (`prompt_ids`, `ids`, including the token that ends a text), and with `measure` the
    text's `coherence` (−1 … 1) and `diversity` (0 … 1), NaN where it has no word or fewer than four
    tokens. `measures` has a row for each layer and measure, none without `measure`: `value`,
    `stderr` (samples of texts) and `n`, the tokens or texts behind it.

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
        last = self.layers[-1]
        if self.measures.empty:
            layers = spans(self.layers, "layer")
            return f"{samples} continued at {layers} of {self.depth}"
        values = [f"{name} {_shown(name, self.measure(name)[last])}" for name in FORMS]
        return f"layer {last} of {self.depth}: {', '.join(values)} · {samples}"

    def document(self) -> Document:
        """Return the measures by layer and the texts as they are shown."""
        texts = tuple(_texts(self))
        lead: tuple[Table, ...] = ()
        sections = [Section("texts", "What each depth writes", "", texts)]
        if not self.measures.empty:
            lead = (_by_layer(self),)
            charts = tuple(_chart(self, name) for name in FORMS)
            parts: tuple[Any, ...] = (*charts, *lead)
            sections.insert(0, Section("measures", "How good each depth is", "", parts))
        names = filter(None, (self.model, self.data))
        return Document(
            self.summary,
            title=tuple(map(plain, names)),
            facts=(f"{self.depth} layers", _drawn(self)),
            parts=(*lead, *texts),
            lead=lead,
            notes=self.notes,
            sections=tuple(sections),
            details=(Sentences("Noted on the way:", self.notes),),
            kind="generations",
            depth=self.depth,
        )

    def _parts(self) -> tuple[dict[str, Any], dict[str, pd.DataFrame]]:
        """Return facts and tables as they are saved, with the answer for who reads the file alone."""
        facts, frames = super()._parts()
        return {"summary": self.summary} | facts, frames

    @classmethod
    def _made(
        cls, facts: dict[str, Any], frames: dict[str, pd.DataFrame], folder: Path
    ) -> Self:
        """Return texts as they were saved; their token ids are tuples again."""
        del facts["summary"]
        texts = frames["texts"]
        for name in LISTS:
            texts[name] = texts[name].map(lambda row: tuple(row.tolist()))
        return super()._made(facts, frames, folder)


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
    return FORMS[name](value)


def _drawn(generation: Generation) -> str:
    """Return in words how tokens were chosen."""
    sampling = generation.sampling
    if sampling["top_p"] is None:
        return "greedy"
    words = [f"nucleus p = {sampling['top_p']:g}", f"seed {sampling['seed']}"]
    if sampling["temperature"] != 1:
        words.insert(1, f"temperature {sampling['temperature']:g}")
    return ", ".join(words)


def _by_layer(generation: Generation) -> Table:
    """Return the measures, a row for each layer."""
    rows = []
    for layer, at_layer in generation.measures.groupby("layer"):
        cells = [Cell(str(layer), value=int(layer))]
        for measured in at_layer.to_dict(orient="records"):
            name = measured["measure"]
            scale = SCALES.get(name, 1.0)
            value = measured["value"]
            stderr = error(measured["stderr"] * scale)
            cells.append(Cell(_shown(name, value), stderr, value=value * scale))
        rows.append(row(*cells, quiet=layer == generation.depth))
    counts = generation.measures.groupby("measure")["n"].max()
    legend = (
        f"Accuracy and perplexity of {counts['accuracy']:,} next tokens of the given texts; coherence and diversity of "
        f"{count(int(counts['diversity']), 'continuation')}, {_drawn(generation)}. ±: one standard error, of texts "
        "drawn anew.",
    )
    columns = (Column("layer"), Column("accuracy", unit="%"), *map(Column, OTHERS))
    return Table("By layer", columns, tuple(rows), legend, name="generated-by-layer")


def _chart(generation: Generation, name: str) -> Chart:
    """Return one measure by layer."""
    measured = generation.measures[generation.measures["measure"] == name]
    values = generation.measure(name).items()
    title = name
    unit = ""
    if name == "accuracy":
        title = "accuracy (%)"
        unit = "%"
    axis = Axis(title, log=name == "perplexity", scale=SCALES.get(name, 1.0))
    return Chart.of(
        measured,
        ("layer", Axis("layer", whole=True, depth=generation.depth)),
        ("value", axis),
        error="stderr",
        title=name.capitalize(),
        summary=", ".join(f"{layer}: {_shown(name, value)}" for layer, value in values),
        unit=unit,
        about=ABOUT[name],
        name=f"generated_{name}",
        sheet="generated",
        overlaid=True,
    )


def _texts(generation: Generation) -> Iterator[Table]:
    """Yield a table for each of the first samples: what every depth writes after its prompt."""
    columns = (
        Column("layer", field="layer"),
        Column("continuation", "left", wraps=True, field="text", form=plain),
    )
    samples = generation.texts.groupby("sample", sort=False)
    for sample, continuations in islice(samples, SHOWN):
        prompt = plain(continuations["prompt"].iloc[0])
        yield Table.of(continuations, columns, prompt, name=f"generated-{sample}")
