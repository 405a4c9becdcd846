"""Models that the verbs write, pushed to a hub and loaded from it without layerscope; their cards, read by tools."""

import learning
import tiny
import transformers as hf
from hub_server import hub
from huggingface_hub import ModelCard
from trainers import same, weights
from typed import refused

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


def with_terms(folder):
    (folder / "README.md").write_text(MAKERS)
    (folder / "LICENSE").write_text("MIT, in full")
    return folder


def card_of(folder):
    card = ModelCard.load(folder / "README.md")
    data = card.data
    terms = data.license, data.language, data.base_model, data.base_model_relation
    assert terms == ("mit", "en", "someone/else", "finetune")
    assert {"layerscope", "bert"} <= set(data.tags)
    assert (folder / "LICENSE").read_text() == "MIT, in full"
    assert "path/to/this/folder" in card.text
    return card


def test_a_trained_model_and_what_is_cut_from_it(hub, tmp_path):
    """The licence goes along, the scores are those that were measured, and transformers loads it by its name."""
    model = with_terms(learning.encoder(tmp_path / "model"))
    data = learning.table(tmp_path / "texts.csv")
    how = {"max_steps": 2, "batch_size": 4, "max_length": 16, "device": "cpu"}
    out = layerscope.train(model, data, out=tmp_path / "out", **how)
    scores = layerscope.open_run(out / "history").metric("layer_accuracy")
    cut = layerscope.truncate(out, 1, tmp_path / "cut")
    assert f"{100 * scores.loc[3]:.1f}" in (out / "README.md").read_text()
    for folder, name in ((out, "user/whole"), (cut, "user/cut")):
        card = card_of(folder).data
        assert card.pipeline_tag == "text-classification"
        assert card.library_name == "transformers"
        assert layerscope.push_to_hub(folder, name) == name
        files = hub.files(name, "model")
        ours = ("history", "checkpoints", ".layerscope")
        assert not any(file.startswith(ours) for file in files)
        text = ModelCard(files["README.md"].decode()).text
        assert f'from_pretrained("{name}")' in text
        assert "path/to/this/folder" not in text
        load = hf.AutoModelForTokenClassification.from_pretrained
        assert same(weights(load(folder)), weights(load(name)))


def test_an_exit_model(hub, tmp_path):
    plain = with_terms(tiny.saved(tiny.classifier(), tmp_path / "plain"))
    model = ExitModel(plain, exits=[1, 2], threshold=0.5)
    folder = model.save_pretrained(tmp_path / "exits")
    card = card_of(folder)
    assert card.data.pipeline_tag == "text-classification"
    assert "leave at layer 1, 2 of" in card.text
    layerscope.push_to_hub(folder, "user/exits")
    text = hub.files("user/exits", "model")["README.md"].decode()
    assert 'ExitModel.from_pretrained("user/exits")' in text
    pulled = ExitModel.from_pretrained("user/exits")
    assert (pulled.exits, pulled.threshold) == ((1, 2), 0.5)


def test_a_folder_without_a_model_is_refused_before_the_hub_is_asked(hub, tmp_path):
    line = "holds no model: give its folder; a result has its own push_to_hub"
    with refused(line):
        layerscope.push_to_hub(tmp_path, "user/nothing")
    assert not hub.repos
