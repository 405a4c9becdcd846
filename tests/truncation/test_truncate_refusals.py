"""What cannot be truncated: one line with the reason, and nothing left behind."""

import pytest
import tiny
import transformers as hf
from models import zoo
from models.tokenizer import word_tokenizer
from models.zoo import build
from torch import nn
from truncation.cutting import cut
from typed import flagged, refused

NONE = "no block would be left of the"
LINES = {
    "--layer 13": "layer 13 does not exist: this model has layers 0..3",
    "--layer 0": "layer 0 is what the first block reads: no block would be left of the model, give 1..3",
    "": "truncate needs a layer: give --layer, or blocks to leave out with --drop, such as 4-7,9",
    "--drop 1-3": f"{NONE} 3: drop fewer of them",
    "--drop 2,4": "block 4 does not exist: this model has blocks 1..3",
    "--layer 2 --drop 1,3": "block 3 is not among the first 2: leave it out of --drop",
    "--layer 1 --drop 1": f"{NONE} 1: drop fewer of them",
    "--layers 1,2": "option --layers is gone: ",
    "--layer 1 --part decoder": "part 'decoder' does not exist: these data go through model",
}  # fmt: skip


@pytest.mark.parametrize("options, line", LINES.items(), ids=LINES)
def test_wrong_options(options, line, refusal, bert, tmp_path):
    words = options.split()
    assert refusal("truncate", bert, "--out", tmp_path / "cut", *words).startswith(
        flagged(line, *words)
    )


def test_no_place_to_write(refusal, bert, tmp_path):
    full, file, empty = tmp_path / "full", tmp_path / "file", tmp_path / "empty"
    full.mkdir()
    (full / "mine.txt").write_text("keep")
    file.write_text("keep")
    line = "truncate needs --out: a new folder for the model"
    assert refusal("truncate", bert, "--layer", 1) == line
    for out, line in (
        ("", "out is empty: name a folder"),
        (full, "exists and is not empty: name a new folder"),
        (file, "is a file"),
        (file / "below", "is a file"),
    ):
        assert line in refusal("truncate", bert, "--layer", 1, "--out", out)
    empty.mkdir()
    assert (cut(bert, 1, empty) / "config.json").is_file()


class Mine(hf.BertModel):
    """A class that no other machine has."""


def swin():
    stages = {"depths": [2, 2], "num_heads": [2, 2], "embed_dim": 16}
    return build(
        lambda: hf.SwinModel(hf.SwinConfig(image_size=32, patch_size=2, **stages))
    )


def adapted():
    from peft import LoraConfig, get_peft_model

    return get_peft_model(tiny.llama(), LoraConfig(target_modules=["q_proj"]))


MODELS = {
    "Plain is a plain torch module: no config says its depth": tiny.Plain,
    "Mine is not one of transformers' own classes": lambda: Mine(
        hf.BertConfig(**tiny.COMMON)
    ),
    "encoder.layers.0 is run as well as encoder.layers.1": swin,
    "merge it": adapted,
    "choose one with `part='encoder'`": zoo.t5,
}


@pytest.mark.parametrize("why, make", MODELS.items(), ids=MODELS)
def test_what_no_standard_checkpoint_can_hold(why, make, tmp_path):
    processor = word_tokenizer() if make in (adapted, zoo.t5) else None
    with refused(why):
        cut(make(), 1, tmp_path / "cut", processor=processor)
    assert list(tmp_path.iterdir()) == []


def test_what_is_not_the_layer_is_not_left_behind(bert, tmp_path, monkeypatch):
    write = hf.PreTrainedModel.save_pretrained

    def spoilt(built, folder):
        dense = built.bert.encoder.layer[0].output.dense
        # a new tensor: the full model shares the old one
        dense.bias = nn.Parameter(dense.bias.detach() * 1.01)
        write(built, folder)

    monkeypatch.setattr(hf.PreTrainedModel, "save_pretrained", spoilt)
    with refused(r"differs from layer 2 of the full model \(by .*nothing was written"):
        cut(bert, 2, tmp_path / "deep" / "cut")
    assert list(tmp_path.iterdir()) == []
