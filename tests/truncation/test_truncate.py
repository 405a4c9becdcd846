"""The verb as a person types it: one depth or several, of a model or a run, with a card."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import tiny
import torch
import transformers as hf
import yaml
from safetensors.torch import load_file
from truncation.cutting import cut, serve, truncated
from typed import refused

import layerscope
from layerscope.selection import Candidate, Selection
from layerscope.truncation import pipeline


@pytest.fixture(scope="module")
def run(bert, tmp_path_factory):
    folder = tmp_path_factory.mktemp("run") / "run"
    how = {"metrics": "curvature", "views": 0}
    return layerscope.profile(str(bert), tiny.texts(12), out=folder, **how)


def head_of(card):
    return yaml.safe_load(card.split("---")[1])


def test_one_depth(cli, bert, tmp_path):
    printed = cli("truncate", bert, "--layer", 2, "--out", tmp_path / "cut")
    assert printed.status == 0, printed.err
    for words in ("2 of 3", "full model", str(tmp_path / "cut"), "rebuild"):
        assert words in printed.out
    model = hf.AutoModelForMaskedLM.from_pretrained(tmp_path / "cut")
    assert model.config.num_hidden_layers == 2


def test_a_run_and_json(cli, run, tmp_path):
    folder = tmp_path / "cut"
    printed = cli("truncate", run.path, "--layer", 1, "--out", folder, "--json")
    assert printed.status == 0, printed.err
    made = json.loads(printed.out)
    assert (made["layer"], made["path"]) == (1, str(folder))
    model = hf.AutoModelForMaskedLM.from_pretrained(folder)
    assert made["parameters"] == sum(p.numel() for p in model.parameters())
    size = (folder / "model.safetensors").stat().st_size / 1e6
    assert made["megabytes"] == pytest.approx(size)
    assert made["milliseconds"] > 0 and made["full_milliseconds"] > 0
    text = (folder / "README.md").read_text()
    for words in (
        "layer 1 of 3",
        f"{made['parameters']:,}",
        "torch",
        "not comparable",
        "rebuilt",
        'transformers.AutoModelForMaskedLM.from_pretrained("path/to/this/folder")',
    ):
        assert words in text
    assert head_of(text) == OWN


OWN = {
    "library_name": "transformers",
    "pipeline_tag": "fill-mask",
    "tags": ["layerscope", "truncated"],
}
LICENCE = "Apache, in full"
CARD = """---
license: apache-2.0
language: [en, de]
datasets: mine/texts
pipeline_tag: fill-mask
base_model: someone/else
tags: [bert, "<b>"]
model-index: [{name: x, results: []}]
---
# Mine
"""
KEPT = {
    "license": "apache-2.0",
    "language": ["en", "de"],
    "datasets": "mine/texts",
    "tags": ["bert", "<b>", *OWN["tags"]],
    "base_model": "someone/else",
    "base_model_relation": "finetune",
}


@pytest.mark.parametrize("card, kept", [(CARD, KEPT), ("---\nlicense: [\n---\n", {})])
def test_what_the_makers_say_goes_with_the_model(card, kept, tmp_path):
    folder = tiny.saved(tiny.bert(), tmp_path / "full")
    (folder / "README.md").write_text(card)
    (folder / "LICENSE.txt").write_text(LICENCE)
    made = truncated(folder, 2, tmp_path / "cut")
    text = (Path(made.path) / "README.md").read_text()
    assert (Path(made.path) / "LICENSE.txt").read_text() == LICENCE
    assert head_of(text) == OWN | kept
    assert f"the largest difference is {made.difference:.1g}, in float32" in text
    assert made.difference < 1e-5


def test_a_hub_model_is_named_with_its_revision(tmp_path, monkeypatch):
    commit = "0123456789abcdef0123456789abcdef01234567"
    cache = tmp_path / "models--me--small"
    snapshot = tiny.saved(tiny.bert(), cache / "snapshots" / commit)
    (snapshot / "NOTICE").write_text(LICENCE)
    (cache / "refs").mkdir()
    (cache / "refs" / "main").write_text(commit)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    out = cut("me/small", 1, tmp_path / "cut")
    text = (out / "README.md").read_text()
    assert head_of(text)["base_model"] == "me/small" and f"at revision {commit}" in text
    assert (out / "NOTICE").read_text() == LICENCE


def test_the_checkpoints_own_precision_stays_and_another_can_be_named(cli, tmp_path):
    full = tiny.saved(tiny.llama().to(torch.bfloat16), tmp_path / "full")
    made = truncated(full, 2, tmp_path / "cut")
    before, after = (
        load_file(folder / "model.safetensors") for folder in (full, Path(made.path))
    )
    assert {tensor.dtype for tensor in after.values()} == {torch.bfloat16}
    assert all(torch.equal(tensor, before[name]) for name, tensor in after.items())
    assert (made.dtype, made.difference) == ("bfloat16", 0)
    assert "in bfloat16" in made.measured
    half = cut(full, 2, tmp_path / "half", dtype="float16")
    stored = load_file(half / "model.safetensors")
    assert {tensor.dtype for tensor in stored.values()} == {torch.float16}
    with refused(r"is loaded in float32: convert it \(.to\(torch.float16\)\)"):
        text = tiny.tokenizer(special=False)
        cut(tiny.llama(), 2, tmp_path / "no", dtype="float16", processor=text)


def test_a_selection_names_the_model(cli, bert, tmp_path):
    about = {"model": "m", "depth": 3, "site": "raw", "rule": "best", "why": ""}
    gain = {"gain": None, "gain_error": None, "baseline_name": "the last layer"}
    layers = {"layer": 2, "baseline": Candidate(3), "layers": (Candidate(2),)}
    facts = about | gain | layers
    chosen = Selection(**facts, pooling="cls", as_shipped=False, source=str(bert))
    chosen.save(tmp_path / "choice")
    done = cli("truncate", tmp_path / "choice", "--out", tmp_path / "by-folder")
    assert done.status == 0, done.err
    for folder in (cut(chosen, out=tmp_path / "chosen"), tmp_path / "by-folder"):
        served = serve(folder)
        assert served[1].pooling_mode == "cls", "what was scored is shipped"
        assert len(served[0].auto_model.encoder.layer) == 2
    with refused("selection keeps the model as shipped"):
        cut(replace(chosen, as_shipped=True), out=tmp_path / "none")


def test_a_hostile_name_does_nothing_in_the_card(tmp_path):
    name = "a|b <img src=x> `c` [d](e)\n---\n# f \u202e"
    moved = tiny.saved(tiny.bert(), tmp_path / "full").rename(tmp_path / name)
    card = (cut(moved, 1, tmp_path / "cut") / "README.md").read_text()
    assert not [bad for bad in ("<img", "`c`", "[d](", "\u202e") if bad in card]
    assert [line for line in card.splitlines() if line.startswith("# ")] == [
        r"# a\|b &lt;img src=x&gt; \`c\` \[d\](e)\\n---\\n\# f \\u202e, layer 1 of 3"
    ]
    assert card.count("\n---\n") == 1


def test_nothing_is_left_of_a_killed_truncation(bert, tmp_path, monkeypatch):
    def stop(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(pipeline, "measure", stop)
    with pytest.raises(KeyboardInterrupt):
        cut(bert, 1, tmp_path / "cut")
    assert list(tmp_path.iterdir()) == []
