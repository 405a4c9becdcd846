"""Texts as windows of token ids: packed from running text, or with tokens that repeat or are drawn at random.

The latter are the extreme inputs of Layer by Layer, figure 6, whose prompts of a growing length
`pack` gives.
"""

import zlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from layerscope.core import LayerscopeError, count
from layerscope.inputs.corpus import Corpus, row_numbers
from layerscope.inputs.samples import Lines, Window

WINDOW = 256
"""Running text is packed into windows of this many tokens for a language model."""
PIECE = 1_000_000  # characters tokenised at once
_PROBES = ("a", "the", "1")
Extreme = Literal["repeat", "random"]
HOW = {
    "repeat": "one token drawn from each sample",
    "random": "tokens drawn from the vocabulary",
}


def pack(corpus: Corpus, tokenizer: Any, window: int) -> Corpus:
    """Return a corpus's running text as consecutive windows of `window` tokens, each a `Window`.

    A window's ids begin and end with the special tokens that the tokenizer itself puts around a
    sequence, so that every window has the same length. A shorter last window is left out unless it
    is the only one, and labels are dropped; the notes say so. Raises `LayerscopeError` where the
    window has no room for a token of text.

    >>> from transformers import AutoTokenizer
    >>> from layerscope.inputs import open_corpus, pack
    >>> packed = pack(open_corpus("reviews.csv"), AutoTokenizer.from_pretrained("tiny-bert"), window=16)
    >>> len(packed), len(packed.samples[0].ids)
    (6, 16)
    """
    if corpus.modality != "text":
        raise LayerscopeError(
            f"{corpus.name} holds {corpus.modality} samples: only text is packed into windows"
        )
    if isinstance(corpus.samples[0], Window):
        raise LayerscopeError(
            f"{corpus.name} is packed into windows already: pack the text it came from"
        )
    before, after = special_tokens(tokenizer)
    specials = len(before) + len(after)
    body = window - specials
    if body < 1:
        raise LayerscopeError(
            f"a window of {window} tokens has no room for text beside the tokenizer's "
            f"{count(specials, 'special token')}: give {specials + 1} or more"
        )
    text = "\n".join(corpus.samples)
    if isinstance(corpus.samples, Lines):
        text = corpus.samples.text
    ids = _tokens(text, tokenizer)
    if not ids:
        raise LayerscopeError(
            f"{corpus.name} yields no tokens with this tokenizer: give a text it can read"
        )
    total = max(len(ids) // body, 1)
    windows = []
    for first in range(0, total * body, body):
        inside = ids[first : first + body]
        source = str(tokenizer.decode(inside))
        windows.append(Window(source, (*before, *inside, *after)))
    notes = [
        *corpus.notes,
        f"packed into {count(total, 'window')} of {len(windows[0].ids)} tokens",
    ]
    if (rest := len(ids) - total * body) > 0:
        notes.append(f"the last {count(rest, 'token')} left out: less than a window")
    if corpus.labels is not None:
        notes.append("labels left out: a window may span several samples")
    return replace(
        corpus,
        samples=tuple(windows),
        names=row_numbers(total),
        labels=None,
        notes=tuple(notes),
        running=False,
    )


def special_tokens(tokenizer: Any) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the ids a tokenizer puts before and after one sequence, as it does itself."""
    for probe in _PROBES:
        plain = list(tokenizer(probe, add_special_tokens=False)["input_ids"])
        whole = list(tokenizer(probe, add_special_tokens=True)["input_ids"])
        for first in range(len(whole) - len(plain) + 1):
            if plain and whole[first : first + len(plain)] == plain:
                return tuple(whole[:first]), tuple(whole[first + len(plain) :])
    raise LayerscopeError(
        "the tokenizer changes a text when it adds special tokens: its windows cannot be packed"
    )


def _tokens(text: str, tokenizer: Any) -> list[int]:
    """Return the ids of a text, which is tokenised in pieces that end with a line, or a word, where they can."""
    ids = []
    start = 0
    while start < len(text):
        end = start + PIECE
        if end < len(text):
            word_end = max(text.rfind(" ", start, end), start) or end
            end = text.rfind("\n", start, end) + 1 or word_end
        # A piece may well be longer than the model takes: only its windows go in, so no warning is due.
        read = tokenizer(text[start:end], add_special_tokens=False, verbose=False)
        ids += read["input_ids"]
        start = end
    return ids


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

    `corpus` holds texts or windows; `share` is the probability, 0 to 1, with which a token is
    replaced; special tokens, which `tokenizer` names, never are. `tokenised` returns the ids of
    samples, as the model reads them, `rows` is the size of its vocabulary, and the random seed is
    combined with each sample's name.

    >>> from transformers import AutoTokenizer
    >>> from layerscope.inputs import make_extreme, open_corpus
    >>> tokenizer = AutoTokenizer.from_pretrained("tiny-bert")
    >>> ids = lambda texts: tokenizer(list(texts))["input_ids"]
    >>> options = {"tokenizer": tokenizer, "tokenised": ids, "rows": len(tokenizer), "seed": 0}
    >>> make_extreme(open_corpus(["the food was good"]), "repeat", 1.0, **options).samples[0].text
    'was was was was'
    """
    special = tokenizer.all_special_ids
    every = np.arange(min(len(tokenizer), rows))
    vocabulary = np.setdiff1d(every, special)
    samples = []
    for ids, name in zip(tokenised(corpus.samples), corpus.names, strict=True):
        random = np.random.default_rng([seed, zlib.crc32(name.encode())])
        new = _replaced(np.asarray(ids), kind, share, vocabulary, special, random)
        text = str(tokenizer.decode(new, skip_special_tokens=True))
        samples.append(Window(text, tuple(new)))
    note = f"each token is replaced with probability {share:g} by {HOW[kind]}"
    return replace(
        corpus,
        name=f"{corpus.name}-{kind}-{share:g}",
        samples=tuple(samples),
        notes=(*corpus.notes, note),
    )


def _replaced(
    ids: NDArray[np.int64],
    kind: Extreme,
    share: float,
    vocabulary: NDArray[np.int64],
    special: Sequence[int],
    random: np.random.Generator,
) -> list[int]:
    """Return ids of which each, but for `special` ones, is replaced with probability `share`.

    With a generator in the same state the same id repeats, and a greater share replaces every id
    that a smaller one does.
    """
    free = np.flatnonzero(np.isin(ids, special, invert=True))
    if len(free):
        if kind == "repeat":
            one = free[random.integers(len(free))]
            others = np.repeat(ids[one], len(free))
        else:
            others = random.choice(vocabulary, len(free))
        lots = random.random(len(free)) < share
        ids[free[lots]] = others[lots]
    return [*ids.tolist()]
