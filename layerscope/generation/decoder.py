"""A language model at one depth, fed token by token with its own cache."""

import sys
from collections.abc import Collection, Iterable, Sequence
from typing import Any, Literal

import torch
from torch import Tensor

from layerscope.core.errors import LayerscopeError
from layerscope.models import LayeredModel, LoadOptions, Override, find_layers, load
from layerscope.models.encode import modality_of, positions
from layerscope.models.forward import accepts
from layerscope.models.inspection import made_up_samples
from layerscope.models.loading import Loaded
from layerscope.truncation.depth import depth_of
from layerscope.truncation.pipeline import checked_layers

PROBE_TOKENS = 12
EXACT, HALF = 1e-3, 1e-1
"""How far, relative to their norm, logits by the cache may be from those of the whole text."""


class Decoder:
    """Gives the logits of the next token, first of whole prompts of one length, then after each further token.

    Every output that the model's forward takes back under the same name (`past_key_values`,
    `cache_params`, `state`) is handed to the next one, or with `cached` false the whole text is
    read again. `alone` means one text per batch.
    """

    def __init__(
        self, module: Any, layer: int, *, cached: bool = True, alone: bool = False
    ) -> None:
        self.module, self.layer, self.cached, self.alone = module, layer, cached, alone
        self.device: torch.device = next(module.parameters()).device
        wanted = {"use_cache": cached, "logits_to_keep": 1}
        self._options = {
            name: value for name, value in wanted.items() if accepts(module, name)
        }
        self.ends = ends_of(module)

    def prefill(self, ids: Tensor) -> Tensor:
        """Read prompts [B, T] and return float32 logits [B, V]; what was read before is forgotten."""
        self.ids, self._cache = ids, dict[str, Any]()
        return self._next(is_first_iteration=True)

    def step(self, tokens: Tensor) -> Tensor:
        """Read one more token of each text, [B], and return float32 logits [B, V]."""
        self.ids = torch.cat([self.ids, tokens[:, None]], 1)
        return self._next(next_sequence_length=1 if self._cache else None)

    def _next(self, **how: Any) -> Tensor:
        # without them some models count from 0 again
        if accepts(self.module, "position_ids"):
            how["position_ids"] = torch.arange(
                self.ids.shape[1], device=self.ids.device
            )[None]
        inputs = self.module.prepare_inputs_for_generation(
            self.ids, **how, **self._options, **self._cache
        )
        output = self.module(**inputs, return_dict=True)
        if self.cached:
            self._cache = {
                k: v
                for k, v in output.items()
                if v is not None and accepts(self.module, k)
            }
        logits: Tensor = output.logits[:, -1].float()
        return logits


def ends_of(module: Any) -> tuple[int, ...]:
    """Return the tokens that end a text of a model."""
    ends = (getattr(module, "generation_config", None) or module.config).eos_token_id
    if ends is None:
        return ()
    return tuple(ends) if isinstance(ends, (list, tuple)) else (int(ends),)


def until_end(tokens: Sequence[int], ends: Collection[int]) -> Sequence[int]:
    """Return the tokens of a text up to the first that ends it."""
    for number, token in enumerate(tokens, start=1):
        if token in ends:
            return tokens[:number]
    return tokens


def open_decoder(model: LayeredModel, layer: int) -> Decoder:
    """Return the decoder of one depth, cached and batched where a probe gives what each text gives alone."""
    module = model.module
    if layer < model.stack.depth:  # the model that ends there, in the same memory
        module = depth_of(model, kept=range(layer)).build(module, range(layer))
    assert model.lens is not None and model.max_length is not None
    seeded = torch.Generator().manual_seed(0)
    tokens = min(PROBE_TOKENS, model.max_length)
    ids = torch.randint(model.lens.classes, (2, tokens), generator=seeded)
    decoder = Decoder(module, layer, alone=not model.batching)
    texts = ids if model.batching else ids[:1]
    if _steps_agree(decoder, texts.to(decoder.device)):
        return decoder
    return Decoder(module, layer, cached=False, alone=True)


@torch.inference_mode()
def _steps_agree(decoder: Decoder, ids: Tensor) -> bool:
    """Return whether steps from the cache give the logits that each text gives when it is read alone and whole."""
    first = max(1, ids.shape[1] // 2)
    tolerance = (
        EXACT if decoder.module.dtype in (torch.float32, torch.float64) else HALF
    )
    try:
        steps = [
            decoder.prefill(ids[:, :first]),
            *map(decoder.step, ids[:, first:].unbind(1)),
        ]
    # a model may raise anything where it cannot continue from its own cache
    except Exception:
        return False
    whole = Decoder(decoder.module, decoder.layer, cached=False)
    for row, text in enumerate(ids):
        for step, logits in enumerate(steps):
            wanted = whole.prefill(text[None, : first + step])[0]
            if bool((logits[row] - wanted).norm() > tolerance * wanted.norm()):
                return False
    return True


def open_language_model(
    model: Any, processor: Any, options: LoadOptions, override: Override
) -> LayeredModel:
    """Load a model and find its layers; raises `LayerscopeError` for one that does not continue a text."""
    return language_model(load(model, options, processor), override)


def language_model(loaded: Loaded, override: Override) -> LayeredModel:
    """Find the layers of a loaded model; raises `LayerscopeError` for one that does not continue a text."""
    module: Any = loaded.module
    refusal = f"{type(module).__name__} is not a language model that continues a text: give one such as GPT-2 or Llama"
    two_texts = getattr(getattr(module, "config", None), "is_encoder_decoder", False)
    if (
        modality_of(module) != "text"
        or two_texts
        or not hasattr(module, "prepare_inputs_for_generation")
    ):
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
    depth = model.stack.depth
    return checked_layers(
        range(1, depth + 1) if layers == "all" else layers or [depth], depth
    )


def token_ids(model: LayeredModel, texts: Sequence[str], what: str) -> list[list[int]]:
    """Return the token ids of texts, uncut, a text without any as the tokenizer's token that begins one.

    Raises `LayerscopeError` for anything but a list of texts, and for a text without a token.
    """
    if (
        isinstance(texts, str)
        or not len(texts)
        or not all(isinstance(text, str) for text in texts)
    ):
        raise LayerscopeError(
            f"{what}s are a list of texts: give one or more strings in a list"
        )
    encoder: Any = model.encoder
    begin = getattr(encoder.tokenizer, "bos_token_id", None)
    rows = [
        row or ([] if begin is None else [begin])
        for row in encoder.ids(texts, whole=True)
    ]
    if [] in rows:
        raise LayerscopeError(
            f"{what} {rows.index([])} ({texts[rows.index([])]!r}) has no token, and the tokenizer has none that begins "
            "a text: give at least one word"
        )
    return rows


def check_room(
    model: LayeredModel, rows: Iterable[Sequence[int]], what: str, new: int = 0
) -> None:
    """Raise for a text that leaves no room for `new` tokens: one cut short would look as if the model had ended it."""
    assert model.max_length is not None
    for i, row in enumerate(rows):
        room = model.max_length - len(row)
        if room < new:
            mend = f", or try `max_new_tokens={room}`" if room > 0 else ""
            long = f"{what} {i} has {len(row)} tokens" + (
                f", and {new} new ones follow" if new else ""
            )
            raise LayerscopeError(
                f"{long}: the model has {model.max_length} positions, shorten it{mend}"
            )
