"""Every option out of range or misspelt, one row each with its whole message."""

from pathlib import Path

import pytest
import torch
from typed import flagged

from layerscope.runs.registry import METRICS

METRIC_NAMES = f"choose from default, seven, all, {', '.join(METRICS)}"
POOLINGS = "choose auto or some of mean, cls, last, first"
DTYPES = "choose auto, float32, float16, bfloat16, float64"
STORED = "choose float32, float16"
ORDERS = "give numbers of at least 1, such as 1 or 1,2"
SHARE = "give a number above 0 and at most 1"
KINDS = "choose swap, typo, split"
NO_MODULE = (
    "does not exist in this model: name one of its modules, such as bert.encoder.layer"
)


OPTIONS: list[tuple[str, str, str]] = [
    (
        "--samples",
        "many",
        "samples is 'many': give a whole number of at least 2, or all",
    ),
    ("--samples", "1", "samples is 1: give a whole number of at least 2, or all"),
    ("--views", "1001", "views is 1001: give a whole number from 0 to 1000"),
    ("--batch-size", "1.5", "batch_size is '1.5': give a whole number of at least 1"),
    (
        "--max-length",
        "65",
        "max length 65 is beyond the model's 64 positions: give at most that",
    ),
    (
        "--max-length",
        "2",
        "special tokens take 2 of at most 2 tokens and leave no room for text: raise --max-length",
    ),
    (
        "--prompt",
        "w1 " * 62,
        "the prompt and special tokens take 64 of at most 64 tokens and leave no room for text: raise --max-length",
    ),
    (
        "--chunk",
        "8",
        "--chunk packs running text, and this data has samples of its own: leave it out",
    ),
    ("--alpha", "1,0.5", f"alpha is 0.5: {ORDERS}"),
    (
        "--metrics",
        "curvatur",
        f"metric 'curvatur' does not exist, did you mean curvature? ({METRIC_NAMES})",
    ),
    (
        "--prefixes",
        "8,x",
        "prefixes is 'x': give whole numbers of at least 1, such as 8,16,32",
    ),
    ("--metrics", "", "metrics is empty: give names, default, seven or all"),
    (
        "--metrics",
        "linear_probe",
        "nothing to measure: linear_probe is not measured: the data have no labels "
        "(name their column with --label-column)",
    ),
    (
        "--metrics",
        "perplexity",
        "nothing to measure: perplexity is not measured: tiny-bert does not predict the next token",
    ),
    (
        "--pooling",
        "man",
        f"pooling 'man' does not exist, did you mean mean? ({POOLINGS})",
    ),
    ("--pooling", "auto,mean", f"pooling 'auto' does not exist: {POOLINGS}"),
    (
        "--dtype",
        "flaot32",
        f"dtype 'flaot32' does not exist, did you mean float32? ({DTYPES})",
    ),
    (
        "--part",
        "vision",
        "part 'vision' does not exist: these data go through model",
    ),
    ("--part", "", "part '' does not exist: these data go through model"),
    (
        "--blocks",
        "bert.encoder.layr",
        "blocks 'bert.encoder.layr' does not exist in this model, did you mean bert.encoder.layer?",
    ),
    ("--blocks", "", f"blocks '' {NO_MODULE}"),
    (
        "--blocks",
        "bert.encoder.layer.0.intermediate.dense",
        "blocks 'bert.encoder.layer.0.intermediate.dense' does not name a stack of blocks: name the module that holds "
        "them with --blocks, such as bert.encoder.layer",
    ),
    ("--norm", "nome", "norm 'nome' does not exist in this model, did you mean none?"),
    ("--norm", "", f"norm '' {NO_MODULE}"),
    (
        "--norm",
        "bert.encoder.layer.0.intermediate.dense",
        "norm 'bert.encoder.layer.0.intermediate.dense' does not take a state of 32 numbers: name a norm, or none",
    ),
]


@pytest.mark.parametrize(
    ("option", "value", "message"), OPTIONS, ids=[f"{o}={v[:9]}" for o, v, _ in OPTIONS]
)
def test_a_wrong_value(
    refused,
    bert: Path,
    reviews: Path,
    tmp_path: Path,
    option: str,
    value: str,
    message: str,
) -> None:
    assert refused(
        "profile", bert, "--data", reviews, "--out", tmp_path / "run", option, value
    ) == flagged(message, option)


HERE = ", ".join(
    ["auto", "cpu", *[f"cuda:{i}" for i in range(torch.cuda.device_count())], "map"]
)
DEVICES = [
    *([] if torch.cuda.is_available() else ["cuda:0", "cuda"]),
    "cuda:77",
    "gpu",
    "cud",
    "",
    "hpu",
    "meta",
    "CPU",
]


@pytest.mark.parametrize("verb", ["profile", "inspect"])
def test_a_device_that_is_not_there(refused, bert: Path, verb: str) -> None:
    for device in DEVICES:
        line = refused(verb, bert, "--device", device)
        assert line == f"device {device!r} is not on this machine: choose {HERE}"


OF_THE_MODEL = [row for row in OPTIONS if row[0] in ("--part", "--blocks", "--norm")]


def test_inspect_refuses_the_same_blocks_and_norms(refused, bert: Path) -> None:
    for option, value, message in OF_THE_MODEL:
        assert refused("inspect", bert, option, value) == message


DEMO: list[tuple[list[str], str]] = [
    (["--samples", "9"], "--samples is 9: give a whole number of at least 50, or all"),
    (
        ["extra"],
        "'extra' is one word too many for layerscope demo: put texts with spaces in quotes",
    ),
    (
        ["--sample", "5"],
        "option --sample does not exist, did you mean --samples? (layerscope demo --help lists them)",
    ),
]


@pytest.mark.parametrize(
    ("arguments", "message"), DEMO, ids=[" ".join(a) for a, _ in DEMO]
)
def test_a_wrong_demo(
    refused, tmp_path: Path, arguments: list[str], message: str
) -> None:
    assert refused("demo", "--out", tmp_path / "run", *arguments) == message


LISTS = "layerscope profile --help lists them"
WORDS: list[tuple[list[str], str]] = [
    (
        ["profile", "M", "--sample", "5"],
        f"option --sample does not exist, did you mean --samples? ({LISTS})",
    ),
    (
        ["profile", "M", "--data"],
        "option --data needs a value: layerscope profile --help shows which",
    ),
    (
        ["profile", "M", "--json=x"],
        "option --json takes no value: layerscope profile --help shows how",
    ),
    (
        ["profile", "M", "w1", "w2"],
        "'w1' is one word too many for layerscope profile: put texts with spaces in quotes",
    ),
    (
        ["profile", "M", "a.csv"],
        "'a.csv' is one word too many for layerscope profile, did you mean --data a.csv?",
    ),
    (
        ["lens", "M", "a b"],
        "'a b' is one word too many for layerscope lens, did you mean --prompt 'a b'?",
    ),
    (
        ["profile", "M", "a b"],
        "'a b' is one word too many for layerscope profile: leave it out",
    ),
    (
        ["truncate", "M", "--layers", "4-2", "--out", "o"],
        "layers is '4-2', which ends before it begins: give 2-4",
    ),
    (
        ["evaluate", "M", "--tasks", "T", "--layers", "1to3"],
        "layers is '1to3': give whole numbers of at least 0, or all, such as 0,3 or 1-6",
    ),
    (
        ["profile"],
        "no model is given: name one, such as minilm, or states that another engine wrote with --states",
    ),
    (
        ["inspect"],
        "layerscope inspect needs a model, such as layerscope inspect minilm",
    ),
    (
        ["inspect", "M", "--data", "x"],
        "option --data does not exist: layerscope inspect --help lists them",
    ),
    (
        ["profil", "M"],
        "command 'profil' does not exist, did you mean profile? (layerscope --help lists them)",
    ),
]


@pytest.mark.parametrize(
    ("arguments", "message"), WORDS, ids=[" ".join(a) for a, _ in WORDS]
)
def test_a_wrong_word(refused, arguments: list[str], message: str) -> None:
    assert refused(*arguments) == flagged(message, *arguments)


def test_a_revision_of_a_folder(refused, bert: Path) -> None:
    line = refused("inspect", bert, "--revision", "main")
    assert (
        line
        == f"--revision main applies only to hub models, and {str(bert)!r} is a folder: leave it out"
    )


@pytest.mark.parametrize(
    ("option", "value"),
    [("--chunk", "8"), ("--prompt", "query: "), ("--max-length", "8")],
)
def test_what_only_texts_have(
    refused, vit: Path, tmp_path: Path, option: str, value: str
) -> None:
    line = refused(
        "profile",
        vit,
        "--data",
        "digits",
        "--samples",
        9,
        "--out",
        tmp_path / "run",
        option,
        value,
    )
    assert (
        line == f"{option} is for texts, and digits holds image samples: leave it out"
    )


def test_a_cls_that_the_tokenizer_has_not(
    refused, gpt2: Path, reviews: Path, tmp_path: Path
) -> None:
    line = refused(
        "profile",
        gpt2,
        "--data",
        reviews,
        "--out",
        tmp_path / "run",
        "--pooling",
        "cls",
    )
    assert (
        line
        == "pooling 'cls' needs a [CLS] token, and the tokenizer has none: take first, last or mean"
    )
