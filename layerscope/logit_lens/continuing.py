"""A prompt continued greedily by the model itself."""

from __future__ import annotations

from typing import Any

import torch

from layerscope.models import LayeredModel
from layerscope.models.forward import Inputs, forward
from layerscope.models.lens import logits_of


@torch.inference_mode()
def continued(model: LayeredModel, inputs: Inputs, tokens: int) -> list[int]:
    """Return at most so many new tokens, fewer where the text ends: by the model's own `generate`, or one by one.

    `inputs` is one prompt on the model's device; an encoder-decoder begins with its start token.
    """
    module: Any = model.module
    named = {name: inputs.named[name] for name in ("input_ids", "attention_mask")}
    told = getattr(module, "generation_config", None)
    if told is None or not hasattr(module, "generate"):
        return _one_by_one(module, named["input_ids"], tokens)
    module.generation_config = _greedy(told, tokens)  # an argument's gaps would be filled from the model's own
    try:
        out = module.generate(**named)
    finally:
        module.generation_config = told
    read = 1 if "decoder_input_ids" in inputs.named else named["input_ids"].shape[1]
    return [int(token) for token in out[0, read:]]


def _greedy(told: Any, tokens: int) -> Any:
    """Return the settings of a text of the likeliest tokens: the model's own may forbid, force or punish some."""
    from transformers import GenerationConfig

    return GenerationConfig(
        do_sample=False,
        num_beams=1,
        max_new_tokens=tokens,
        bos_token_id=told.bos_token_id,
        eos_token_id=told.eos_token_id,
        decoder_start_token_id=told.decoder_start_token_id,
        pad_token_id=0 if told.pad_token_id is None else told.pad_token_id,  # one text: nothing is padded
    )


def _one_by_one(module: Any, ids: torch.Tensor, tokens: int) -> list[int]:
    end = getattr(getattr(module, "config", None), "eos_token_id", None)
    new: list[int] = []
    while len(new) < tokens and (not new or new[-1] != end):
        logits = logits_of(forward(module, Inputs({"input_ids": ids, "attention_mask": torch.ones_like(ids)})))
        assert logits is not None
        new.append(int(logits[0, -1].argmax()))
        ids = torch.cat([ids, ids.new_tensor([new[-1:]])], 1)
    return new
