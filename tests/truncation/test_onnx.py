"""One ONNX file, run by onnxruntime alone on batches and lengths that the export never saw."""

import numpy as np
import pytest
import tiny
import torch
import transformers as hf
from models import walks, zoo
from models.tokenizer import word_tokenizer
from truncation.cutting import TEXTS, close, cut, run_onnx, serve, unit
from typed import refused

from layerscope.truncation.card import filled

onnxruntime = pytest.importorskip("onnxruntime")
pytest.importorskip("onnxscript")


def session(folder):
    return onnxruntime.InferenceSession(str(folder / "model.onnx"))


def run(folder, output, texts):
    """Run the file on texts as its own tokenizer reads them."""
    tokenizer = hf.AutoTokenizer.from_pretrained(folder)
    batch = tokenizer(texts, padding=True, truncation=True, return_tensors="np")
    return run_onnx(folder, output, **batch)


def used(folder):
    """Run what the card shows, and return its names."""
    code = (folder / "README.md").read_text().split("```python\n")[1].split("```")[0]
    names = {}
    exec(code.replace("path/to/this/folder", str(folder)), names)
    return names


@torch.no_grad()
def test_a_language_model_yields_normed_states(tmp_path):
    model = zoo.llama().model
    out = cut(model, 2, tmp_path / "cut", "onnx", processor=word_tokenizer())
    for length in (1, 2, 7, 19):
        ids = torch.arange(3, 3 + length)[None]
        mask = torch.ones_like(ids)
        states, _ = walks.recorded(model, "norm", input_ids=ids)
        found = run_onnx(out, "last_hidden_state", input_ids=ids, attention_mask=mask)
        close(found, model.norm(states[2]), near=1e-4)
    assert "after the final norm" in (out / "README.md").read_text()


@torch.no_grad()
def test_a_classifier_pads_and_keeps_its_head(tmp_path):
    model, texts = tiny.classifier(), tiny.texts(7)
    model.config.id2label = {0: "sport", 1: "politics", 2: "science"}
    folder = tiny.saved(model, tmp_path / "full")
    out = cut(folder, 2, tmp_path / "cut", "onnx")
    assert not list(out.glob("*.safetensors"))
    tokenizer, file = hf.AutoTokenizer.from_pretrained(out), session(out)
    assert tokenizer.model_max_length == 64
    assert {entry.name for entry in file.get_inputs()} == {*tokenizer.model_input_names}
    alone = []
    for text in texts:
        read = model.bert(
            **tokenizer(text, return_tensors="pt"), output_hidden_states=True
        )
        alone.append(model.classifier(model.bert.pooler(read.hidden_states[2])))
    close(run(out, "logits", texts), torch.cat(alone), near=1e-4)
    example = used(out)
    names = ["sport", "politics", "science"]
    assert example["best"] == [names[row.argmax()] for row in example["logits"]]
    assert "not comparable" not in (out / "README.md").read_text()


def test_a_sentence_transformer_gives_sentences_of_as_many_dimensions(
    embedder, tmp_path
):
    served = serve(cut(embedder, 2, tmp_path / "folder"))
    out = cut(embedder, 2, tmp_path / "cut", "onnx", dim=12)
    wanted = unit(served.encode(TEXTS)[:, :12])
    close(run(out, "sentence_embedding", TEXTS), wanted, near=1e-4)
    axes = {tuple(entry.shape) for entry in session(out).get_inputs()}
    axes |= {tuple(entry.shape) for entry in session(out).get_outputs()}
    assert axes == {("batch", "sequence"), ("batch", "sequence", 32), ("batch", 12)}
    wanted = served.encode(["a text", "another, which is longer"])
    close(used(out)["vectors"], unit(wanted[:, :12]), near=1e-4)


@pytest.mark.parametrize("pooling", ["mean", "cls", "last"])
def test_the_card_shows_how_states_become_vectors(pooling):
    states = np.random.default_rng(0).normal(size=(3, 4, 5))
    mask = np.array([[1, 1, 1, 1], [1, 1, 0, 0], [0, 1, 1, 0]])
    about = {"format": "onnx", "modality": "text", "alone": False}
    code = filled("use.md", **about, output="last_hidden_state", pooled_by=pooling)
    *_, after = code.removesuffix("```\n").split("[0]\n")
    names = {"np": np, "last_hidden_state": states, "batch": {"attention_mask": mask}}
    exec(after, names)
    rows = [state[real == 1] for state, real in zip(states, mask, strict=True)]
    wanted = {"mean": [row.mean(0) for row in rows], "last": [row[-1] for row in rows]}
    np.testing.assert_allclose(names["vectors"], wanted.get(pooling, states[:, 0]))


EXPORTS = [
    (zoo.mamba, {}, r"cannot be exported to ONNX \(torch.onnx: .*`format='transformers'`"),
    (zoo.t5, {"part": "decoder"}, "alternates encoder and decoder, which one ONNX file cannot"),
]  # fmt: skip


@pytest.mark.parametrize("make, part, why", EXPORTS)
def test_what_cannot_be_exported_is_refused_and_leaves_nothing(
    make, part, why, tmp_path
):
    with refused(why):
        cut(make(), 1, tmp_path / "cut", "onnx", processor=word_tokenizer(), **part)
    assert list(tmp_path.iterdir()) == []
