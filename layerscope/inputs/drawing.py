"""Samples drawn by a seed."""

from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pandas as pd

from layerscope.core.errors import LayerscopeError
from layerscope.core.labels import WHOLE, is_target
from layerscope.inputs.corpus import Corpus, Labels


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
    if labels is None or n < 2 * WHOLE or is_target(labels):
        return np.sort(chosen).tolist(), ()
    return _of_whole_classes(labels, chosen, seed)


def _of_whole_classes(
    labels: Labels, chosen: npt.NDArray[np.int64], seed: int
) -> tuple[list[int], tuple[str, ...]]:
    """Return as many rows as were `chosen`, as near to these as classes of 5 samples allow, and a note.

    A probe needs 5 samples of a class. All rows are put in an order: first 5 of each class that is
    kept, then the others that were chosen, then the rest, shuffled; the first n of them are taken.
    """
    n = len(chosen)
    others = np.setdiff1d(np.arange(len(labels)), chosen)
    shuffled = np.random.default_rng(seed).permutation(others)
    rows = pd.Series(np.concatenate([chosen, shuffled]))
    classes = rows.map(lambda row: repr(labels[row]))
    sizes = classes.value_counts()
    readable = [name for name in classes.unique() if sizes[name] >= WHOLE]
    kept = readable[: n // WHOLE]
    member = classes.isin(kept)
    # first 5 of each class, then what else was drawn; where classes are left out their rows are last
    is_early = classes.groupby(classes).cumcount() < WHOLE
    late = ~(member & is_early) * 1
    if len(kept) < len(readable):
        late += ~member
    order = late.sort_values(kind="stable").index[:n]
    drawn = np.sort(rows[order]).tolist()
    if len(kept) == len(readable):
        return drawn, ()
    note = (
        f"the {n:,} samples cover {len(kept):,} of {len(readable):,} classes, {WHOLE} or more of each: "
        f"`samples={WHOLE * len(readable)}` would cover all"
    )
    return drawn, (note,)
