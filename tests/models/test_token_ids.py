"""Token ids are data like any other: no tokenizer is needed for them, nor to look at a model or to cut it."""

import numpy as np
import pandas as pd
import tiny
import torch
import transformers as hf
from torch import nn
from typed import refused

import layerscope

TOKENIZER = tiny.tokenizer(special=False)
OPTIONS = {"samples": "all", "views": 0}
IDS = [TOKENIZER(text)["input_ids"] for text in tiny.texts(24, longest=12)]


class Tokens(nn.Module):
    """An embedding, blocks and a head, whose input has a name of its own."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.embed, self.head = nn.Embedding(94, 16), nn.Linear(16, 94)
        self.blocks = nn.ModuleList(tiny.Block(16) for _ in range(3))

    def forward(self, x):
        x = self.embed(x)
        for block in self.blocks:
            x = block(x)
        return self.head(x)


def test_ids_give_what_their_texts_give(tmp_path):
    model = tiny.llama()
    texts = layerscope.profile(
        model,
        tiny.texts(24, longest=12),
        processor=TOKENIZER,
        out=tmp_path / "t",
        **OPTIONS,
    )
    ragged = layerscope.profile(model, IDS, out=tmp_path / "i", **OPTIONS)
    pd.testing.assert_frame_equal(texts.table(), ragged.table(), check_exact=True)
    assert ragged.info["model"]["language_model"] is True
    with refused(
        r"token id 94 is not in the vocabulary of this model: it has ids 0\.\.93",
    ):
        layerscope.profile(model, np.full((9, 4), 94), out=tmp_path / "bad", **OPTIONS)


def test_a_plain_module_of_ids(tmp_path):
    model, ids = (
        Tokens(),
        torch.randint(94, (20, 7), generator=torch.Generator().manual_seed(0)),
    )
    run = layerscope.profile(model, ids, out=tmp_path / "run")
    assert run.depth == 3 and {"perplexity", "infonce"} <= set(run.table()["metric"])
    with torch.no_grad():
        state = model.embed(ids)
        for block in model.blocks[:2]:
            state = block(state)
    assert np.allclose(run.pooled(2, "raw", "mean"), state.mean(1), atol=1e-6)


def test_a_saved_model_without_a_tokenizer(tmp_path):
    tiny.gpt2().save_pretrained(tmp_path / "model")
    np.save(tmp_path / "ids.npy", np.random.default_rng(0).integers(94, size=(16, 9)))
    (found,) = layerscope.inspect(tmp_path / "model")
    assert (found.depth, found.causal) == (3, True)
    run = layerscope.profile(
        tmp_path / "model", tmp_path / "ids.npy", out=tmp_path / "run"
    )
    assert run.depth == 3 and run.info["data"]["name"] == "ids"
    cut = layerscope.truncate(tmp_path / "model", 2, tmp_path / "cut")
    assert hf.AutoModelForCausalLM.from_pretrained(cut).config.n_layer == 2
    with refused("has no tokenizer that can be loaded.*, or give token ids as data"):
        layerscope.profile(tmp_path / "model", ["a text"], out=tmp_path / "none")
