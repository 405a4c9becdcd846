"""A mix of layers as a model of its own: equal to the mix of the full model, no deeper than it must be."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import tiny
import torch
import transformers as hf
from sentence_transformers import SentenceTransformer
from truncation.test_sentence_transformers import TEXTS
from typed import Printed, cli

import layerscope
from layerscope.core.errors import LayerscopeError
from layerscope.truncation.mixing import mix_of

__all__ = ["cli"]


@torch.no_grad()
def test_a_sentence_transformer_weighs_its_layers(tmp_path: Path) -> None:
    out = layerscope.truncate(
        "minilm", mix={0: 0.1, 2: 0.5, 4: 0.4}, out=tmp_path / "mixed", progress=False
    )
    mixed, full = (
        SentenceTransformer(str(out), device="cpu"),
        SentenceTransformer(layerscope_minilm(), device="cpu"),
    )
    names = [type(module).__name__ for module in mixed]
    assert names == ["Transformer", "WeightedLayerPooling", "Pooling", "Normalize"]
    assert len(mixed[0].auto_model.encoder.layer) == 4, "what is not needed is cut"
    rows = []
    for text in TEXTS:
        states = (
            full[0]
            .auto_model(**full.tokenizer(text, return_tensors="pt"), output_hidden_states=True)
            .hidden_states
        )
        vector = 0.1 * states[0].mean(1) + 0.5 * states[2].mean(1) + 0.4 * states[4].mean(1)
        rows.append(torch.nn.functional.normalize(vector, dim=-1))
    np.testing.assert_allclose(mixed.encode(TEXTS), torch.cat(rows).numpy(), rtol=1e-5, atol=1e-5)
    card = (out / "README.md").read_text()
    assert "mix of the full model's layers 0 (0.1), 2 (0.5) and 4 (0.4)" in card.replace("\\", "")


def layerscope_minilm() -> str:
    from layerscope.models.checks import embedded

    return embedded("minilm")


@torch.no_grad()
def test_a_plain_model_is_pooled_as_named(tmp_path: Path) -> None:
    folder = tiny.saved(tiny.bert(), tmp_path / "bert", special=True)
    out = layerscope.truncate(
        str(folder),
        mix=[1, 2],
        out=tmp_path / "mixed",
        pooling="cls",
        format="sentence-transformers",
        progress=False,
    )
    mixed, full = (
        SentenceTransformer(str(out), device="cpu"),
        hf.AutoModel.from_pretrained(folder).eval(),
    )
    texts = tiny.texts(4)
    given = [mixed.tokenizer(text, return_tensors="pt") for text in texts]
    states = [full(**each, output_hidden_states=True).hidden_states for each in given]
    wanted = torch.cat([(each[1] + each[2])[:, 0] / 2 for each in states]).numpy()
    np.testing.assert_allclose(mixed.encode(texts), wanted, rtol=1e-5, atol=1e-5)


@torch.no_grad()
@pytest.mark.parametrize("site", ["normed", "raw"])
def test_onnx_mixes_states_after_the_final_norm_or_before(site: str, tmp_path: Path) -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    module = tiny.llama().eval()
    folder = tiny.saved(module, tmp_path / "llama", special=False)
    out = layerscope.truncate(
        str(folder), mix={1: 0.25, 2: 0.75}, out=tmp_path / site, site=site, progress=False
    )
    session = onnxruntime.InferenceSession(str(out / "model.onnx"))
    batch = hf.AutoTokenizer.from_pretrained(out)(tiny.texts(1), return_tensors="pt")
    found = session.run(
        None, {entry.name: batch[entry.name].numpy() for entry in session.get_inputs()}
    )[0]
    base = hf.AutoModel.from_pretrained(folder).eval()
    raw: list[torch.Tensor] = []
    for block in base.layers:
        block.register_forward_hook(
            lambda _, __, given: raw.append(given[0] if isinstance(given, tuple) else given)
        )
    base(**batch)
    one, two = (base.norm(states) if site == "normed" else states for states in raw[:2])
    np.testing.assert_allclose(found, (0.25 * one + 0.75 * two).numpy(), rtol=1e-4, atol=1e-4)
    assert not np.allclose(found, (0.75 * one + 0.25 * two).numpy(), atol=1e-2)


def test_weights_are_those_of_a_mean() -> None:
    assert mix_of({"3": 1.0, "6": 3.0}, 6) == {3: 0.25, 6: 0.75}
    assert mix_of({2: 2, 1: 2, 0: 0}, 2) == {1: 0.5, 2: 0.5}


@pytest.mark.parametrize(
    ("mix", "line"),
    [
        ("3,9", "layer 9 of the mix does not exist: this model has layers 0..6"),
        ("2=-1,3=0.5", "the weight of layer 2 in the mix is -1: give a number of at least 0"),
        ("3", "a mix needs two layers or more"),
        ("3=0.4,4", "mix gives some a weight and others none: give all of them one, or none"),
        ("last", "mix has the layer 'last'"),
        ("3=x,4=1", "mix: the weight of '3' is 'x'"),
        ("3=inf,4=1", "the weight of layer 3 in the mix is inf"),
    ],
)
def test_a_wrong_mix_is_one_line(mix: str, line: str, tmp_path: Path) -> None:
    with pytest.raises(LayerscopeError, match=line.replace("(", "\\(")):
        layerscope.truncate("minilm", mix=mix, out=tmp_path / "no", progress=False)
    assert not (tmp_path / "no").exists()


def test_what_cannot_hold_a_mix_says_what_can(tmp_path: Path) -> None:
    folder, out = str(tiny.saved(tiny.llama(), tmp_path / "llama", special=False)), tmp_path / "no"
    for options, line in (
        (
            {"format": "sentence-transformers"},
            "before the final norm .*`format='onnx'` holds the mix",
        ),
        ({"format": "transformers"}, "transformers has no class that mixes layers"),
        ({"layer": 2}, "a mix names its own layers"),
    ):
        with pytest.raises(LayerscopeError, match=line):
            layerscope.truncate(folder, mix=[1, 2], out=out, progress=False, **options)


def test_the_command_names_the_mend(cli: Callable[..., Printed], tmp_path: Path) -> None:
    failed = cli("truncate", "minilm", "--mix", "3=1,5=-2", "--out", str(tmp_path / "no"))
    assert failed.status == 2
    assert failed.err.strip().endswith(
        "the weight of layer 5 in the mix is -2: give a number of at least 0"
    )


def test_the_first_line_of_the_command_names_the_mix(
    cli: Callable[..., Printed], tmp_path: Path
) -> None:
    model = str(tiny.saved(tiny.bert(), tmp_path / "bert", special=True))
    shown = cli(
        "truncate",
        model,
        "--mix",
        "1=0.25,2=0.75",
        "--format",
        "sentence-transformers",
        "--out",
        str(tmp_path / "mixed"),
    )
    assert shown.status == 0, shown.err
    assert ", a mix of layers 1 (0.25) and 2 (0.75) of 3: " in shown.out.splitlines()[0]
