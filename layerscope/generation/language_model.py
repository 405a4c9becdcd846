"""A language model and its depths, opened, and texts as its token ids."""

import sys
from collections.abc import Collection, Iterable, Sequence
from typing import Any, Literal

from layerscope.core import LayerscopeError
from layerscope.models import (
    LayeredModel,
    Loaded,
    Override,
    find_layers,
    made_up_samples,
    setting,
)
from layerscope.models.modality import modality_of, positions
from layerscope.truncation.pipeline import checked_layers


def ends_of(module: Any) -> tuple[int, ...]:
    """Return the tokens that end a text of a model."""
    ends = (getattr(module, "generation_config", None) or module.config).eos_token_id
    if ends is None:
        return ()
    if isinstance(ends, (list, tuple)):
        return tuple(ends)
    return (int(ends),)


def until_end(tokens: list[int], ends: Collection[int]) -> list[int]:
    """Return the tokens of a text up to the first that ends it."""
    for number, token in enumerate(tokens, start=1):
        if token in ends:
            return tokens[:number]
    return tokens


def language_model(loaded: Loaded, override: Override) -> LayeredModel:
    """Find the layers of a loaded model; raises `LayerscopeError` for one that does not continue a text."""
    module: Any = loaded.module
    refusal = f"{type(module).__name__} is not a language model that continues a text: give one such as GPT-2 or Llama"
    continues = hasattr(module, "prepare_inputs_for_generation")
    two_texts = setting(module, "is_encoder_decoder")
    if modality_of(module) != "text" or two_texts or not continues:
        raise LayerscopeError(refusal)
    window = int(min(positions(module), sys.maxsize))
    model = find_layers(loaded, *made_up_samples(loaded), override, max_length=window)
    if not model.is_language_model:
        raise LayerscopeError("; ".join([refusal, *model.notes]))
    return model


def layers_of(
    model: LayeredModel, layers: Literal["all"] | Iterable[int] | None
) -> list[int]:
    """Return the depths asked for, in order, by default the last; raises `LayerscopeError` for what is none."""
    depth = model.depth
    if layers == "all":
        layers = range(1, depth + 1)
    return checked_layers(layers or [depth], depth)


def token_ids(model: LayeredModel, prompts: Sequence[str]) -> list[list[int]]:
    """Return the token ids of prompts, uncut, a prompt without any as the tokenizer's token that begins a text.

    Raises `LayerscopeError` for anything but texts, and for one without a token.
    """
    are_texts = all(isinstance(prompt, str) for prompt in prompts)
    if not len(prompts) or not are_texts:
        raise LayerscopeError(
            "prompts are a list of texts: give one or more strings in a list"
        )
    encoder: Any = model.encoder
    begin: Any = getattr(encoder.tokenizer, "bos_token_id", None)
    rows: list[list[int]] = encoder.ids(prompts, whole=True)
    for i, row in enumerate(rows):
        if not row and begin is None:
            raise LayerscopeError(
                f"prompt {i} ({prompts[i]!r}) has no token, and the tokenizer has none that begins a text: give at "
                "least one word"
            )
    return [row or [begin] for row in rows]


def check_room(model: LayeredModel, prompts: Iterable[Sequence[int]], new: int) -> None:
    """Raise for a prompt without room for `new` tokens: a text cut short would look as if the model had ended it."""
    assert model.max_length is not None
    for i, ids in enumerate(prompts):
        room = model.max_length - len(ids)
        if room >= new:
            continue
        mend = "shorten it"
        if room > 0:
            mend += f", or try `max_new_tokens={room}`"
        raise LayerscopeError(
            f"prompt {i} has {len(ids)} tokens, and {new} new ones follow: the model has {model.max_length} positions, "
            f"{mend}"
        )
