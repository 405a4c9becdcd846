"""A language model at one depth, fed token by token with its own cache."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from copy import copy
from typing import Any

import torch
from torch import Tensor, nn

from layerscope.core.errors import LayerscopeError
from layerscope.generation.kept import kept
from layerscope.models import LayeredModel, LoadOptions, Override, find_layers, load
from layerscope.models.encode import modality_of, positions
from layerscope.models.forward import accepts
from layerscope.models.inspection import made_up_samples
from layerscope.truncation.agreement import expected_at
from layerscope.truncation.depth import find_depth

PROBE_TOKENS = 12
EXACT, HALF = 1e-3, 1e-1
"""How far, relative to their norm, logits by the cache may be from those of the whole text."""


class Decoder:
    """Gives the logits of the next token, first of whole prompts, then after each token more.

    All prompts of a batch are equally long: without padding there is nothing to mask, whatever the architecture. The
    model prepares its own inputs, and every output that its forward takes back under the same name (`past_key_values`,
    `cache_params`, `state`) is handed to the next one. With `cached` false the whole text is read at every step;
    `alone` says that a batch must be of one text.
    """

    def __init__(self, module: Any, layer: int, *, cached: bool = True, alone: bool = False) -> None:
        self.module, self.layer, self.cached, self.alone = module, layer, cached, alone
        asked = {"use_cache": cached, "logits_to_keep": 1}
        self.asked = {name: value for name, value in asked.items() if accepts(module, name)}

    @property
    def device(self) -> torch.device:
        """Where ids go."""
        device: torch.device = next(self.module.parameters()).device
        return device

    @property
    def ends(self) -> tuple[int, ...]:
        """The tokens that end a text."""
        told = getattr(self.module, "generation_config", None) or self.module.config
        found = told.eos_token_id
        return () if found is None else tuple(found) if isinstance(found, (list, tuple)) else (int(found),)

    def prefill(self, ids: Tensor) -> Tensor:
        """Read prompts [B, T] and return float32 logits [B, V]; what was read before is forgotten."""
        self.ids, self.kept = ids, dict[str, Any]()
        return self._next(is_first_iteration=True)

    def step(self, tokens: Tensor) -> Tensor:
        """Read one token more of each, [B], and return float32 logits [B, V]."""
        self.ids = torch.cat([self.ids, tokens[:, None]], 1)
        return self._next(next_sequence_length=1 if self.kept else None)

    def _next(self, **how: Any) -> Tensor:
        at = {}
        if accepts(self.module, "position_ids"):  # some models count from 0 again where they are not told
            at["position_ids"] = torch.arange(self.ids.shape[1], device=self.ids.device)[None]
        inputs = self.module.prepare_inputs_for_generation(self.ids, **how, **at, **self.asked, **self.kept)
        output = self.module(**inputs, return_dict=True)
        if self.cached:
            self.kept = {k: v for k, v in output.items() if v is not None and accepts(self.module, k)}
        logits: Tensor = output.logits[:, -1].float()
        return logits


def open_decoder(model: LayeredModel, layer: int) -> Decoder:
    """Return the decoder of one depth, with its cache and in batches where they give what the whole text alone gives.

    Some caches mix the texts of a batch, and some break where a cut leaves layers of one kind only; a probe tells. It
    is made once for a model that stays as it is.
    """
    return copy(kept(model.module, ("decoder", layer, model.stack), lambda: _decoder(model, layer)))


def _decoder(model: LayeredModel, layer: int) -> Decoder:
    module = at_depth(model, layer)
    assert model.lens is not None and model.max_length is not None
    seeded = torch.Generator().manual_seed(0)
    ids = torch.randint(model.lens.classes, (2, min(PROBE_TOKENS, model.max_length)), generator=seeded)
    for alone in (False, True) if model.batching else (True,):
        decoder = Decoder(module, layer, alone=alone)
        if _steps_agree(decoder, ids[: 1 if alone else 2].to(decoder.device)):
            return decoder
    return Decoder(module, layer, cached=False, alone=not model.batching)


@torch.inference_mode()
def _steps_agree(decoder: Decoder, ids: Tensor) -> bool:
    first = max(1, ids.shape[1] // 2)
    tolerance = EXACT if decoder.module.dtype in (torch.float32, torch.float64) else HALF
    try:
        found = [decoder.prefill(ids[:, :first]), *map(decoder.step, ids[:, first:].unbind(1))]
    except Exception:  # whatever a model raises that cannot go on from its own cache
        return False
    whole = Decoder(decoder.module, decoder.layer, cached=False)
    for row, text in enumerate(ids):
        wanted = [whole.prefill(text[None, : first + step])[0] for step in range(len(found))]
        for one, two in zip(found, wanted, strict=True):
            if bool((one[row] - two).norm() > tolerance * two.norm()):
                return False
    return True


def open_language_model(model: Any, processor: Any, override: Override, options: LoadOptions) -> LayeredModel:
    """Load a decoder and find its layers; a text of it may be as long as its positions go.

    What was found of a model that is given as an object is kept for the next call.

    Raises:
        LayerscopeError: for what cannot be loaded, and for a model that does not continue a text.

    """

    def find() -> tuple[LayeredModel, Any]:
        return _opened(model, processor, override, options), processor  # which, kept alive, is known by its id

    return kept(model, ("layers", id(processor), override), find)[0] if isinstance(model, nn.Module) else find()[0]


def _opened(model: Any, processor: Any, override: Override, options: LoadOptions) -> LayeredModel:
    loaded = load(model, options, processor)
    module: Any = loaded.module
    refusal = (
        f"{type(module).__name__} is not a language model that continues a text: give a decoder with its head over the "
        "vocabulary, such as GPT-2 or Llama"
    )
    two_texts = getattr(getattr(module, "config", None), "is_encoder_decoder", False)
    if modality_of(module) != "text" or two_texts or not hasattr(module, "prepare_inputs_for_generation"):
        raise LayerscopeError(refusal)
    modality, samples = made_up_samples(loaded)
    window = int(min(positions(module), sys.maxsize))
    found = find_layers(loaded, modality, samples, override, max_length=window, prompt="")
    if not found.is_language_model:
        raise LayerscopeError("; ".join([refusal, *found.notes]))
    return found


def at_depth(model: LayeredModel, layer: int) -> Any:
    """Return the model that ends at a layer, in the same memory; at the last layer it is the model itself.

    Raises:
        LayerscopeError: where no number of its config sets its depth.

    """
    if layer == model.stack.depth:
        return model.module
    _, samples = made_up_samples(model.loaded)
    expected = expected_at(model, layer, samples)
    return find_depth(model.module, model.stack, expected).build(model.module, layer)


def read(model: LayeredModel, texts: Sequence[str], what: str) -> list[list[int]]:
    """Return the token ids of texts, uncut, a text without any as the tokenizer's token that begins one.

    Raises:
        LayerscopeError: for something that is no list of texts, and for a text without a token.

    """
    if isinstance(texts, str) or not all(isinstance(text, str) for text in texts):
        raise LayerscopeError(f"{what}s are a list of texts: give one or several strings in a list")
    if not len(texts):
        raise LayerscopeError(f"the list of {what}s is empty: give one or several")
    encoder: Any = model.encoder
    begin = getattr(encoder.tokenizer, "bos_token_id", None)
    rows = [row or ([] if begin is None else [begin]) for row in encoder.whole(texts)]
    if [] in rows:
        raise LayerscopeError(
            f"{what} {rows.index([])} ({texts[rows.index([])]!r}) has no token, and the tokenizer none that begins a "
            "text: give at least one word"
        )
    return rows
