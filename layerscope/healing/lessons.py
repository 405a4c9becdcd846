"""The samples of a healing: most to learn from, some that say which weights are best, some that judge."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from layerscope.core.errors import LayerscopeError, count
from layerscope.models import LayeredModel
from layerscope.models.texts import distinct, readable_corpus

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


def learnable(data: Any, model: LayeredModel, seed: int) -> list[Any]:
    """Return each sample of any data, once, in a seeded order; a language model reads running text in windows."""
    window = None
    if model.is_language_model:
        window = WINDOW
    return [*distinct(data, model, seed, window).samples]


def check_enough(n: int, name: str, verb: str, fewest: int) -> None:
    """Raise where `name` has fewer than the distinct samples that a verb needs."""
    if n < fewest:
        raise LayerscopeError(
            f"{name} has {count(n, 'distinct sample')}, and {verb} needs {fewest}: give more of them"
        )


def lessons_of(data: Any, model: LayeredModel, seed: int) -> Lessons:
    """Return the samples of any data in three parts; raises `LayerscopeError` for too few."""
    corpus = readable_corpus(data, model)
    samples = learnable(corpus, model, seed)
    check_enough(len(samples), corpus.name, "healing", FEWEST)
    part = min(MOST, len(samples) // SHARE)
    return Lessons(samples[2 * part :], samples[:part], samples[part : 2 * part])
