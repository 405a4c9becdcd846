"""Pairs of texts with one label, read by a classifier as its tokenizer puts two texts together."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from layerscope.inputs.columns import PAIR_COLUMNS, TEXT_COLUMNS, labels_of, missing
from layerscope.inputs.corpus import Corpus
from layerscope.inputs.tables import table_of


class Pair(NamedTuple):
    """Two texts."""

    first: str
    second: str


@dataclass(frozen=True)
class Ids:
    """A text, or a pair, as token ids; `types` holds which text of a pair each token is of."""

    ids: tuple[int, ...]
    types: tuple[int, ...] = ()


def paired(corpus: Corpus, data: Any, text_column: str | None) -> Corpus:
    """Return a corpus whose samples are pairs where its table holds such columns, else the corpus as it is.

    Without a column of labels those are the numbers in a column `score`.
    """
    frame = None
    if text_column is None and corpus.modality == "text":
        frame = table_of(data)
    if frame is None:
        return corpus
    named = {name.lower(): name for name in reversed(list(frame.columns))}
    pair_columns = next(
        (pair for pair in PAIR_COLUMNS.items() if all(name in named for name in pair)),
        None,
    )
    if pair_columns is None or any(name in named for name in TEXT_COLUMNS):
        return corpus
    second = frame[named[pair_columns[1]]].tolist()
    empty = missing(second)
    rows = [*map(int, corpus.names)]
    others = ["" if empty[row] else str(second[row]) for row in rows]
    samples = tuple(map(Pair, corpus.samples, others))
    labels = corpus.labels
    if labels is None and "score" in named:
        scores = frame[named["score"]].tolist()
        labels = labels_of([scores[row] for row in rows])
    notes = [note for note in corpus.notes if not note.startswith("text column: ")]
    return replace(
        corpus,
        samples=samples,
        labels=labels,
        notes=(
            *notes,
            f"pairs: {pair_columns[0]} and {pair_columns[1]}, read together",
        ),
    )


def encoded(samples: Sequence[Any], encoder: Any, *, whole: bool = False) -> list[Ids]:
    """Return texts or pairs as the model's tokenizer reads them, cut at the maximal length unless `whole`."""
    if not isinstance(samples[0], Pair):
        return [Ids(tuple(row)) for row in encoder.ids(list(samples))]
    tokenizer = encoder.tokenizer
    typed = "token_type_ids" in tokenizer.model_input_names
    read = tokenizer(
        [pair.first for pair in samples],
        [pair.second for pair in samples],
        truncation=not whole,
        max_length=encoder.max_length,
        return_token_type_ids=typed,
        verbose=False,
    )
    types = read["token_type_ids"] if typed else [()] * len(samples)
    return [
        Ids(tuple(ids), tuple(of))
        for ids, of in zip(read["input_ids"], types, strict=True)
    ]
