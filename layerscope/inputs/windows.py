"""Texts as windows of token ids: packed from running text, or with tokens that repeat or are drawn at random.

The latter are the extreme inputs of Layer by Layer, figure 6, whose prompts of a growing length
`pack` gives.
"""

import zlib
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace
from typing import Any, Literal

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from layerscope.core.errors import LayerscopeError, count
from layerscope.inputs.corpus import Corpus
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
    text = (
        corpus.samples.text
        if isinstance(corpus.samples, Lines)
        else "\n".join(corpus.samples)
    )
    ids, starts, ends = _tokens(text, tokenizer)
    if len(ids) == 0:
        raise LayerscopeError(
            f"{corpus.name} yields no tokens with this tokenizer: give a text it can read"
        )
    total = max(len(ids) // body, 1)
    windows = []
    for first in range(0, total * body, body):
        span = slice(first, first + body)
        if len(starts):
            # some tokenizers give a token of their own an empty span
            real = ends[span] > starts[span]
            source = (
                text[starts[span][real].min() : ends[span][real].max()]
                if real.any()
                else ""
            )
        else:
            source = str(tokenizer.decode(ids[span].tolist()))
        windows.append(Window(source, (*before, *ids[span].tolist(), *after)))
    notes = [
        *corpus.notes,
        f"packed into {count(total, 'window')} of {len(windows[0].ids)} tokens",
    ]
    if (rest := len(ids) - total * body) > 0:
        notes.append(f"the last {count(rest, 'token')} left out: less than a window")
    if corpus.labels is not None:
        notes.append("labels left out: a window may span several samples")
    names = tuple(map(str, range(total)))
    return replace(
        corpus,
        samples=tuple(windows),
        names=names,
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


def _tokens(
    text: str, tokenizer: Any
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Return the ids of a text, and where each token starts and ends in it (empty for slow tokenizers)."""
    fast = bool(getattr(tokenizer, "is_fast", False))
    # A piece may well be longer than the model takes: only its windows go in, so no warning is due.
    options = {
        "add_special_tokens": False,
        "verbose": False,
        "return_attention_mask": False,
    }
    ids, spans = [], []
    for offset, piece in _pieces(text):
        encoded = tokenizer(piece, return_offsets_mapping=fast, **options)
        ids.append(np.asarray(encoded["input_ids"], dtype=np.int64))
        if fast:
            spans.append(
                np.asarray(encoded["offset_mapping"], dtype=np.int64).reshape(-1, 2)
                + offset
            )
    offsets = np.concatenate(spans) if spans else np.empty((0, 2), dtype=np.int64)
    return np.concatenate(ids), offsets[:, 0], offsets[:, 1]


def _pieces(text: str) -> Iterator[tuple[int, str]]:
    """Yield a text in pieces that end with a line where they can, each with the position at which it starts."""
    start = 0
    while start < len(text):
        end = start + PIECE
        if end < len(text):
            line_end = text.rfind("\n", start, end)
            word_end = text.rfind(" ", start, end)
            end = next((cut for cut in (line_end + 1, word_end) if cut > start), end)
        yield start, text[start:end]
        start = end


def repeat_tokens(
    ids: Sequence[int], share: float, random: Generator, fixed: Collection[int] = ()
) -> tuple[int, ...]:
    """Return ids in which each is replaced, with probability `share`, by a single one of them, drawn once.

    Ids in `fixed` stay as they are and are never the one that repeats. With a generator in the same
    state the same id repeats, and a greater share replaces every id that a smaller one does.

    >>> from layerscope.inputs import repeat_tokens
    >>> repeat_tokens([101, 7, 8, 9, 102], 1.0, np.random.default_rng(0), fixed={101, 102})
    (101, 9, 9, 9, 102)
    """
    return _replaced(ids, share, None, random, fixed)


def random_tokens(
    ids: Sequence[int],
    share: float,
    vocabulary: Sequence[int],
    random: Generator,
    fixed: Collection[int] = (),
) -> tuple[int, ...]:
    """Return ids in which each is replaced, with probability `share`, by one drawn from `vocabulary`.

    Ids in `fixed` stay as they are. With a generator in the same state a greater share replaces
    every id that a smaller one does.

    >>> from layerscope.inputs import random_tokens
    >>> random_tokens([101, 7, 8, 9, 102], 1.0, [5, 6], np.random.default_rng(0), fixed={101, 102})
    (101, 6, 6, 6, 102)
    """
    return _replaced(ids, share, vocabulary, random, fixed)


def _replaced(
    ids: Sequence[int],
    share: float,
    vocabulary: Sequence[int] | None,
    random: Generator,
    fixed: Collection[int],
) -> tuple[int, ...]:
    """Replace ids by draws from a vocabulary, or without one by a single one of them."""
    free = [i for i, token in enumerate(ids) if token not in fixed]
    if not free:
        return tuple(ids)
    if vocabulary is None:
        others = [ids[free[int(random.integers(len(free)))]]] * len(free)
    else:
        others = random.choice(np.asarray(vocabulary), len(free)).tolist()
    new = list(ids)
    for i, other, lot in zip(free, others, random.random(len(free)), strict=True):
        if lot < share:
            new[i] = other
    return tuple(new)


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
    special = set(tokenizer.all_special_ids)
    vocabulary = [
        token for token in range(min(len(tokenizer), rows)) if token not in special
    ]

    samples = []
    for ids, name in zip(tokenised(corpus.samples), corpus.names, strict=True):
        random = np.random.default_rng([seed, zlib.crc32(name.encode())])
        drawn_from = None if kind == "repeat" else vocabulary
        new = _replaced(ids, share, drawn_from, random, special)
        samples.append(
            Window(str(tokenizer.decode(new, skip_special_tokens=True)), new)
        )
    note = f"each token is replaced with probability {share:g} by {HOW[kind]}"
    return replace(
        corpus,
        name=f"{corpus.name}-{kind}-{share:g}",
        samples=tuple(samples),
        notes=(*corpus.notes, note),
    )
