"""What self-speculation cannot keep to, and models and layers that cannot draft: one line each."""

import pytest
import torch
from generation import talkers
from generation.drafting import drafting, made, prompts
from generation.talkers import family, loud
from models import zoo
from models.zoo import D
from torch import nn
from typed import refused

from layerscope.generation import SelfSpeculation

REFUSALS = [
    ({"num_beams": 2}, "num_beams=2"),
    ({"output_scores": True, "return_dict_in_generate": True}, "output_scores=True"),
    ({"use_cache": False}, "use_cache=False"),
    ({"cache_implementation": "static"}, "StaticCache"),
    ({"guidance_scale": 2.0}, "guidance_scale=2.0"),
    ({"attention_mask": torch.tensor([[1] * 11 + [0]])}, "padded at the right"),
    ({"position_ids": torch.arange(3, 15)[None]}, "`position_ids` of your own"),
    ({"inputs_embeds": torch.zeros(1, 12, D)}, "`inputs_embeds`"),
    ({"assistant_model": zoo.llama()}, "`assistant_model`"),
    ({"prompt_lookup_num_tokens": 3}, "`prompt_lookup_num_tokens=3`"),
    ({"assistant_early_exit": 1}, "`assistant_early_exit=1`"),
    ({"dola_layers": "high"}, "`dola_layers=high`"),
    ({"prefill_chunk_size": 4}, "`prefill_chunk_size=4`"),
]


@pytest.mark.parametrize("options, named", REFUSALS)
def test_what_cannot_be_kept_to_is_named(options, named):
    model = made(zoo.llama)
    with refused(named):
        model.generate(
            **prompts(1) | options,
            max_new_tokens=4,
            custom_generate=SelfSpeculation(model),
        )


@pytest.mark.parametrize("layer", [zoo.L, 2.5, "foo"])
def test_layers_that_cannot_draft(layer):
    with refused(r"draft_layer is .*: give a whole number from 1 to 2, or auto"):
        SelfSpeculation(zoo.llama(), layer)


recurrent_gemma = family(
    "RecurrentGemma",
    lru_width=D,
    attention_window_size=8,
    block_types=["recurrent", "recurrent", "attention"],
)
REFUSED = [
    (family("Rwkv"), "RwkvForCausalLM, which has no cache that can be cut back"),
    (zoo.mamba, "MambaForCausalLM, which has no cache that can be cut back"),
    (talkers.bamba, "BambaForCausalLM, whose caches cannot be cut back"),
    (recurrent_gemma, "RecurrentGemmaForCausalLM, whose caches cannot be cut back"),
]


@pytest.mark.parametrize("make, why", REFUSED)
def test_models_that_cannot_draft(make, why):
    line = f"^self-speculation and exits for next tokens do not work with {why}"
    with refused(f"{line}.*: decode plainly"):
        SelfSpeculation(loud(make()), 2)


@pytest.mark.parametrize("model", ["gpt2", nn.Linear(2, 2)])
def test_what_is_no_loaded_language_model(model):
    with refused(
        "takes a loaded language model of transformers, and this is .*: load it"
    ):
        SelfSpeculation(model)


def test_a_model_whose_attention_sees_padding_cannot_draft():
    """Closing up columns leaves padding at the left of a text."""
    model = made(zoo.llama)
    forward = type(model).forward

    def blind(self, input_ids, attention_mask=None, **how):
        return forward(self, input_ids, **how)

    model.forward = blind.__get__(model)
    with refused("which keeps something of tokens that were cut back"):
        drafting(model)
