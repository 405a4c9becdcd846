"""Every architecture without some blocks, loaded by transformers alone, against the full model that skips them."""

import json

import pytest
import torch
import transformers as hf
from models.tokenizer import saved
from truncation.cutting import close, cut, loaded
from truncation.droppable import IDS, MODELS, bypass, logits
from typed import refused

BY_INDEX = ("deepseek_v3", "recurrent_gemma")
"""Models that compute what a block is from its index, which no list in the config could change."""


@pytest.mark.parametrize("name", MODELS)
def test_logits_are_those_of_the_full_model_with_the_blocks_bypassed(name, tmp_path):
    make, blocks = MODELS[name]
    if name in BY_INDEX:
        with refused("its blocks differ in their weights"):
            cut(saved(make(), tmp_path / "full"), drop=[2, 3], out=tmp_path / "cut")
        return
    drop = [2, 3] if name != "gemma3" else [3, 5]
    out = cut(saved(make(), tmp_path / "full"), drop=drop, out=tmp_path / "cut")
    model = make()
    whole = logits(model)
    bypass(model, blocks, drop)
    causal = "CausalLM" in type(model).__name__ or "LMHead" in type(model).__name__
    short = loaded(hf.AutoModelForCausalLM if causal else hf.AutoModelForMaskedLM, out)
    assert type(short) is type(model)
    close(logits(short), logits(model))
    assert not torch.allclose(logits(model), whole, atol=1e-3), (
        "the bypass does something"
    )
    if causal:
        how = {
            "max_new_tokens": 6,
            "do_sample": False,
            "pad_token_id": 0,
            "eos_token_id": None,
        }
        once, again = (
            short.generate(IDS, use_cache=cached, **how) for cached in (True, False)
        )
        assert torch.equal(once, again)


KINDS = MODELS["gemma3"][0]().config.layer_types
LISTS = [
    ("gemma3", [3, 5], {"layer_types": [KINDS[i] for i in (0, 1, 3, 5)]}),
    ("smollm3", [2, 3], {"no_rope_layers": [1, 1, 1, 0]}),
]


@pytest.mark.parametrize("name, drop, wanted", LISTS)
def test_every_list_of_the_config_names_the_blocks_that_are_left(
    name, drop, wanted, tmp_path
):
    out = cut(
        saved(MODELS[name][0](), tmp_path / name), drop=drop, out=tmp_path / "cut"
    )
    assert wanted.items() <= json.loads((out / "config.json").read_text()).items()
