"""Token ids are data like any other: no tokenizer is needed for them, nor to look at a model or to cut it."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import tiny
import torch
import transformers as hf
from models.zoo import refused
from tiny import one_thread
from torch import Tensor, nn

import layerscope
from layerscope.show.terminal import show

__all__ = ["one_thread"]
TOKENIZER = tiny.tokenizer(special=False)
OPTIONS = {"progress": False, "samples": "all", "views": 0}
IDS = [TOKENIZER(text)["input_ids"] for text in tiny.texts(24, longest=12)]


class Tokens(nn.Module):
    """An embedding, blocks and a head, whose input has a name of its own."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.embed, self.head = nn.Embedding(94, 16), nn.Linear(16, 94)
        self.blocks = nn.ModuleList(tiny.Block(16) for _ in range(3))

    def forward(self, x: Tensor) -> Tensor:
        x = self.embed(x)
        for block in self.blocks:
            x = block(x)
        return self.head(x)


def test_ids_give_what_their_texts_give(tmp_path: Path) -> None:
    model = tiny.llama()
    texts = layerscope.profile(
        model, tiny.texts(24, longest=12), processor=TOKENIZER, out=tmp_path / "t", **OPTIONS
    )
    ragged = layerscope.profile(model, IDS, out=tmp_path / "i", **OPTIONS)
    pd.testing.assert_frame_equal(texts.table(), ragged.table(), check_exact=True)
    padded = TOKENIZER(
        tiny.texts(24, longest=12), padding=True, return_tensors="np", padding_side="left"
    )
    masked = layerscope.profile(model, dict(padded), out=tmp_path / "m", **OPTIONS)
    pd.testing.assert_frame_equal(texts.table(), masked.table(), check_exact=True)
    assert ragged.info["model"]["language_model"] is True
    with refused(
        match=r"token id 94 is not in the vocabulary of this model: it has ids 0\.\.93",
    ):
        layerscope.profile(model, np.full((9, 4), 94), out=tmp_path / "bad", **OPTIONS)


def test_a_plain_module_of_ids(tmp_path: Path) -> None:
    model, ids = Tokens(), torch.randint(94, (20, 7), generator=torch.Generator().manual_seed(0))
    run = layerscope.profile(model, ids, out=tmp_path / "run", progress=False)
    assert run.depth == 3 and {"perplexity", "infonce"} <= set(run.table()["metric"])
    with torch.no_grad():
        state = model.embed(ids)
        for block in model.blocks[:2]:
            state = block(state)
        loss = nn.functional.cross_entropy(model(ids)[:, :-1].flatten(0, 1), ids[:, 1:].flatten())
    assert np.allclose(run.pooled(2, "raw", "mean"), state.mean(1), atol=1e-6)
    whole = layerscope.profile(
        model, ids, out=tmp_path / "whole", metrics="perplexity", lens_tokens=None, progress=False
    )
    found = whole.table().query("metric == 'perplexity' and layer == 3")["value"]
    assert np.allclose(found, loss.exp(), rtol=1e-5)
    reading = layerscope.lens(model, data=ids, samples=2, progress=False)
    assert reading.kind == "next"


def test_a_saved_model_without_a_tokenizer(tmp_path: Path) -> None:
    tiny.gpt2().save_pretrained(tmp_path / "model")
    np.save(tmp_path / "ids.npy", np.random.default_rng(0).integers(94, size=(16, 9)))
    (found,) = layerscope.inspect(tmp_path / "model")
    assert (found.depth, found.causal) == (3, True)
    run = layerscope.profile(
        tmp_path / "model", tmp_path / "ids.npy", out=tmp_path / "run", progress=False
    )
    assert run.depth == 3 and run.info["data"]["name"] == "ids"
    cut = layerscope.truncate(tmp_path / "model", 2, tmp_path / "cut", progress=False)
    assert hf.AutoModelForCausalLM.from_pretrained(cut).config.n_layer == 2
    with refused(match="has no tokenizer that can be loaded.*, or give token ids as data"):
        layerscope.profile(tmp_path / "model", ["a text"], out=tmp_path / "none", progress=False)


def test_exits_of_a_classifier_of_ids(tmp_path: Path) -> None:
    ids = np.random.default_rng(0).integers(4, 94, size=(40, 8))
    report = layerscope.exits(
        tiny.classifier(),
        (ids, [i % 3 for i in range(40)]),
        max_disagreement=0.5,
        out=tmp_path / "e",
        progress=False,
    )
    assert report.samples == 40


def test_decoders_are_causal_and_whisper_takes_seconds(capsys: pytest.CaptureFixture[str]) -> None:
    small = {
        "d_model": 32,
        "num_layers": 2,
        "num_heads": 4,
        "d_kv": 8,
        "d_ff": 48,
        "vocab_size": 94,
    }
    t5 = hf.T5ForConditionalGeneration(hf.T5Config(**small, decoder_start_token_id=0)).eval()
    found = layerscope.inspect(t5, processor=tiny.tokenizer(special=True))
    assert [(part.part, part.causal) for part in found] == [("encoder", False), ("decoder", True)]
    sizes = dict.fromkeys(("encoder_layers", "decoder_layers"), 2) | {
        "d_model": 16,
        "vocab_size": 60,
    }
    sizes |= dict.fromkeys(("encoder_attention_heads", "decoder_attention_heads"), 2)
    sizes |= dict.fromkeys(("encoder_ffn_dim", "decoder_ffn_dim"), 24)
    special = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 1}
    whisper = hf.WhisperForConditionalGeneration(hf.WhisperConfig(**sizes, **special)).eval()
    found = layerscope.inspect(whisper, processor=hf.WhisperFeatureExtractor())
    assert [(part.part, part.causal) for part in found] == [("encoder", False), ("decoder", True)]
    show(found[0].document())
    assert "audio, 30 seconds at most" in capsys.readouterr().out
