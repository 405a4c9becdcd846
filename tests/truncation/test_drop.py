"""Every architecture without some blocks, loaded by transformers alone, against the full model that skips them."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers as hf
from truncation.droppable import IDS, MODELS, bypass, logits, saved

import layerscope


@pytest.mark.parametrize("name", MODELS)
def test_logits_are_those_of_the_full_model_with_the_blocks_bypassed(
    name: str, tmp_path: Path
) -> None:
    make, blocks = MODELS[name]
    drop = [2, 3] if name != "gemma3" else [3, 5]
    out = layerscope.truncate(
        saved(make(), tmp_path / "full"), drop=drop, out=tmp_path / "cut", progress=False
    )
    model = make()
    whole = logits(model)
    bypass(model, blocks, drop)
    causal = "CausalLM" in type(model).__name__ or "LMHead" in type(model).__name__
    auto = hf.AutoModelForCausalLM if causal else hf.AutoModelForMaskedLM
    cut, report = auto.from_pretrained(out, output_loading_info=True)
    assert not report["missing_keys"] and not report["unexpected_keys"] and type(cut) is type(model)
    torch.testing.assert_close(logits(cut.eval()), logits(model), rtol=1e-5, atol=1e-5)
    assert not torch.allclose(logits(model), whole, atol=1e-3), "the bypass does something"
    if causal:
        how = {"max_new_tokens": 6, "do_sample": False, "pad_token_id": 0, "eos_token_id": None}
        once, again = (cut.generate(IDS, use_cache=cached, **how) for cached in (True, False))
        assert torch.equal(once, again)


def test_a_process_of_its_own_loads_it_by_auto_alone(tmp_path: Path) -> None:
    for name in ("gemma3", "bamba"):
        make, blocks = MODELS[name]
        layerscope.truncate(
            saved(make(), tmp_path / name),
            drop=[2, 3],
            out=tmp_path / f"{name}-cut",
            progress=False,
        )
        model = make()
        bypass(model, blocks, [2, 3])
        np.save(tmp_path / f"{name}.npy", logits(model).numpy())
    code = """
import sys, numpy, torch, transformers
from pathlib import Path
for name in ("gemma3", "bamba"):
    model = transformers.AutoModelForCausalLM.from_pretrained(Path(sys.argv[1]) / f"{name}-cut").eval()
    ids = torch.randint(3, 90, (1, 14), generator=torch.Generator().manual_seed(1))
    found = model(input_ids=ids, use_cache=False).logits.detach().numpy()
    numpy.testing.assert_allclose(found, numpy.load(Path(sys.argv[1]) / f"{name}.npy"), rtol=1e-5, atol=1e-5)
assert "layerscope" not in sys.modules
"""
    subprocess.run([sys.executable, "-W", "ignore", "-c", code, str(tmp_path)], check=True)


def test_every_list_of_the_config_names_the_blocks_that_are_left(tmp_path: Path) -> None:
    def config(name: str, drop: list[int]) -> dict[str, object]:
        out = tmp_path / f"{name}-cut"
        layerscope.truncate(
            saved(MODELS[name][0](), tmp_path / name), drop=drop, out=out, progress=False
        )
        return json.loads((out / "config.json").read_text())

    kinds = MODELS["gemma3"][0]().config.layer_types
    assert config("gemma3", [3, 5])["layer_types"] == [kinds[i] for i in (0, 1, 3, 5)]
    found = config(
        "qwen2_moe", [2, 3]
    )  # experts in blocks 2, 4, 6 but 4, of which 2 and 4 alone had others before
    assert (found["decoder_sparse_step"], found["mlp_only_layers"]) == (1, [0, 1, 2])
    assert config("gpt_neo", [2, 3])["attention_types"] == [
        [["global", "local", "global", "local"], 1]
    ]
    assert config("smollm3", [2, 3])["no_rope_layers"] == [1, 1, 1, 0]
