"""Options that do not fit a model, its data or each other, one row each with its whole message."""

import shlex

import pytest
import torch
from typed import flagged

from layerscope.core.option_kinds import Several, Whole
from layerscope.runs.registry import METRICS

METRIC_NAMES = f"choose from default, seven, all, {', '.join(METRICS)}"
POOLINGS = "choose auto or some of mean, cls, last, first"
NO_MODULE = "does not exist in this model: name one of its modules"
PART = "part 'vision' does not exist: these data go through model"
BLOCKS = "blocks 'bert.encoder.layr' does not exist in this model, did you mean bert.encoder.layer?"
NORM = "norm 'nome' does not exist in this model, did you mean none?"
DENSE = "bert.encoder.layer.0.intermediate.dense"
OPTIONS = {
    "--max-length 65": "max length 65 is beyond the model's 64 positions: give at most that",
    "--max-length 2": "special tokens take 2 of at most 2 tokens and leave no room for text: raise --max-length",
    "--chunk 8": "--chunk packs running text, and this data has samples of its own: leave it out",
    "--metrics curvatur": f"metric 'curvatur' does not exist, did you mean curvature? ({METRIC_NAMES})",
    "--metrics ''": "metrics is empty: give names, default, seven or all",
    "--metrics linear_probe": (
        "nothing to measure: linear_probe is not measured: the data have no labels "
        "(name their column with --label-column)"
    ),
    "--metrics perplexity": "nothing to measure: perplexity is not measured: tiny-bert does not predict the next token",
    "--pooling auto,mean": f"pooling 'auto' does not exist: {POOLINGS}",
    "--part vision": PART,
    "--blocks bert.encoder.layr": BLOCKS,
    f"--blocks {DENSE}": (
        f"blocks '{DENSE}' does not name a stack of blocks: layers are states of "
        "tokens [B, T, D] or of samples [B, D] that one module hands to the next; name another module, which holds "
        "such a row, or give states that you pooled yourself to `profile(states=...)`"
    ),
    "--norm nome": NORM,
    "--norm ''": f"norm '' {NO_MODULE}",
    f"--norm {DENSE}": f"norm '{DENSE}' does not take a state of 32 numbers: name a norm, or none",
}


@pytest.mark.parametrize("words, message", OPTIONS.items(), ids=OPTIONS)
def test_a_wrong_value(unprofiled, bert, reviews, words, message):
    option, value = shlex.split(words)
    assert unprofiled(bert, reviews, option, value) == flagged(message, option)


HERE = ["auto", "cpu", *[f"cuda:{i}" for i in range(torch.cuda.device_count())], "map"]


@pytest.mark.parametrize("device", ["cuda:77", "gpu", "", "meta", "CPU"])
def test_a_device_that_is_not_there(refusal, bert, device):
    line = refusal("inspect", bert, "--device", device)
    assert line == f"device {device!r} is not on this machine: choose {', '.join(HERE)}"


LISTS = "layerscope profile --help lists them"
MANY = "name its option, and put texts with spaces in quotes"
WORDS = {
    "profile M --sample 5": f"option --sample does not exist, did you mean --samples? ({LISTS})",
    "profile M --data": "option --data needs a value: layerscope profile --help shows which",
    "profile M --json=x": "option --json takes no value: layerscope profile --help shows how",
    "profile M a.csv": f"'a.csv' is one word too many for layerscope profile: {MANY}",
    "evaluate M --tasks T --layers 4-2": "layers is '4-2', which ends before it begins: give 2-4",
    "evaluate M --tasks T --layers 1to3": "layers is '1to3': "
    "give whole numbers of at least 0, or all, such as 0,3 or 1-6",
    "evaluate M --data pairs.csv": "--data 'pairs.csv' is not KIND:FILE: write it as in classification:tickets.csv",
    "evaluate M --task-file sts:pairs.csv": "option --task-file is gone: give the same KIND:FILE to --data",
    "profile": "no model is given: name one, such as minilm, or states that another engine wrote with --states",
    "inspect": "layerscope inspect needs MODEL: layerscope inspect --help shows an example",
    "train M": "layerscope train needs --train: layerscope train --help shows an example",
    "profil M": "command profil does not exist, did you mean profile? (layerscope --help lists them)",
    "demo": "command demo is gone: layerscope profile minilm --data stdlib-docs does the same",
    "inspect M --part vision": PART,
    "inspect M --blocks bert.encoder.layr": BLOCKS,
    "inspect M --norm nome": NORM,
    "inspect M --revision main": "--revision main applies only to hub models, and {!r} is a folder: leave it out",
}


@pytest.mark.parametrize("line, message", WORDS.items(), ids=WORDS)
def test_a_wrong_word(refusal, bert, line, message):
    words = [str(bert) if word == "M" else word for word in line.split()]
    assert refusal(*words) == flagged(message.format(str(bert)), *words)


@pytest.mark.parametrize(
    "option, value",
    [("--chunk", "8"), ("--prompt", "query: "), ("--max-length", "8")],
)
def test_what_only_texts_have(unprofiled, vit, option, value):
    line = f"{option} is for texts, and digits holds image samples: leave it out"
    assert unprofiled(vit, "digits", "--samples", 9, option, value) == line


def test_a_cls_that_the_tokenizer_has_not(unprofiled, gpt2, reviews):
    line = "pooling 'cls' needs a [CLS] token, and the tokenizer has none: take first, last or mean"
    assert unprofiled(gpt2, reviews, "--pooling", "cls") == line


@pytest.mark.parametrize(
    "text, layers",
    [("1..3", [1, 2, 3]), ("0, 2-4,6", [0, 2, 3, 4, 6]), ("-1", [-1])],
)
def test_layers_are_numbers_and_ranges(text, layers):
    assert Several(Whole()).take("layers", text) == layers
