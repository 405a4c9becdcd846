from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from layerscope.core.errors import LayerscopeError
from layerscope.core.words import count
from layerscope.inputs.corpus import Corpus
from layerscope.inputs.samples import Lines, Window

PIECE = 1_000_000  # characters tokenised at once
_PROBES = ("a", "the", "1")


def pack(corpus: Corpus, tokenizer: Any, window: int) -> Corpus:
    """Return a corpus's running text as consecutive windows of `window` tokens, each a `Window`.

    A window's ids begin and end with the special tokens that the tokenizer itself puts around a sequence, so
    that every window has the same length. A shorter last window is left out unless it is the only one, and labels
    are dropped; the notes say so. Raises `LayerscopeError` where the window has no room for a token of text.

    >>> from transformers import AutoTokenizer
    >>> from layerscope.inputs import open_corpus, pack
    >>> packed = pack(open_corpus("reviews.csv"), AutoTokenizer.from_pretrained("tiny-bert"), window=16)
    >>> len(packed), len(packed.samples[0].ids)
    (6, 16)
    """
    if corpus.modality != "text":
        raise LayerscopeError(f"{corpus.name} holds {corpus.modality} samples: only text is packed into windows")
    if isinstance(corpus.samples[0], Window):
        raise LayerscopeError(f"{corpus.name} is packed into windows already: pack the text it came from")
    before, after = special_tokens(tokenizer)
    specials = len(before) + len(after)
    body = window - specials
    if body < 1:
        raise LayerscopeError(
            f"a window of {window} tokens has no room for text beside the tokenizer's "
            f"{count(specials, 'special token')}: give {specials + 1} or more"
        )
    text = running_text(corpus.samples)
    ids, starts, ends = _tokens(text, tokenizer)
    if len(ids) == 0:
        raise LayerscopeError(f"{corpus.name} yields no tokens with this tokenizer: give a text it can read")
    total = max(len(ids) // body, 1)
    windows = []
    for first in range(0, total * body, body):
        span = slice(first, first + body)
        source = _span(text, starts[span], ends[span]) if len(starts) else str(tokenizer.decode(ids[span].tolist()))
        windows.append(Window(source, (*before, *ids[span].tolist(), *after)))
    notes = [*corpus.notes, f"packed into {count(total, 'window')} of {len(windows[0].ids)} tokens"]
    if (rest := len(ids) - total * body) > 0:
        notes.append(f"the last {count(rest, 'token')} left out: less than a window")
    if corpus.labels is not None:
        notes.append("labels left out: a window may span several samples")
    names = tuple(map(str, range(total)))
    return replace(corpus, samples=tuple(windows), names=names, labels=None, notes=tuple(notes), running=False)


def special_tokens(tokenizer: Any) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the ids a tokenizer puts before and after one sequence, as it does itself."""
    for probe in _PROBES:
        plain = list(tokenizer(probe, add_special_tokens=False)["input_ids"])
        whole = list(tokenizer(probe, add_special_tokens=True)["input_ids"])
        for first in range(len(whole) - len(plain) + 1):
            if plain and whole[first : first + len(plain)] == plain:
                return tuple(whole[:first]), tuple(whole[first + len(plain) :])
    raise LayerscopeError("the tokenizer changes a text when it adds special tokens: its windows cannot be packed")


def running_text(samples: Sequence[str]) -> str:
    """Return the whole text of a plain text file, or samples joined by newlines."""
    return samples.text if isinstance(samples, Lines) else "\n".join(samples)


def _tokens(text: str, tokenizer: Any) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Return the ids of a text, and where each token starts and ends in it (empty for slow tokenizers)."""
    fast = bool(getattr(tokenizer, "is_fast", False))
    # A piece may well be longer than the model takes: only its windows go in, so no warning is due.
    options = {"add_special_tokens": False, "verbose": False, "return_attention_mask": False}
    ids, spans = [], []
    for offset, piece in _pieces(text):
        encoded = tokenizer(piece, return_offsets_mapping=fast, **options)
        ids.append(np.asarray(encoded["input_ids"], dtype=np.int64))
        if fast:
            spans.append(np.asarray(encoded["offset_mapping"], dtype=np.int64).reshape(-1, 2) + offset)
    found = np.concatenate(spans) if spans else np.empty((0, 2), dtype=np.int64)
    return np.concatenate(ids), found[:, 0], found[:, 1]


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


def _span(text: str, starts: NDArray[np.int64], ends: NDArray[np.int64]) -> str:
    real = ends > starts  # some tokenizers give a token of their own an empty span
    return text[int(starts[real].min()) : int(ends[real].max())] if real.any() else ""
