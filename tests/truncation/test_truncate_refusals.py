"""What cannot be truncated: one line with the reason, and nothing left behind."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import tiny
import torch
import transformers as hf
from models import zoo
from models.tokenizer import word_tokenizer
from models.zoo import build
from torch import nn
from typed import Printed, flagged

import layerscope
from layerscope import LayerscopeError


@pytest.fixture(scope="module")
def bert(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny.saved(tiny.bert(), tmp_path_factory.mktemp("models") / "tiny-bert", special=True)


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny.saved(tiny.llama(), tmp_path_factory.mktemp("models") / "tiny-llama", special=False)


@pytest.fixture
def refused(cli: Callable[..., Printed], tmp_path: Path) -> Callable[..., str]:
    """Return a function that types a command, checks that it leaves nothing, and returns its one line."""

    def call(*arguments: object) -> str:
        before = sorted(tmp_path.rglob("*"))
        printed = cli("truncate", *arguments)
        assert printed.status == 2 and printed.out == "", printed
        assert sorted(tmp_path.rglob("*")) == before
        return printed.line

    return call


@pytest.mark.parametrize(
    ("options", "line"),
    [
        (["--layer", 13], "layer 13 does not exist: this model has layers 0..3"),
        (["--layer", -1], "layer -1 does not exist: this model has layers 0..3"),
        (
            ["--layer", 0],
            "layer 0 is what the first block reads: no block would be left of the model, give 1..3",
        ),
        (["--layer", "two"], "layer is 'two': give a whole number"),
        (["--layers", "1,7"], "layer 7 does not exist: this model has layers 0..3"),
        (["--layers", ","], "layers is '': give whole numbers, such as 2,4 or 2-4"),
        (
            [],
            "truncate needs a layer: give --layer, or several with --layers, such as 3,6,9; or blocks to leave out",
        ),
        (["--drop", "1-3"], "no block would be left of the 3: drop fewer of them"),
        (["--drop", "2,4"], "block 4 does not exist: this model has blocks 1..3"),
        (["--drop", "0"], "drop is 0: give whole numbers of at least 1, such as 4-7,9"),
        (["--drop", "3-2"], "drop is '3-2', which ends before it begins: give 2-3"),
        (
            ["--layer", 2, "--drop", "1,3"],
            "block 3 is not among the first 2: leave it out of --drop",
        ),
        (["--layers", "1,2", "--drop", 1], "no block would be left of the 1: drop fewer of them"),
        (["--layer", 1, "--layers", "1,2"], "layer and layers name the same: give one of them"),
        (
            ["--layer", 1, "--format", "onxx"],
            "format 'onxx' does not exist, did you mean onnx? (choose auto, transformers, sentence-transformers, onnx)",
        ),
        (
            ["--layer", 1, "--site", "rav"],
            "site 'rav' does not exist, did you mean raw? (choose normed, raw)",
        ),
        (
            ["--layer", 1, "--part", "decoder"],
            "part 'decoder' does not exist: this model has one stack of blocks",
        ),
    ],
    ids=lambda value: " ".join(map(str, value)) if isinstance(value, list) else "",
)
def test_wrong_options(
    options: list[object], line: str, refused, bert: Path, tmp_path: Path
) -> None:
    assert refused(bert, "--out", tmp_path / "cut", *options).startswith(flagged(line, *options))


@pytest.mark.parametrize(
    "options", [[], ["--layer", 1], ["--out", "cut"], ["--layer", 1, "--out", "cut"]]
)
def test_a_model_that_does_not_exist_is_said_before_what_is_missing(
    options: list[object], refused
) -> None:
    assert refused("nowhere", *options).startswith("'nowhere' is not a local folder")


def test_no_place_to_write(refused, bert: Path, tmp_path: Path) -> None:
    full, file = tmp_path / "full", tmp_path / "file"
    full.mkdir()
    (full / "mine.txt").write_text("keep")
    file.write_text("keep")
    assert refused(bert, "--layer", 1) == "truncate needs --out: a new folder for the model"
    assert refused(bert, "--layer", 1, "--out", "").endswith("out is empty: name a folder")
    assert refused(bert, "--layer", 1, "--out", full).endswith(
        "exists and is not empty: name a new folder"
    )
    assert "is a file" in refused(bert, "--layer", 1, "--out", file)
    assert "is a file" in refused(bert, "--layer", 1, "--out", file / "below")


def test_an_empty_folder_is_a_place(bert: Path, tmp_path: Path) -> None:
    (tmp_path / "cut").mkdir()
    layerscope.truncate(bert, 1, tmp_path / "cut", progress=False)
    assert [p.name for p in tmp_path.iterdir()] == ["cut"]


def test_raw_states_of_a_model_with_a_final_norm(
    refused, llama: Path, bert: Path, tmp_path: Path
) -> None:
    line = refused(llama, "--layer", 1, "--site", "raw", "--out", tmp_path / "cut")
    assert "its final norm (model.norm) follows the last block" in line and line.endswith(
        "or --format onnx"
    )
    layerscope.truncate(
        bert, 1, tmp_path / "bert", site="raw", progress=False
    )  # it has no norm: raw is what it yields


def test_an_encoder_decoder_without_a_side(tmp_path: Path) -> None:
    with pytest.raises(LayerscopeError, match="choose one with `part='encoder'`"):
        layerscope.truncate(
            zoo.t5(), 1, tmp_path / "cut", processor=word_tokenizer(), progress=False
        )


def edited(source: Path, folder: Path, **changes: object) -> Path:
    folder.mkdir()
    for file in source.iterdir():
        (folder / file.name).write_bytes(file.read_bytes())
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | changes))
    return folder


def test_quantised_and_remote_code_models(refused, bert: Path, tmp_path: Path) -> None:
    quantised = edited(
        bert,
        tmp_path / "q",
        quantization_config={"quant_method": "bitsandbytes", "load_in_8bit": True},
    )
    assert "is quantised" in refused(quantised, "--layer", 1, "--out", tmp_path / "cut")
    remote = edited(
        bert, tmp_path / "r", model_type="mine", auto_map={"AutoModel": "modeling_mine.Mine"}
    )
    line = refused(remote, "--layer", 1, "--out", tmp_path / "cut")
    assert "runs code of its own" in line and "trust" not in line


class Mine(hf.BertModel):
    """A class that no other machine has."""


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (lambda: tiny.Plain(), "Plain is a plain torch module: no config says its depth"),
        (
            lambda: Mine(hf.BertConfig(**tiny.COMMON)),
            "Mine is not one of transformers' own classes",
        ),
        (
            lambda: build(
                lambda: hf.SwinModel(
                    hf.SwinConfig(
                        image_size=32, patch_size=2, embed_dim=16, depths=[2, 2], num_heads=[2, 2]
                    )
                )
            ),
            "the layers of this model differ in width: choose one of its stages with `part`, stage-1",
        ),
    ],
    ids=["plain", "own class", "hierarchical"],
)
def test_what_no_standard_checkpoint_can_hold(
    make: Callable[[], nn.Module], why: str, tmp_path: Path
) -> None:
    with pytest.raises(LayerscopeError, match=why):
        layerscope.truncate(make(), 1, tmp_path / "cut", progress=False)
    assert list(tmp_path.iterdir()) == []


def test_an_adapter_is_to_be_merged_first(llama: Path, tmp_path: Path) -> None:
    from peft import LoraConfig, get_peft_model

    adapted = get_peft_model(
        hf.AutoModelForCausalLM.from_pretrained(llama), LoraConfig(target_modules=["q_proj"])
    )
    with pytest.raises(LayerscopeError, match="merge it"):
        layerscope.truncate(
            adapted, 1, tmp_path / "cut", processor=word_tokenizer(), progress=False
        )


def test_what_is_not_the_layer_is_not_left_behind(
    bert: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = hf.PreTrainedModel.save_pretrained

    def spoilt(built: nn.Module, folder: Path) -> None:
        with torch.no_grad():  # a new tensor: the full model shares the old one
            built.bert.encoder.layer[0].output.dense.bias = nn.Parameter(
                built.bert.encoder.layer[0].output.dense.bias * 1.01
            )
        write(built, folder)

    monkeypatch.setattr(hf.PreTrainedModel, "save_pretrained", spoilt)
    with pytest.raises(
        LayerscopeError, match=r"differs from layer 2 of the full model \(by .*nothing was written"
    ):
        layerscope.truncate(bert, 2, tmp_path / "deep" / "cut", progress=False)
    assert list(tmp_path.iterdir()) == []
