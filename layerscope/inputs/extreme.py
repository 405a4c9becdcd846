"""Extreme inputs: texts in which tokens repeat, or are drawn at random (figure 6 of Layer by Layer).

The third extreme, prompts of a growing length, is what windows of N tokens are: `pack`.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from typing import Any, Literal

import numpy as np

from layerscope.inputs.corpus import Corpus
from layerscope.inputs.samples import Window

Extreme = Literal["repeat", "random"]
HOW = {"repeat": "one token of its own, drawn for each sample", "random": "tokens drawn from the vocabulary"}


def repeat_tokens(
    ids: Sequence[int], share: float, random: np.random.Generator, fixed: Collection[int] = ()
) -> tuple[int, ...]:
    """Return ids in which each is replaced, with probability `share`, by a single one of them, drawn once.

    Ids in `fixed` stay as they are and are never the one that repeats. With a generator in the same state the same id
    repeats, and a greater share replaces every id that a smaller one does.

    >>> from layerscope.inputs import repeat_tokens
    >>> repeat_tokens([101, 7, 8, 9, 102], 1.0, np.random.default_rng(0), fixed={101, 102})
    (101, 9, 9, 9, 102)
    """
    free = [i for i, token in enumerate(ids) if token not in fixed]
    if not free:
        return tuple(ids)
    repeated = ids[free[int(random.integers(len(free)))]]
    return _replaced(ids, free, [repeated] * len(free), share, random)


def random_tokens(
    ids: Sequence[int],
    share: float,
    vocabulary: Sequence[int],
    random: np.random.Generator,
    fixed: Collection[int] = (),
) -> tuple[int, ...]:
    """Return ids in which each is replaced, with probability `share`, by one drawn from `vocabulary`.

    Ids in `fixed` stay as they are. With a generator in the same state a greater share replaces every id that a smaller
    one does.

    >>> from layerscope.inputs import random_tokens
    >>> random_tokens([101, 7, 8, 9, 102], 1.0, [5, 6], np.random.default_rng(0), fixed={101, 102})
    (101, 6, 6, 6, 102)
    """
    free = [i for i, token in enumerate(ids) if token not in fixed]
    return _replaced(ids, free, random.choice(np.asarray(vocabulary), len(free)).tolist(), share, random)


def _replaced(
    ids: Sequence[int], free: Sequence[int], others: Sequence[int], share: float, random: np.random.Generator
) -> tuple[int, ...]:
    out = list(ids)
    for i, other, lot in zip(free, others, random.random(len(free)), strict=True):
        if lot < share:
            out[i] = other
    return tuple(out)


def make_extreme(
    corpus: Corpus,
    kind: Extreme,
    share: float,
    *,
    tokenizer: Any,
    tokenised: Callable[[Sequence[Any]], list[list[int]]],
    rows: int,
    seed: int,
) -> Corpus:
    """Return a corpus of texts with tokens of each sample replaced, each sample a `Window` of its new ids.

    Args:
        corpus: texts or windows.
        kind: "repeat" or "random".
        share: the probability, 0 to 1, with which a token is replaced; special tokens never are.
        tokenizer: names the special tokens, and decodes the new ids.
        tokenised: returns the ids of samples, as the model reads them.
        rows: size of the model's vocabulary.
        seed: random seed, combined with each sample's name.

    Example:
        >>> from transformers import AutoTokenizer
        >>> from layerscope.inputs import make_extreme, open_corpus
        >>> tokenizer = AutoTokenizer.from_pretrained("tiny-bert")
        >>> ids = lambda texts: tokenizer(list(texts))["input_ids"]
        >>> options = {"tokenizer": tokenizer, "tokenised": ids, "rows": len(tokenizer), "seed": 0}
        >>> make_extreme(open_corpus(["the food was good"]), "repeat", 1.0, **options).samples[0].text
        'was was was was'

    """
    special = set(tokenizer.all_special_ids)
    vocabulary = [token for token in range(min(len(tokenizer), rows)) if token not in special]

    def changed(ids: Sequence[int], name: str) -> Window:
        random = np.random.default_rng([seed, zlib.crc32(name.encode())])
        if kind == "repeat":
            new = repeat_tokens(ids, share, random, special)
        else:
            new = random_tokens(ids, share, vocabulary, random, special)
        return Window(str(tokenizer.decode(new, skip_special_tokens=True)), new)

    samples = tuple(changed(ids, name) for ids, name in zip(tokenised(corpus.samples), corpus.names, strict=True))
    note = f"each token is replaced with probability {share:g} by {HOW[kind]}"
    return replace(corpus, name=f"{corpus.name}-{kind}-{share:g}", samples=samples, notes=(*corpus.notes, note))
