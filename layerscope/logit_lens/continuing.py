"""A prompt continued greedily by the model itself."""

from __future__ import annotations

from typing import Any

import torch

from layerscope.models import LayeredModel
from layerscope.models.forward import Inputs, forward
from layerscope.models.lens import logits_of


@torch.inference_mode()
def continued(model: LayeredModel, inputs: Inputs, tokens: int) -> list[int]:
    """Return up to this many new tokens, fewer where the text ends: by the model's own `generate`, or one by one.

    `inputs` is one prompt on the model's device; an encoder-decoder begins with its start token.
    """
    module: Any = model.module
    named = {name: inputs.named[name] for name in ("input_ids", "attention_mask")}
    ids, own = named["input_ids"], getattr(module, "generation_config", None)
    if own is not None and hasattr(module, "generate"):
        from transformers import GenerationConfig

        # the model's own settings may forbid, force or punish tokens; as an argument, gaps would be filled from them
        module.generation_config = GenerationConfig(
            do_sample=False,
            num_beams=1,
            max_new_tokens=tokens,
            bos_token_id=own.bos_token_id,
            eos_token_id=own.eos_token_id,
            decoder_start_token_id=own.decoder_start_token_id,
            pad_token_id=0 if own.pad_token_id is None else own.pad_token_id,  # one text: nothing is padded
        )
        try:
            out = module.generate(**named)
        finally:
            module.generation_config = own
        return [int(token) for token in out[0, 1 if "decoder_input_ids" in inputs.named else ids.shape[1] :]]
    end = getattr(getattr(module, "config", None), "eos_token_id", None)
    new: list[int] = []
    while len(new) < tokens and (not new or new[-1] != end):
        logits = logits_of(forward(module, Inputs({"input_ids": ids, "attention_mask": torch.ones_like(ids)})))
        assert logits is not None
        new.append(int(logits[0, -1].argmax()))
        ids = torch.cat([ids, ids.new_tensor([new[-1:]])], 1)
    return new
