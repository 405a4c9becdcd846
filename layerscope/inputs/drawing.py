"""Samples drawn by a seed: the same ones, whether data are in memory or read chunk by chunk."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from heapq import nsmallest
from operator import itemgetter
from typing import Any

import numpy as np
import numpy.typing as npt

from layerscope.core.errors import LayerscopeError
from layerscope.inputs.corpus import WHOLE, Corpus, Labels
from layerscope.inputs.streams import Stream


def draw(corpus: Corpus, n: int | None, seed: int) -> Corpus:
    """Return `n` samples drawn without replacement by `seed`, in their original order.

    With `n` None, or no less than there are, the corpus is returned whole. Of labelled samples
    every class that has 5 members keeps 5 at least, the rest is drawn at random; where `n` is too
    small for that, as many classes as fit are drawn, frequent ones more probably, and a note says
    how many are left out. Raises `LayerscopeError` where `n` is below 1.

    >>> from layerscope.inputs import draw, open_corpus
    >>> drawn = draw(open_corpus("reviews.csv"), 10, seed=0)
    >>> len(drawn), sorted(set(drawn.labels))
    (10, ['blame', 'praise'])
    """
    if n is not None and n < 1:
        raise LayerscopeError(f"samples is {n}: give 1 or more, or all")
    if n is None or n >= len(corpus):
        return corpus
    rows, notes = drawn_rows(len(corpus), corpus.labels, n, seed)
    drawn = corpus.take(rows)
    return replace(drawn, notes=(*drawn.notes, *notes), drawn_from=len(corpus))


def drawn_rows(
    total: int, labels: Labels | None, n: int, seed: int
) -> tuple[list[int], tuple[str, ...]]:
    """Return the row numbers, ascending, of the `n` samples that `draw` takes, and the notes on them."""
    if n >= total:
        return list(range(total)), ()
    chosen = np.random.default_rng(seed).choice(total, size=n, replace=False)
    if labels is None or n < 2 * WHOLE:
        return np.sort(chosen).tolist(), ()
    return _of_whole_classes(labels, chosen, seed)


def _of_whole_classes(
    labels: Labels, chosen: npt.NDArray[np.int64], seed: int
) -> tuple[list[int], tuple[str, ...]]:
    """Return as many rows as were `chosen`, as near to these as classes of 5 samples allow, and a note."""
    n = len(chosen)
    order = np.concatenate(
        [chosen, np.random.default_rng(seed).permutation(np.setdiff1d(range(len(labels)), chosen))]
    )
    classes = np.unique(np.array(list(map(repr, labels))), return_inverse=True)[1][order]
    sizes, rank = np.bincount(classes), np.empty(len(classes), dtype=np.int64)
    rank[np.argsort(classes, kind="stable")] = np.arange(len(classes)) - np.repeat(
        np.cumsum(sizes) - sizes, sizes
    )
    readable = [c for c in dict.fromkeys(classes.tolist()) if sizes[c] >= WHOLE]
    kept = readable[: n // WHOLE]
    member = np.isin(classes, kept)
    first = np.where(
        member & (rank < WHOLE), 0, 1 if len(kept) == len(readable) else np.where(member, 1, 2)
    )
    rows: list[int] = np.sort(order[np.argsort(first, kind="stable")[:n]]).tolist()
    if len(kept) == len(readable):
        return rows, ()
    note = (
        f"the {n:,} samples cover {len(kept):,} of {len(readable):,} classes, {WHOLE} or more of each: "
        f"`samples={WHOLE * len(readable)}` would cover all"
    )
    return rows, (note,)


def draw_stream(stream: Stream, n: int, seed: int) -> Corpus:
    """Return the samples that `draw` takes of all data of a stream, with no more than these and all labels in memory.

    Data are read twice for that, first to count the samples and their labels. Those that can be
    read `once` give another draw, as their number is not known before their end.

    >>> from layerscope.inputs import draw, draw_stream, open_corpus, open_stream
    >>> draw_stream(open_stream("reviews.csv", rows=7), 4, seed=0).names
    ('6', '11', '14', '17')
    >>> draw(open_corpus("reviews.csv"), 4, seed=0).names
    ('6', '11', '14', '17')
    """
    if stream.length == len(stream.head):
        return draw(stream.head, n, seed)
    notes: tuple[str, ...] = ()
    if stream.once:
        lots = np.random.default_rng(seed)
        lowest = nsmallest(n, ((lots.random(), row, one) for row, one in enumerate(_each(stream))))
        kept = [one for _, _, one in sorted(lowest, key=itemgetter(1))]
    else:
        total, all_labels = 0, list[str | int]()
        for chunk in stream.chunks():
            total += len(chunk.samples)
            all_labels += chunk.labels or ()
        rows, notes = drawn_rows(
            total, None if stream.head.labels is None else _of_one_type(all_labels), n, seed
        )
        chosen = {*rows}
        kept = [one for row, one in enumerate(_each(stream)) if row in chosen]
    samples, names, labels = zip(*kept, strict=True)
    classes = None if stream.head.labels is None else _of_one_type(labels)
    return replace(
        stream.head, samples=samples, names=names, labels=classes, notes=(*stream.notes, *notes)
    )


def _each(stream: Stream) -> Iterator[tuple[Any, str, Any]]:
    """Yield every sample with its name and its label, None where there are none."""
    for chunk in stream.chunks():
        yield from zip(
            chunk.samples, chunk.names, chunk.labels or [None] * len(chunk.samples), strict=True
        )


def _of_one_type(labels: Sequence[Any]) -> Labels:
    """Return labels as texts where those of some chunks are numbers and those of others are not."""
    return tuple(labels if len({*map(type, labels)}) < 2 else map(str, labels))
