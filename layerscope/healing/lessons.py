"""The samples of a healing: most to learn from, some that say which weights are best, some that judge."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from layerscope.core.errors import LayerscopeError, count
from layerscope.inputs import Corpus, open_corpus, pack
from layerscope.models import LayeredModel

WINDOW = 128
"""Tokens of a window of running text, of which a language model learns."""
FEWEST = 50
"""Distinct samples that a healing needs."""
SHARE, MOST = 5, 512
"""One sample in `SHARE` is held out, one is for validation; of each at most `MOST`."""


@dataclass(frozen=True)
class Lessons:
    """Samples to `learn` from, for `validation`, and `held` out of both; no sample is in two of them."""

    learn: Sequence[Any]
    validation: Sequence[Any]
    held: Sequence[Any]


def distinct_samples(corpus: Corpus, model: LayeredModel, seed: int) -> list[Any]:
    """Return each sample of a corpus that gives the model something to learn from once, in a seeded order.

    A language model reads running text in windows.
    """
    if corpus.running and model.is_language_model:
        tokenizer, longest = model.encoder.tokenizer, model.max_length or WINDOW  # type: ignore[attr-defined]  # it reads texts
        corpus = pack(corpus, tokenizer, min(WINDOW, longest))
    rows = np.random.default_rng(seed).permutation(np.flatnonzero(~corpus.copies))
    samples = [corpus.samples[row] for row in rows]
    least = 1
    if model.is_language_model:
        least = 2
    lengths = np.array(model.encoder.lengths(samples))
    return [samples[row] for row in np.flatnonzero(lengths >= least)]


def check_enough(n: int, name: str, verb: str, fewest: int) -> None:
    """Raise where `name` has fewer than the distinct samples that a verb needs."""
    if n < fewest:
        raise LayerscopeError(
            f"{name} has {count(n, 'distinct sample')}, and {verb} needs {fewest}: give more of them"
        )


def lessons_of(data: Any, model: LayeredModel, seed: int) -> Lessons:
    """Return the samples of any data in three parts; raises `LayerscopeError` for too few."""
    corpus = open_corpus(data)
    samples = distinct_samples(corpus, model, seed)
    check_enough(len(samples), corpus.name, "healing", FEWEST)
    part = min(MOST, len(samples) // SHARE)
    return Lessons(samples[2 * part :], samples[:part], samples[part : 2 * part])
