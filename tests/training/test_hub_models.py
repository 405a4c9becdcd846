"""Models that the verbs write, pushed to a hub and loaded from it without layerscope; their cards, read by tools."""

from pathlib import Path

import learning
import pytest
import tiny
import torch
import transformers as hf
from hub_server import hub
from huggingface_hub import ModelCard

import layerscope
from layerscope.early_exit import ExitModel

__all__ = ["hub"]
MAKERS = """---
license: mit
language: en
datasets: mine/texts
base_model: someone/else
tags: [bert]
---
# Mine
"""


def card_of(folder: Path) -> ModelCard:
    card = ModelCard.load(folder / "README.md")
    data = card.data
    assert (data.license, data.language, data.base_model) == ("mit", "en", "someone/else")
    assert data.base_model_relation == "finetune" and {"layerscope", "bert"} <= set(data.tags)
    assert (folder / "LICENSE").read_text() == "MIT, in full" and "path/to/this/folder" in card.text
    return card


def made_by(make, folder: Path) -> Path:
    made = make(folder)
    (made / "README.md").write_text(MAKERS)
    (made / "LICENSE").write_text("MIT, in full")
    return made


def test_a_trained_model_and_what_is_cut_from_it(hub, tmp_path: Path):
    """The licence goes along, the scores are those that were measured, and transformers loads it by its name."""
    model, data = (
        made_by(learning.encoder, tmp_path / "model"),
        learning.table(tmp_path / "texts.csv"),
    )
    options = {
        "max_steps": 2,
        "batch_size": 4,
        "max_length": 16,
        "device": "cpu",
        "progress": False,
    }
    out = layerscope.train(model, data, out=tmp_path / "out", **options)
    card = card_of(out)
    (result,) = card.data.eval_results
    scored = layerscope.open_run(out / "history").metric("layer_accuracy")
    assert result.metric_type == "accuracy" and result.metric_value == pytest.approx(
        scored.iloc[-1], abs=1e-4
    )
    assert (card.data.pipeline_tag, card.data.library_name) == (
        "text-classification",
        "transformers",
    )
    cut = layerscope.truncate(out, 1, tmp_path / "cut", progress=False)
    found = card_of(cut).data
    assert found.eval_results[0].metric_value == pytest.approx(scored.loc[1], abs=1e-4)
    assert found.pipeline_tag == "text-classification"
    for folder, name in ((out, "user/whole"), (cut, "user/cut")):
        assert layerscope.push_to_hub(folder, name) == name
        files = hub.files(name, "model")
        assert not any(file.startswith(("history", "checkpoints", ".layerscope")) for file in files)
        pushed = ModelCard(files["README.md"].decode())
        assert (
            f'from_pretrained("{name}")' in pushed.text and "path/to/this/folder" not in pushed.text
        )
        here, there = (
            hf.AutoModelForTokenClassification.from_pretrained(source) for source in (folder, name)
        )
        for key, tensor in here.state_dict().items():
            assert torch.equal(tensor, there.state_dict()[key]), key


def test_an_exit_model(hub, tmp_path: Path):
    plain = made_by(
        lambda folder: tiny.saved(tiny.classifier(), folder, special=True), tmp_path / "plain"
    )
    folder = ExitModel(plain, exits=[1, 2], threshold=0.5).save_pretrained(tmp_path / "exits")
    card = card_of(folder)
    assert card.data.pipeline_tag == "text-classification" and "leave at layer 1, 2 of" in card.text
    layerscope.push_to_hub(folder, "user/exits")
    assert (
        'ExitModel.from_pretrained("user/exits")'
        in hub.files("user/exits", "model")["README.md"].decode()
    )
    found = ExitModel.from_pretrained("user/exits")
    assert (found.exits, found.threshold) == ((1, 2), 0.5)


def test_a_folder_without_a_model_is_refused_before_the_hub_is_asked(hub, tmp_path: Path):
    with pytest.raises(
        layerscope.LayerscopeError,
        match="holds no model: give its folder; a result has its own push_to_hub",
    ):
        layerscope.push_to_hub(tmp_path, "user/nothing")
    assert not hub.repos
