"""A mix of layers as a model of its own: equal to the mix of the full model, no deeper than it must be."""

import pytest
import tiny
import torch
import transformers as hf
from truncation.cutting import (
    TEXTS,
    close,
    cut,
    parts_of,
    pooled,
    run_onnx,
    serve,
    unit,
)
from typed import refused


def test_a_sentence_transformer_weighs_its_layers(embedder, tmp_path):
    weights = {0: 0.1, 2: 0.5, 4: 0.4}
    out = cut(embedder, mix=weights, out=tmp_path / "mixed")
    mixed = serve(out)
    assert parts_of(mixed) == [
        "Transformer",
        "WeightedLayerPooling",
        "Pooling",
        "Normalize",
    ]
    assert len(mixed[0].auto_model.encoder.layer) == 4, "what is not needed is cut"
    rows = (weights[layer] * pooled(embedder, TEXTS, layer) for layer in weights)
    close(mixed.encode(TEXTS), unit(sum(rows)))
    card = (out / "README.md").read_text().replace("\\", "")
    assert "mix of the full model's layers 0 (0.1), 2 (0.5) and 4 (0.4)" in card


def test_a_plain_model_is_pooled_as_named_and_the_first_line_names_the_mix(
    cli, bert, tmp_path
):
    out = tmp_path / "mixed"
    options = "--mix 1=0.25,2=0.75 --format sentence-transformers --pooling cls --out"
    shown = cli("truncate", bert, *options.split(), out)
    assert ", a mix of layers 1 (0.25) and 2 (0.75) of 3: " in shown.out.splitlines()[0]
    one, two = (
        pooled(bert, TEXTS, layer, lambda states: states[:, 0]) for layer in (1, 2)
    )
    close(serve(out).encode(TEXTS), 0.25 * one + 0.75 * two)


@torch.no_grad()
def test_onnx_mixes_states_after_the_final_norm(tmp_path):
    folder = tiny.saved(tiny.llama(), tmp_path / "llama")
    out = cut(folder, mix={1: 0.25, 2: 0.75}, out=tmp_path / "mixed")
    batch = hf.AutoTokenizer.from_pretrained(out)(tiny.texts(1), return_tensors="pt")
    mixed = run_onnx(out, "last_hidden_state", **batch)
    base = hf.AutoModel.from_pretrained(folder).eval()
    states = base(**batch, output_hidden_states=True).hidden_states[1:3]
    one, two = map(base.norm, states)
    close(mixed, 0.25 * one + 0.75 * two, near=1e-4)


WRONG = [
    ("3,9", "layer 9 of the mix does not exist: this model has layers 0..6"),
    ("2=-1,3=0.5", "the weight of layer 2 in the mix is -1: give a number of at least 0"),
    ("3", "a mix needs two layers or more"),
    ("3=0.4,4", "mix gives some a weight and others none: give all of them one, or none"),
    ("last", "mix has the layer 'last'"),
    ("3=inf,4=1", "the weight of layer 3 in the mix is inf"),
]  # fmt: skip


@pytest.mark.parametrize("mix, line", WRONG)
def test_a_wrong_mix_is_one_line(embedder, mix, line, tmp_path):
    with refused(line):
        cut(embedder, mix=mix, out=tmp_path / "no")
    assert not (tmp_path / "no").exists()


def test_what_cannot_hold_a_mix_says_what_can(tmp_path):
    folder = tiny.saved(tiny.llama(), tmp_path / "llama")
    norm = "before the final norm .*`format='onnx'` holds the mix"
    for options, line in (
        ({"format": "sentence-transformers"}, norm),
        ({"format": "transformers"}, "transformers has no class that mixes layers"),
        ({"layer": 2}, "a mix names its own layers"),
    ):
        with refused(line):
            cut(folder, mix=[1, 2], out=tmp_path / "no", **options)
