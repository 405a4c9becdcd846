"""Texts as a language model takes and continues them."""

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from layerscope.core import LayerscopeError
from layerscope.inputs import Corpus, open_corpus, pack
from layerscope.inputs.pairs import paired
from layerscope.inputs.windows import WINDOW
from layerscope.models.layered import LayeredModel


def window_of(
    chunk: int | None, prompt: str, corpus: Corpus, model: LayeredModel
) -> int | None:
    """Return how many tokens the windows of running text have, None where samples are taken as they are."""
    if chunk and not corpus.running:
        raise LayerscopeError(
            "`chunk` packs running text, and this data has samples of its own: leave it out"
        )
    if not (chunk or (corpus.running and model.is_language_model)):
        return None
    refuse_chat(model)
    if prompt:
        raise LayerscopeError(
            "`prompt` goes before texts, and these are packed into windows: leave one of the two out"
        )
    return min(chunk or WINDOW, model.max_length or WINDOW)


def readable_corpus(
    data: Any,
    model: LayeredModel,
    text_column: str | None = None,
    label_column: str | None = None,
) -> Corpus:
    """Open data that a model reads, as pairs for one that reads pairs; raises `LayerscopeError` for other data."""
    corpus = open_corpus(data, text_column=text_column, label_column=label_column)
    if corpus.modality != model.encoder.modality:
        raise LayerscopeError(
            f"{corpus.name} holds {corpus.modality} samples, and {model.name} reads {model.encoder.modality}: "
            "give samples of that kind"
        )
    if model.reads_pairs:
        corpus = paired(corpus, data, text_column)
    return corpus


def distinct(
    data: Any,
    model: LayeredModel,
    seed: int,
    window: int | None,
    most: int | None = None,
) -> Corpus:
    """Return each sample of any data that a model makes something of, once, in a seeded order.

    Running text is packed into windows of at most `window` tokens, and stays as it is for None. A
    language model needs two tokens, to predict the second. At most `most` samples are looked at.
    """
    corpus = open_corpus(data)
    if corpus.running and window is not None:
        encoder: Any = model.encoder
        tokens = min(window, model.max_length or window)
        corpus = pack(corpus, encoder.tokenizer, tokens)
    originals = np.flatnonzero(~corpus.copies)
    order = np.random.default_rng(seed).permutation(originals)
    rows = order[:most]
    least = 1
    if model.is_language_model:
        least = 2
    samples = [corpus.samples[row] for row in rows]
    lengths = np.array(model.encoder.lengths(samples))
    return corpus.take(rows[lengths >= least])


def refuse_chat(model: LayeredModel) -> None:
    """Raise where running text is packed, and a chat template is to be around each text."""
    if model.loaded.chat:
        raise LayerscopeError(
            "`chat` wraps texts, and these are packed into windows: leave it out, or give a table of texts"
        )


def following(
    tokenizer: Any, ids: Sequence[int], new: Sequence[int], **options: bool
) -> str:
    """Return what new tokens add to the text of those before them (alone they may lose a space), or their numbers."""
    if tokenizer is None:
        return " ".join(f"#{number}" for number in new)
    read = partial(tokenizer.decode, clean_up_tokenization_spaces=False, **options)
    before = read([*ids])
    text = read([*ids, *new])
    if text.startswith(before):
        return str(text[len(before) :])
    return str(read([*new]))
