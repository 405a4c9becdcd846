"""Model folders that are broken in every way, one row each with its whole message, for both verbs that load a model."""

import json
import shutil
from pathlib import Path

import pytest
import tiny
import torch
from typed import process

from wrong_input.test_runs import delete, write

AGAIN = "copy or download the model again"
DAMAGED = "model folder '{}' holds a model.safetensors that is damaged or cut short: copy or download it again"


def config(**changed):
    def change(folder):
        path = folder / "config.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | changed))

    return change


def cut(folder):
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:5000])


def only_pickles(folder):
    (folder / "model.safetensors").unlink()
    torch.save(tiny.bert().state_dict(), folder / "pytorch_model.bin")


def remote_code(folder):
    code = dict.fromkeys(("AutoModel", "AutoModelForCausalLM"), "mine.Mine")
    code["AutoConfig"] = "mine.MineConfig"
    config(model_type="mine", architectures=["Mine"], auto_map=code)(folder)
    (folder / "mine.py").write_text(f"open({str(folder / 'ran')!r}, 'w')\n")


def one_part_missing(folder):
    (folder / "model.safetensors").rename(folder / "model-00001-of-00002.safetensors")
    parts = {
        name: f"model-0000{i}-of-00002.safetensors" for i, name in enumerate("ab", 1)
    }
    index = folder / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": parts}))


def no_tokenizer(folder):
    for path in folder.glob("tokenizer*"):
        path.unlink()


def trainer_output(folder):
    inside = folder / "checkpoint-500"
    inside.mkdir()
    for path in [path for path in folder.iterdir() if path.is_file()]:
        path.rename(inside / path.name)


def run_folder(folder):
    for path in folder.iterdir():
        path.unlink()
    (folder / "run.json").write_text("{}")


BROKEN = {
    "no config": (
        delete("config.json"),
        "model folder '{}' holds no config.json: is it a saved model?",
    ),
    "config cut": (
        write("config.json", b'{"model_type": "bert", '),
        f"'{{}}/config.json' is not JSON: {AGAIN}",
    ),
    "more layers": (
        config(num_hidden_layers=4),
        "'{}' lacks weights the model needs (bert.encoder.layer.3.attention.output.LayerNorm.bias, 16 in all)",
    ),
    "no weights": (
        delete("model.safetensors"),
        "model folder '{}' holds no weights (*.safetensors): save the model there again",
    ),
    "weights cut": (cut, DAMAGED),
    "weights a pointer": (
        write(
            "model.safetensors",
            b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 9\n",
        ),
        "model folder '{}' holds a pointer of Git LFS as model.safetensors, not the weights: run git lfs pull",
    ),
    "one part missing": (
        one_part_missing,
        "model folder '{}' lacks model-00002-of-00002.safetensors (1 of 2 files of weights): copy or download it again",
    ),
    "only pickles": (
        only_pickles,
        "model folder '{}' holds its weights as pickles (pytorch_model.bin), which can run code when loaded: "
        "convert them to safetensors, or trust them with --allow-pickle",
    ),
    "remote code": (
        remote_code,
        "'{}' runs code of its own when loaded: read it, then allow it with --trust-remote-code",
    ),
    "tokenizer cut": (
        write("tokenizer.json", b"{"),
        "'{}' has no tokenizer that can be loaded (Expecting property name enclosed in double quotes: "
        "line 1 column 2 (char 1)): save one with the model, or give token ids as data",
    ),
    "adapter of none": (
        write(
            "adapter_config.json",
            b'{"base_model_name_or_path": "nobody/none", "peft_type": "LORA"}',
        ),
        "'nobody/none' is not a local folder, and the hub cannot be reached: check the name, or the network",
    ),
    "a folder above": (
        trainer_output,
        "model folder '{}' holds no config.json: give one of the models in it (checkpoint-500)",
    ),
    "a run": (
        run_folder,
        "model folder '{}' holds no config.json: it is a layerscope run, give the model itself",
    ),
}


SEEN_BY_INSPECT = (
    "config cut",
    "weights cut",
    "one part missing",
    "remote code",
    "a run",
)
"""What a second verb refuses as well; it loads a model in the same way."""


@pytest.fixture
def folder(bert, tmp_path):
    """A model of one's own, to be damaged."""
    return Path(shutil.copytree(bert, tmp_path / "model"))


@pytest.mark.parametrize(
    "verb, name",
    [
        *(("profile", name) for name in BROKEN),
        *(("inspect", name) for name in SEEN_BY_INSPECT),
    ],
)
def test_a_broken_model_folder(refusal, unprofiled, folder, reviews, verb, name):
    damage, message = BROKEN[name]
    damage(folder)
    is_profile = verb == "profile"
    line = unprofiled(folder, reviews) if is_profile else refusal(verb, folder)
    assert line == message.replace("{}", str(folder))
    assert not (folder / "ran").exists()


def test_texts_need_a_tokenizer_and_a_look_at_the_model_needs_none(
    cli, unprofiled, folder, reviews
):
    no_tokenizer(folder)
    assert cli("inspect", folder).status == 0
    assert unprofiled(folder, reviews) == (
        f"'{folder}' has no tokenizer that can be loaded (there is none): save one with the model, "
        "or give token ids as data"
    )


def test_pickles_load_when_they_are_trusted(cli, folder):
    only_pickles(folder)
    assert cli("inspect", folder, "--allow-pickle", "--json").status == 0


NO_HUB = "is not a local folder, and the hub cannot be reached"
NAMES = {
    "": "no model is given: give a hub name, a folder, or minilm",
    "./brt": "model folder 'brt' does not exist, did you mean bert?",
    "brt": f"'brt' {NO_HUB}, did you mean bert?",
    "nobody/none": f"'nobody/none' {NO_HUB}: check the name, or the network",
    "https://huggingface.co/org/model/tree/main": "model 'https://huggingface.co/org/model/tree/main' is a URL: "
    "give its name on the hub (org/model), or a folder",
    "bert/config.json": "model 'bert/config.json' is a file: give the folder that holds config.json and the weights",
}


@pytest.mark.parametrize(
    "verb, name",
    [*(("profile", name) for name in NAMES), ("inspect", ""), ("inspect", "./brt")],
)
def test_a_model_that_is_no_folder(
    refusal, unprofiled, bert, reviews, tmp_path, monkeypatch, verb, name
):
    monkeypatch.chdir(tmp_path)
    shutil.copytree(bert, "bert")
    line = unprofiled(name, reviews) if verb == "profile" else refusal(verb, name)
    assert line == NAMES[name]


def test_a_hub_that_cannot_be_reached_is_reported_without_retries(tmp_path):
    proxies = [f"{scheme}_PROXY" for scheme in ("HTTPS", "HTTP", "ALL")]
    environment = dict.fromkeys([*proxies, *map(str.lower, proxies)], "") | {
        "HF_HUB_OFFLINE": "0",
        "HF_ENDPOINT": "http://127.0.0.1:9",
        "HF_HOME": str(tmp_path),
    }
    # ends within a minute
    printed = process("inspect", "nobody/none", **environment)
    assert printed.status == 2
    assert printed.line == f"'nobody/none' {NO_HUB}: check the name, or the network"


@pytest.mark.parametrize(
    "model, data, line",
    [
        (
            "bert",
            "digits",
            "this model reads texts and the data are images: give texts, or a model of images",
        ),
        (
            "vit",
            "reviews",
            "this model reads images and the data are texts: give images, or a model of texts",
        ),
        (
            "wav2vec2",
            "digits",
            "this model reads sounds and the data are images: give sounds, or a model of images",
        ),
    ],
)
def test_data_of_another_kind(unprofiled, request, model, data, line):
    named = request.getfixturevalue(data) if data == "reviews" else data
    assert unprofiled(request.getfixturevalue(model), named) == line


def test_no_data_for_a_model_of_sounds(refusal, wav2vec2, tmp_path):
    line = (
        "tiny-wav2vec2 reads audio, and layerscope comes with no such data: give --data"
    )
    assert refusal("profile", wav2vec2, "--out", tmp_path / "run") == line
