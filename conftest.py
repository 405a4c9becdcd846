"""What the examples in docstrings find: a folder of their own, with the small files, models and runs that they name."""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

import layerscope

PRAISE = ("good", "great", "kind", "lovely")
BLAME = ("bad", "awful", "rude", "dull")
SUBJECTS = ("the food was", "the staff were", "this book is")
SCORES = {"small": [0.50, 0.58, 0.66, 0.60], "large": [0.52, 0.61, 0.70, 0.68]}
TASKS = {"topics": 0.0, "duplicates": 0.1}
IMPORTED = {"layerscope": "layerscope", "np": "numpy", "pd": "pandas", "torch": "torch"}
"""What every example may use without importing it."""


@pytest.fixture(scope="session", autouse=True)
def _brief() -> None:
    """End every measurement of speed soon: how fast models of a few numbers are is not looked at."""
    from layerscope.early_exit import timing
    from layerscope.truncation import costs

    costs.FEWEST = costs.MOST = 3
    timing.SECONDS, timing.RACE = 1.0, 0.5


@pytest.fixture(autouse=True)
def _workspace(request: pytest.FixtureRequest) -> None:
    """Run each example in an empty folder that holds what the example names, and nothing else."""
    if not isinstance(request.node, pytest.DoctestItem):
        return
    namespace: dict[str, Any] = request.getfixturevalue("doctest_namespace")
    namespace |= {name: import_module(module) for name, module in IMPORTED.items()}
    here: Path = request.getfixturevalue("tmp_path")
    request.getfixturevalue("monkeypatch").chdir(here)
    code = "".join(example.source for example in request.node.dtest.examples)  # type: ignore[union-attr]
    for name in (name for name in MAKERS if name in code):
        source = request.getfixturevalue("made")(name)
        (shutil.copytree if source.is_dir() else shutil.copy)(source, here / name)


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Return a function that gives a file or folder of `MAKERS`, made when it is first needed."""
    folder = tmp_path_factory.mktemp("examples")
    (folder / "runs").mkdir()

    def get(name: str) -> Path:
        if not (folder / name).exists():
            MAKERS[name](folder)
        return folder / name

    return get


def _csv(path: Path, columns: str, rows: list[tuple[object, ...]]) -> None:
    lines = [",".join(map(str, row)) for row in rows]
    path.write_text("\n".join([columns, *lines]) + "\n", encoding="utf-8")


def _reviewed() -> list[tuple[str, str]]:
    labels = dict.fromkeys(PRAISE, "praise") | dict.fromkeys(BLAME, "blame")
    return [
        (f"{subject} {word}", labels[word])
        for subject, word in itertools.product(SUBJECTS, labels)
    ]


def _reviews(folder: Path) -> None:
    _csv(folder / "reviews.csv", "text,label", _reviewed())


def _tickets(folder: Path) -> None:
    rows = [
        (f"{first} {second}", label)
        for (first, label), (second, _) in itertools.product(_reviewed(), repeat=2)
    ]
    _csv(folder / "tickets.csv", "text,label", rows)


def _scores(folder: Path) -> None:
    rows = [
        (*row, task, round(score + shift, 2))
        for *row, score in _by_layer()
        for task, shift in TASKS.items()
    ]
    _csv(folder / "scores.csv", "model,layer,task,main_score", rows)


def _metrics(folder: Path) -> None:
    rows = [
        (model, "wiki", "dataset_entropy", layer, round(3 - 2 * score, 2))
        for model, layer, score in _by_layer()
    ]
    _csv(folder / "metrics.csv", "model,dataset,metric,layer,value", rows)


def _by_layer() -> list[tuple[str, int, float]]:
    return [
        (model, layer, score)
        for model, scores in SCORES.items()
        for layer, score in enumerate(scores)
    ]


def _tiny(folder: Path, name: str) -> None:
    """Save a transformer of three layers with random weights and a tokenizer of the reviews' words."""
    import torch
    import transformers as hf
    from tokenizers import Tokenizer, models, pre_tokenizers

    words = [
        "[PAD]",
        "[UNK]",
        "[MASK]",
        "[END]",
        *dict.fromkeys(" ".join((*SUBJECTS, *PRAISE, *BLAME)).split()),
    ]
    tokenizer = Tokenizer(
        models.WordLevel({word: i for i, word in enumerate(words)}, unk_token="[UNK]")
    )
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    special = {
        "pad_token": "[PAD]",
        "unk_token": "[UNK]",
        "mask_token": "[MASK]",
        "eos_token": "[END]",
    }
    torch.manual_seed(0)
    if name == "tiny-gpt2":
        config = hf.GPT2Config(
            vocab_size=len(words),
            n_embd=16,
            n_layer=3,
            n_head=2,
            bos_token_id=3,
            eos_token_id=3,
        )
        model = hf.GPT2LMHeadModel(config)
    else:
        sizes = {
            "hidden_size": 16,
            "num_hidden_layers": 3,
            "num_attention_heads": 2,
            "intermediate_size": 32,
        }
        config = hf.BertConfig(
            vocab_size=len(words), **sizes, id2label={0: "blame", 1: "praise"}
        )
        model = hf.BertForSequenceClassification(config)
    for part in (
        model,
        hf.PreTrainedTokenizerFast(
            tokenizer_object=tokenizer, model_max_length=64, **special
        ),
    ):
        part.save_pretrained(folder / name)


def _run(folder: Path, name: str, model: str) -> None:
    _reviews(folder)
    layerscope.profile(
        model, folder / "reviews.csv", out=folder / name, views=0, progress=False
    )


def _exits(folder: Path) -> None:
    model, data = (folder / name for name in ("tiny-bert", "reviews.csv"))
    _tiny(folder, "tiny-bert")
    _reviews(folder)
    layerscope.exits(str(model), data, max_disagreement=0.3, progress=False).save(
        folder / "tiny-exits"
    )


def _drafts(folder: Path) -> None:
    _tiny(folder, "tiny-gpt2")
    _reviews(folder)
    few = {"samples": 4, "max_new_tokens": 16, "progress": False}
    layerscope.exits(str(folder / "tiny-gpt2"), folder / "reviews.csv", **few).save(
        folder / "tiny-drafts"
    )


def _steps(folder: Path) -> None:
    for step in (1, 20, 300):
        _tiny(folder / "saved-steps", "tiny-bert")
        (folder / "saved-steps" / "tiny-bert").rename(
            folder / "saved-steps" / f"step{step}"
        )


MAKERS: dict[str, Callable[[Path], None]] = {
    "reviews.csv": _reviews,
    "tickets.csv": _tickets,
    "scores.csv": _scores,
    "metrics.csv": _metrics,
    "tiny-bert": lambda folder: _tiny(folder, "tiny-bert"),
    "tiny-gpt2": lambda folder: _tiny(folder, "tiny-gpt2"),
    "tiny-exits": _exits,
    "tiny-drafts": _drafts,
    "saved-steps": _steps,
    "runs/minilm": lambda folder: _run(folder, "runs/minilm", "minilm"),
    "runs/tiny": lambda folder: (
        _tiny(folder, "tiny-bert"),
        _run(folder, "runs/tiny", str(folder / "tiny-bert")),
    )[1],
}
