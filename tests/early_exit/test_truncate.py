"""The verb as a person types it: one depth or several, of a model or a run, with figures and a card."""

import json
from pathlib import Path

import pandas as pd
import pytest
import tiny
import torch
import transformers as hf
import yaml

import layerscope
from layerscope.early_exit import truncate_layers


@pytest.fixture(scope="module")
def bert(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny.saved(tiny.bert(), tmp_path_factory.mktemp("models") / "tiny-bert", special=True)


@pytest.fixture(scope="module")
def run(bert: Path, tmp_path_factory: pytest.TempPathFactory) -> layerscope.Run:
    folder = tmp_path_factory.mktemp("run")
    frame = pd.DataFrame({"text": tiny.texts(40), "label": [f"t{i % 2}" for i in range(40)]})
    frame.to_csv(folder / "a-b-x.csv", index=False)
    return layerscope.profile(
        str(bert), str(folder / "a-b-x.csv"), out=folder / "run", metrics="linear_probe", progress=False
    )


def test_one_depth(cli, bert: Path, tmp_path: Path) -> None:
    printed = cli("truncate", bert, "--layer", 2, "--out", tmp_path / "cut")
    assert printed.status == 0, printed.err
    assert "2 of 3" in printed.out and "full model" in printed.out and str(tmp_path / "cut") in printed.out
    assert "rebuild" in printed.out
    assert hf.AutoModelForMaskedLM.from_pretrained(tmp_path / "cut").config.num_hidden_layers == 2


def test_several_depths_and_json(cli, run: layerscope.Run, tmp_path: Path) -> None:
    printed = cli("truncate", run.path, "--layers", "3,1", "--out", tmp_path / "cut", "--json")
    assert printed.status == 0, printed.err
    found = json.loads(printed.out)
    assert [entry["layer"] for entry in found] == [1, 3]
    scores = run.table().query("metric == 'linear_probe' and site == 'raw'").set_index("layer")["value"]
    for entry in found:
        folder = tmp_path / "cut" / f"layer-{entry['layer']}"
        assert entry["path"] == str(folder)
        model = hf.AutoModelForMaskedLM.from_pretrained(folder)
        assert entry["parameters"] == sum(p.numel() for p in model.parameters())
        assert entry["megabytes"] == pytest.approx((folder / "model.safetensors").stat().st_size / 1e6)
        assert entry["score"] == scores[entry["layer"]] and entry["full_score"] == scores[3]
        assert entry["milliseconds"] > 0 and entry["full_milliseconds"] > 0
    assert found[1]["ideal"] == 1 and found[0]["ideal"] > 1.5
    table = cli("truncate", run.path, "--layers", "1", "--out", tmp_path / "again").out
    assert "linear probe" in table and "1 of 3" in table


def test_the_card_tells_numbers_and_warns(run: layerscope.Run, tmp_path: Path) -> None:
    (made,) = truncate_layers(run, [2], tmp_path / "cut", progress=False)
    card = (Path(made.path) / "README.md").read_text()
    assert "layer 2 of 3" in card and f"{made.parameters:,}" in card and "torch" in card
    assert "not comparable" in card and "rebuilt" in card
    assert f"{made.score:.1%}" in card
    assert "on the labels of a-b-x (40 samples, mean pooling)" in card
    head = yaml.safe_load(card.split("---")[1])
    assert head == {"library_name": "transformers", "tags": ["layerscope", "truncated"]}
    assert 'transformers.AutoModelForMaskedLM.from_pretrained("path/to/this/folder")' in card


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
    folder = tiny.saved(tiny.seeded(hf.T5ForConditionalGeneration, config), tmp_path / "t5", special=True)
    run = layerscope.profile(
        str(folder), tiny.texts(12), part="encoder", out=tmp_path / "run", metrics="curvature", progress=False
    )
    out = layerscope.truncate(tmp_path / "run", 2, tmp_path / "cut", progress=False)
    assert run.info["model"]["part"] == "encoder"
    assert hf.AutoModelForTextEncoding.from_pretrained(out).config.num_layers == 2
    assert "part encoder" in (out / "README.md").read_text()


def test_a_run_whose_model_changed_since(cli, bert: Path, tmp_path: Path) -> None:
    folder = tiny.saved(tiny.bert(), tmp_path / "model", special=True)
    layerscope.profile(str(folder), tiny.texts(12), out=tmp_path / "run", metrics="curvature", progress=False)
    tiny.saved(tiny.bert(seed=1), folder, special=True)
    printed = cli("truncate", tmp_path / "run", "--layer", 1, "--out", tmp_path / "cut")
    assert printed.status == 2 and "has changed since: profile it again" in printed.line
    assert not (tmp_path / "cut").exists()


def test_a_run_of_a_model_in_memory(tmp_path: Path) -> None:
    layerscope.profile(
        tiny.bert(), tiny.texts(12), processor=tiny.tokenizer(special=True), out=tmp_path / "run", metrics="curvature",
        progress=False,
    )  # fmt: skip
    with pytest.raises(layerscope.LayerscopeError, match=r"made of a model in memory \(BertForMaskedLM\)"):
        layerscope.truncate(tmp_path / "run", 1, tmp_path / "cut", progress=False)


def test_nothing_is_left_of_a_killed_truncation(bert: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from layerscope.early_exit.truncation import verb as truncation

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(truncation, "measure", stop)
    with pytest.raises(KeyboardInterrupt):
        layerscope.truncate(bert, 1, tmp_path / "cut", progress=False)
    assert list(tmp_path.iterdir()) == []
