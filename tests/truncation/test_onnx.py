"""One ONNX file, run by onnxruntime alone on batches and lengths that the export never saw."""

import json
from pathlib import Path

import numpy as np
import pytest
import tiny
import torch
import transformers as hf
from models import walks, zoo
from models.tokenizer import word_tokenizer
from models.zoo import TEXT

import layerscope
from layerscope import LayerscopeError
from layerscope.truncation.card import filled

onnxruntime = pytest.importorskip("onnxruntime")
pytest.importorskip("onnxscript")


def session(folder: Path) -> object:
    return onnxruntime.InferenceSession(
        str(folder / "model.onnx"), providers=["CPUExecutionProvider"]
    )


def close(one: object, two: torch.Tensor) -> None:
    np.testing.assert_allclose(one, two.numpy(), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("site", ["normed", "raw"])
@torch.no_grad()
def test_a_language_model_yields_either_site(site: str, tmp_path: Path) -> None:
    model = next(case for case in TEXT if case.name == "llama").make().model
    out = layerscope.truncate(
        model, 2, tmp_path / "cut", "onnx", site=site, processor=word_tokenizer(), progress=False
    )
    run, norm = session(out), model.norm if site == "normed" else torch.nn.Identity()
    for length in (1, 2, 7, 19):
        ids = torch.arange(3, 3 + length)[None]
        given = {"input_ids": ids.numpy(), "attention_mask": np.ones((1, length), dtype=np.int64)}
        states, _ = walks.llama(type("Holder", (), {"model": model}), ids)
        close(run.run(["last_hidden_state"], given)[0], norm(states[2]))
    assert (
        f"{'after' if site == 'normed' else 'before'} the final norm"
        in (out / "README.md").read_text()
    )


@torch.no_grad()
def test_a_classifier_pads_and_keeps_its_head(tmp_path: Path) -> None:
    model, texts = tiny.classifier(), tiny.texts(7)
    model.config.id2label = {0: "sport", 1: "politics", 2: "science"}
    folder = tiny.saved(model, tmp_path / "full", special=True)
    out = layerscope.truncate(folder, 2, tmp_path / "cut", "onnx", progress=False)
    tokenizer = hf.AutoTokenizer.from_pretrained(out)
    run = session(out)
    names = [entry.name for entry in run.get_inputs()]
    assert set(names) == set(tokenizer.model_input_names)
    given = tokenizer(texts, padding=True, return_tensors="np")
    found = run.run(["logits"], {name: given[name] for name in names})[0]
    alone = []
    for text in texts:
        state = model.bert(
            **tokenizer(text, return_tensors="pt"), output_hidden_states=True
        ).hidden_states[2]
        alone.append(model.classifier(model.bert.pooler(state)))
    close(found, torch.cat(alone))
    names = json.loads(run.get_modelmeta().custom_metadata_map["id2label"])
    assert names == json.loads((out / "config.json").read_text())["id2label"]
    assert [*names.values()] == ["sport", "politics", "science"]
    example = used(out)
    assert [*example["best"]] == [names[str(row.argmax())] for row in example["logits"]]
    assert "not comparable" not in (out / "README.md").read_text()


@torch.no_grad()
def test_a_sentence_transformer_gives_sentences(tmp_path: Path) -> None:
    from sentence_transformers import SentenceTransformer

    folder = layerscope.truncate("minilm", 2, tmp_path / "folder", progress=False)
    out = layerscope.truncate("minilm", 2, tmp_path / "cut", "onnx", progress=False)
    texts = ["One.", "A longer text about layers and what they know.", "Two"]
    run, tokenizer = session(out), hf.AutoTokenizer.from_pretrained(out)
    given = tokenizer(texts, padding=True, truncation=True, return_tensors="np")
    found = run.run(
        ["sentence_embedding"], {entry.name: given[entry.name] for entry in run.get_inputs()}
    )[0]
    served = SentenceTransformer(str(folder), device="cpu")
    close(found, torch.from_numpy(served.encode(texts)))
    axes = {tuple(entry.shape) for entry in (*run.get_inputs(), *run.get_outputs())}
    assert axes == {("batch", "sequence"), ("batch", "sequence", 384), ("batch", 384)}
    names = used(out)
    close(names["vectors"], torch.from_numpy(served.encode(["a text", "another, which is longer"])))
    assert "interleaved, in float32 by onnxruntime, on" in (out / "README.md").read_text()


def used(folder: Path) -> dict[str, object]:
    """Run what the card shows, and return its names."""
    code = (folder / "README.md").read_text().split("```python\n")[1].split("```")[0]
    names: dict[str, object] = {}
    exec(code.replace("path/to/this/folder", str(folder)), names)
    return names


@pytest.mark.parametrize("pooling", ["mean", "cls", "last"])
def test_the_card_shows_how_states_become_vectors(pooling: str) -> None:
    states, mask = (
        np.random.default_rng(0).normal(size=(3, 4, 5)),
        np.array([[1, 1, 1, 1], [1, 1, 0, 0], [0, 1, 1, 0]]),
    )
    about = {
        "format": "onnx",
        "modality": "text",
        "alone": False,
        "output": "last_hidden_state",
        "pooled_by": pooling,
    }
    *_, after = filled("use.md", **about).removesuffix("```\n").split("[0]\n")
    names = {"np": np, "last_hidden_state": states, "batch": {"attention_mask": mask}}
    exec(after, names)
    rows = [state[real == 1] for state, real in zip(states, mask, strict=True)]
    wanted = {
        "mean": [row.mean(0) for row in rows],
        "last": [row[-1] for row in rows],
        "cls": [s[0] for s in states],
    }
    np.testing.assert_allclose(names["vectors"], wanted[pooling])


@torch.no_grad()
def test_an_image_model_takes_any_number_of_images(tmp_path: Path) -> None:
    model = zoo.vit()
    processor = hf.ViTImageProcessor(size={"height": 16, "width": 16})
    out = layerscope.truncate(
        model, 2, tmp_path / "cut", "onnx", processor=processor, progress=False
    )
    for images in (1, 5):
        pixels = torch.randn(images, 3, 16, 16, generator=torch.Generator().manual_seed(images))
        states, norm = walks.vit(model, pixels)
        close(
            session(out).run(["logits"], {"pixel_values": pixels.numpy()})[0],
            model.classifier(norm(states[2])[:, 0]),
        )


@pytest.mark.parametrize(
    ("name", "options", "why"),
    [
        ("mamba", {}, r"cannot be exported to ONNX \(torch.onnx: .*`format='transformers'`"),
        ("t5", {"part": "decoder"}, "alternates encoder and decoder, which one ONNX file cannot"),
    ],
)
def test_what_cannot_be_exported_is_refused_and_leaves_nothing(
    name: str, options: dict[str, str], why: str, tmp_path: Path
) -> None:
    model = getattr(zoo, name)()
    with pytest.raises(LayerscopeError, match=why):
        layerscope.truncate(
            model,
            1,
            tmp_path / "cut",
            "onnx",
            processor=word_tokenizer(),
            progress=False,
            **options,
        )
    assert list(tmp_path.iterdir()) == []


def test_a_folder_says_what_it_is(tmp_path: Path) -> None:
    folder = tiny.saved(tiny.bert(), tmp_path / "full", special=True)
    out = layerscope.truncate(folder, 1, tmp_path / "cut", "onnx", progress=False)
    assert not list(out.glob("*.safetensors"))
    assert json.loads((out / "tokenizer_config.json").read_text())["model_max_length"] == 64
