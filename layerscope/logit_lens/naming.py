"""What predictions are called: tokens as a text holds them, or the names of classes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

from layerscope.models import LayeredModel

LOST = "\N{REPLACEMENT CHARACTER}"
SPACE = "\N{LOWER ONE EIGHTH BLOCK}"
"""What sentencepiece stores a space as."""


def token_names(tokenizer: Any) -> Callable[[int], str]:
    """Return what gives a token's text, the space before it included; part of a character is its stored form.

    Without a tokenizer a token is named by its number.
    """

    @cache
    def name(number: int) -> str:
        known = tokenizer is not None and number < len(tokenizer)
        stored = tokenizer.convert_ids_to_tokens(number) if known else None
        if not isinstance(stored, str):  # rows of the head beyond the vocabulary
            return f"#{number}"
        text = decoded(tokenizer, [number])
        if stored.startswith(SPACE) and not text.startswith(" "):  # sentencepiece drops the first space of a text
            text = f" {text}"
        return stored if not text or LOST in text else text

    return name


def decoded(tokenizer: Any, ids: Sequence[int]) -> str:
    """Return the text of some tokens, special ones included."""
    return str(tokenizer.decode(list(ids), clean_up_tokenization_spaces=False))


def following(tokenizer: Any, ids: Sequence[int], new: Sequence[int]) -> str:
    """Return what new tokens add to the text of those before them; without a tokenizer their numbers."""
    if tokenizer is None:
        return " ".join(f"#{number}" for number in new)
    before, whole = decoded(tokenizer, ids), decoded(tokenizer, [*ids, *new])
    return whole.removeprefix(before) if whole.startswith(before) else decoded(tokenizer, new)


def class_names(model: LayeredModel) -> dict[int, str] | None:
    """Return the names of a head's classes, None where they are the vocabulary's tokens."""
    assert model.lens is not None
    config = getattr(model.module, "config", None)
    named = getattr(config, "id2label", None) or {}
    if model.lens.kind == "pooled":
        return {number: str(named.get(number, number)) for number in range(model.lens.classes)}
    if len(named) != model.lens.classes or getattr(config, "vocab_size", None) == model.lens.classes:
        return None
    return {int(number): str(name) for number, name in named.items()}
