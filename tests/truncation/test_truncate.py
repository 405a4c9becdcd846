"""The verb as a person types it: one depth or several, of a model or a run, with figures and a card."""

import json
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
import tiny
import torch
import transformers as hf
import yaml
from huggingface_hub import ModelCard
from safetensors.torch import load_file
from sentence_transformers import SentenceTransformer

import layerscope
from layerscope.models.checks import embedded
from layerscope.scores import Evaluation
from layerscope.scores.evaluation import ModelOrigin
from layerscope.selection import Candidate, Selection
from layerscope.truncation import truncate_layers
from layerscope.truncation.costs import REBUILD, document


@pytest.fixture(scope="module")
def bert(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny.saved(tiny.bert(), tmp_path_factory.mktemp("models") / "tiny-bert", special=True)


@pytest.fixture(scope="module")
def run(bert: Path, tmp_path_factory: pytest.TempPathFactory) -> layerscope.Run:
    folder = tmp_path_factory.mktemp("run")
    frame = pd.DataFrame({"text": tiny.texts(40), "label": [f"t{i % 2}" for i in range(40)]})
    frame.to_csv(folder / "a-b-x.csv", index=False)
    return layerscope.profile(
        str(bert),
        str(folder / "a-b-x.csv"),
        out=folder / "run",
        metrics="linear_probe",
        progress=False,
    )


def test_one_depth(cli, bert: Path, tmp_path: Path) -> None:
    printed = cli("truncate", bert, "--layer", 2, "--out", tmp_path / "cut")
    assert printed.status == 0, printed.err
    assert (
        "2 of 3" in printed.out
        and "full model" in printed.out
        and str(tmp_path / "cut") in printed.out
    )
    assert "rebuild" in printed.out
    assert hf.AutoModelForMaskedLM.from_pretrained(tmp_path / "cut").config.num_hidden_layers == 2


def test_several_depths_and_json(cli, run: layerscope.Run, tmp_path: Path) -> None:
    printed = cli("truncate", run.path, "--layers", "3,1", "--out", tmp_path / "cut", "--json")
    assert printed.status == 0, printed.err
    found = json.loads(printed.out)
    assert [entry["layer"] for entry in found] == [1, 3]
    scores = (
        run.table().query("metric == 'linear_probe' and site == 'raw'").set_index("layer")["value"]
    )
    for entry in found:
        folder = tmp_path / "cut" / f"layer-{entry['layer']}"
        assert entry["path"] == str(folder)
        model = hf.AutoModelForMaskedLM.from_pretrained(folder)
        assert entry["parameters"] == sum(p.numel() for p in model.parameters())
        assert entry["megabytes"] == pytest.approx(
            (folder / "model.safetensors").stat().st_size / 1e6
        )
        assert entry["score"] == scores[entry["layer"]] and entry["full_score"] == scores[3]
        assert entry["milliseconds"] > 0 and entry["full_milliseconds"] > 0
    assert found[1]["ideal"] == 1 and found[0]["ideal"] > 1.5
    table = cli("truncate", run.path, "--layers", "1", "--out", tmp_path / "again").out
    assert "linear probe" in table and "1 of 3" in table


@pytest.mark.parametrize(("make", "warned"), [(tiny.classifier, False), (tiny.bert, True)])
def test_only_vectors_need_another_index(tmp_path: Path, make, warned: bool) -> None:
    folder = tiny.saved(make(), tmp_path / "full", special=True)
    made = truncate_layers(folder, [1], tmp_path / "cut", progress=False)
    assert document(made).notes == ((REBUILD,) if warned else ())
    assert ("not comparable" in (Path(made[0].path) / "README.md").read_text()) == warned


def test_the_card_tells_numbers_and_warns(run: layerscope.Run, tmp_path: Path) -> None:
    (made,) = truncate_layers(run, [2], tmp_path / "cut", progress=False)
    card = (Path(made.path) / "README.md").read_text()
    assert "layer 2 of 3" in card and f"{made.parameters:,}" in card and "torch" in card
    assert "not comparable" in card and "rebuilt" in card
    assert f"{made.score:.1%}" in card
    assert "on the labels of a-b-x (40 samples, mean pooling)" in card
    head = yaml.safe_load(card.split("---")[1])
    (found,) = head.pop("model-index")
    assert head == {
        "library_name": "transformers",
        "pipeline_tag": "fill-mask",
        "tags": ["layerscope", "truncated"],
    }
    (result,) = ModelCard(card).data.eval_results
    shown = result.task_type, result.metric_name, result.dataset_name
    assert shown == ("text-classification", "linear probe", "a-b-x")
    assert result.metric_value == pytest.approx(made.score, abs=1e-4) and found["name"].endswith(
        "layers 1-2 of 3"
    )
    assert 'transformers.AutoModelForMaskedLM.from_pretrained("path/to/this/folder")' in card


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


@pytest.mark.parametrize("card", [CARD, "---\nlicense: [\n---\n"], ids=["whole", "broken"])
def test_what_the_makers_say_goes_with_the_model(card: str, tmp_path: Path) -> None:
    folder = tiny.saved(tiny.bert(), tmp_path / "full", special=True)
    (folder / "README.md").write_text(card)
    (folder / "LICENSE.txt").write_text(LICENCE)
    (made,) = truncate_layers(folder, [2], tmp_path / "cut", progress=False)
    text = (Path(made.path) / "README.md").read_text()
    head = yaml.safe_load(text.split("---")[1])
    assert (Path(made.path) / "LICENSE.txt").read_text() == LICENCE
    own = {
        "library_name": "transformers",
        "pipeline_tag": "fill-mask",
        "tags": ["layerscope", "truncated"],
    }
    if card is CARD:
        own["tags"] = ["bert", "<b>", *own["tags"]]
        own |= {"license": "apache-2.0", "language": ["en", "de"], "datasets": "mine/texts"}
        own |= {"base_model": "someone/else", "base_model_relation": "finetune"}
    assert head == own
    assert (
        f"the largest difference is {made.difference:.1g}, in float32" in text
        and made.difference < 1e-5
    )


def test_a_hub_model_is_named_with_its_revision(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache, commit = tmp_path / "models--me--small", "0123456789abcdef0123456789abcdef01234567"
    tiny.saved(tiny.bert(), cache / "snapshots" / commit, special=True)
    (cache / "snapshots" / commit / "NOTICE").write_text(LICENCE)
    (cache / "refs").mkdir()
    (cache / "refs" / "main").write_text(commit)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    layerscope.truncate("me/small", 1, tmp_path / "cut", progress=False)
    text = (tmp_path / "cut" / "README.md").read_text()
    assert (
        yaml.safe_load(text.split("---")[1])["base_model"] == "me/small"
        and f"at revision {commit}" in text
    )
    assert (tmp_path / "cut" / "NOTICE").read_text() == LICENCE


def test_the_checkpoints_own_precision_stays_and_another_can_be_named(cli, tmp_path: Path) -> None:
    full = tiny.saved(tiny.llama().to(torch.bfloat16), tmp_path / "full", special=False)
    (made,) = truncate_layers(full, [2], tmp_path / "cut", progress=False)
    before, after = (load_file(folder / "model.safetensors") for folder in (full, Path(made.path)))
    assert {tensor.dtype for tensor in after.values()} == {torch.bfloat16}
    assert all(torch.equal(tensor, before[name]) for name, tensor in after.items())
    assert (made.dtype, made.difference) == ("bfloat16", 0) and "in bfloat16" in made.measured
    done = cli(
        "truncate", full, "--layer", 2, "--dtype", "float16", "--out", tmp_path / "half", "--json"
    )
    assert json.loads(done.out)[0]["dtype"] == "float16"
    assert {
        tensor.dtype for tensor in load_file(tmp_path / "half" / "model.safetensors").values()
    } == {torch.float16}
    with pytest.raises(
        layerscope.LayerscopeError,
        match=r"is loaded in float32: convert it \(.to\(torch.float16\)\)",
    ):
        layerscope.truncate(
            tiny.llama(),
            2,
            tmp_path / "no",
            dtype="float16",
            processor=tiny.tokenizer(special=False),
            progress=False,
        )


def test_a_run_in_float32_knows_its_model_in_another_precision(tmp_path: Path) -> None:
    full = tiny.saved(tiny.bert().to(torch.bfloat16), tmp_path / "full", special=True)
    layerscope.profile(
        str(full),
        tiny.texts(12),
        out=tmp_path / "run",
        metrics="curvature",
        dtype="float32",
        progress=False,
    )
    layerscope.truncate(tmp_path / "run", 1, tmp_path / "cut", progress=False)
    tiny.saved(tiny.bert(seed=1).to(torch.bfloat16), full, special=True)
    with pytest.raises(layerscope.LayerscopeError, match="has changed since"):
        layerscope.truncate(tmp_path / "run", 1, tmp_path / "again", progress=False)


def test_several_layers_a_selection_and_an_evaluation(cli, bert: Path, tmp_path: Path) -> None:
    out = layerscope.truncate(bert, layers=[2, 3], out=tmp_path / "depths", progress=False)
    assert [path.name for path in sorted(out.iterdir())] == ["layer-2", "layer-3"]
    assert hf.AutoModel.from_pretrained(out / "layer-3").config.num_hidden_layers == 3
    chosen = Selection(
        model="m",
        layer=2,
        depth=3,
        as_shipped=False,
        site="raw",
        pooling="cls",
        rule="best",
        why="",
        gain=None,
        gain_error=None,
        baseline=Candidate(3),
        baseline_name="the last layer",
        layers=(Candidate(2),),
        source=str(bert),
    )
    cut = SentenceTransformer(
        str(layerscope.truncate(chosen, out=tmp_path / "chosen", progress=False)), device="cpu"
    )
    assert cut[1].pooling_mode == "cls" and len(cut[0].auto_model.encoder.layer) == 2, (
        "what was scored is shipped"
    )
    chosen.save(tmp_path / "choice")
    assert cli("truncate", tmp_path / "choice", "--out", tmp_path / "by-folder").status == 0
    cut = SentenceTransformer(str(tmp_path / "by-folder"), device="cpu")
    assert cut[1].pooling_mode == "cls" and len(cut[0].auto_model.encoder.layer) == 2
    with pytest.raises(
        layerscope.LayerscopeError, match="the selection keeps the model as shipped"
    ):
        layerscope.truncate(replace(chosen, as_shipped=True), out=tmp_path / "none", progress=False)
    rows = [
        {"model": "m", "kind": "layer", "layer": k, "task": "t", "score": k / 3, "pooling": "mean"}
        for k in (1, 2)
    ]
    scores = Evaluation(pd.DataFrame(rows), "scores")
    scores.origins = {"m": ModelOrigin(str(bert), 3)}
    scores.save(tmp_path / "scores")
    cut = SentenceTransformer(
        str(layerscope.truncate(tmp_path / "scores", 1, tmp_path / "of", progress=False))
    )
    assert cut[1].pooling_mode == "mean" and len(cut[0].auto_model.encoder.layer) == 1


@pytest.mark.parametrize("pooling", ["mean", "cls", "last"])
def test_a_pooling_that_is_named_is_shipped(cli, pooling: str, bert: Path, tmp_path: Path) -> None:
    out = tmp_path / "cut"
    how = ("--layer", 2, "--format", "sentence-transformers", "--pooling", pooling, "--out", out)
    assert cli("truncate", bert, *how).status == 0
    given = tiny.tokenizer(special=True)("w1 w2 w3", return_tensors="pt")
    with torch.no_grad():
        state = tiny.bert().bert(**given, output_hidden_states=True).hidden_states[2][0]
    wanted = {"mean": state.mean(0), "cls": state[0], "last": state[-1]}[pooling]
    found = SentenceTransformer(str(out), device="cpu").encode("w1 w2 w3", convert_to_tensor=True)
    torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-5)
    line = cli("truncate", bert, "--layer", 2, "--pooling", pooling, "--out", tmp_path / "no").line
    assert line.startswith(f"pooling {pooling} needs --format sentence-transformers: ")


def test_a_sentence_transformer_is_shipped_with_another_pooling(tmp_path: Path) -> None:
    out = layerscope.truncate(
        "minilm", 2, tmp_path / "cut", "sentence-transformers", pooling="cls", progress=False
    )
    cut, full = (
        SentenceTransformer(str(folder), device="cpu") for folder in (out, embedded("minilm"))
    )
    given = full.tokenizer("One text.", return_tensors="pt")
    with torch.no_grad():
        state = full[0].auto_model(**given, output_hidden_states=True).hidden_states[2][0, 0]
    wanted = torch.nn.functional.normalize(state, dim=-1)
    torch.testing.assert_close(
        cut.encode("One text.", convert_to_tensor=True), wanted, rtol=1e-5, atol=1e-5
    )


def test_a_hostile_name_does_nothing_in_the_card(tmp_path: Path) -> None:
    name = "a|b <img src=x> `c` [d](e)\n---\n# f \u202e"
    folder = tiny.saved(tiny.bert(), tmp_path / "full", special=True)
    moved = folder.rename(tmp_path / name.replace("/", ""))
    (made,) = truncate_layers(moved, [1], tmp_path / "cut", progress=False)
    card = (Path(made.path) / "README.md").read_text()
    assert "<img" not in card and "`c`" not in card and "[d](" not in card and "\u202e" not in card
    assert [line for line in card.splitlines() if line.startswith("# ")] == [
        r"# a\|b &lt;img src=x&gt; \`c\` \[d\](e)\\n---\\n\# f \\u202e, layer 1 of 3"
    ]
    assert card.count("\n---\n") == 1


def test_a_run_brings_its_part(tmp_path: Path) -> None:
    torch.manual_seed(0)
    config = hf.T5Config(vocab_size=94, d_model=32, num_layers=3, num_heads=4, d_ff=48, d_kv=8)
    folder = tiny.saved(
        tiny.seeded(hf.T5ForConditionalGeneration, config), tmp_path / "t5", special=True
    )
    run = layerscope.profile(
        str(folder),
        tiny.texts(12),
        part="encoder",
        out=tmp_path / "run",
        metrics="curvature",
        progress=False,
    )
    out = layerscope.truncate(tmp_path / "run", 2, tmp_path / "cut", progress=False)
    assert run.info["model"]["part"] == "encoder"
    assert hf.AutoModelForTextEncoding.from_pretrained(out).config.num_layers == 2
    assert "part encoder" in (out / "README.md").read_text()


def test_a_run_whose_model_changed_since(cli, bert: Path, tmp_path: Path) -> None:
    folder = tiny.saved(tiny.bert(), tmp_path / "model", special=True)
    layerscope.profile(
        str(folder), tiny.texts(12), out=tmp_path / "run", metrics="curvature", progress=False
    )
    tiny.saved(tiny.bert(seed=1), folder, special=True)
    printed = cli("truncate", tmp_path / "run", "--layer", 1, "--out", tmp_path / "cut")
    assert printed.status == 2 and "has changed since: profile it again" in printed.line
    assert not (tmp_path / "cut").exists()


def test_a_run_of_a_model_in_memory(tmp_path: Path) -> None:
    layerscope.profile(
        tiny.bert(),
        tiny.texts(12),
        processor=tiny.tokenizer(special=True),
        out=tmp_path / "run",
        metrics="curvature",
        progress=False,
    )
    with pytest.raises(
        layerscope.LayerscopeError, match=r"made from a model in memory \(BertForMaskedLM\)"
    ):
        layerscope.truncate(tmp_path / "run", 1, tmp_path / "cut", progress=False)


def test_nothing_is_left_of_a_killed_truncation(
    bert: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from layerscope.truncation import pipeline

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(pipeline, "measure", stop)
    with pytest.raises(KeyboardInterrupt):
        layerscope.truncate(bert, 1, tmp_path / "cut", progress=False)
    assert list(tmp_path.iterdir()) == []
