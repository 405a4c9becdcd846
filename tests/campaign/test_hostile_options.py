"""Options of every command with values of their types and beyond: each is taken, or refused in one line."""

from __future__ import annotations

import shutil
import signal
from pathlib import Path
from random import Random
from typing import Any

from changes import HOSTILE
from commands import Forks
from trials import Part

from layerscope.cli import app

COMMANDS = {
    "inspect": ["inspect cls"],
    "profile": [
        "profile cls --data table.csv --samples 20 --views 1 --out out",
        "profile vit --data images --out out",
    ],
    "evaluate": [
        "evaluate bert --data linear-probe:table.csv --layers 1 --jobs 1 --out out",
    ],
    "scores": ["scores scores.csv --metrics metrics.csv --bootstrap 9"],
    "select": [
        "select run --no-cost",
        "select scores --no-cost",
        "select other --no-cost",
        "select scores.csv",
    ],
    "truncate": ["truncate cls --layer 1 --out out", "truncate run --layers 1,2 --out out"],
    "train": ["train cls --train table.csv --max-steps 2 --batch-size 8 --out out"],
    "exits": ["exits cls --data table.csv --max-disagreement 0.2 --batch-size 8 --out out"],
    "compare": ["compare run other --out out"],
    "report": ["report run scores --out page.html"],
    "lens": ["lens gpt2 --prompt w1 --out out", "lens cls --data table.csv --samples 2"],
}
WHOLE = [
    "-1",
    "0",
    "1",
    "2",
    "3",
    "7",
    "99",
    "1000000000",
    str(2**31),
    str(2**63),
    "9" * 40,
    "1.5",
    "1e3",
    "nan",
    "x",
    "",
]
NUMBERS = [
    "-1", "0", "0.5", "1", "1.0", "2", "1e-320", "1e308", "1e999", "nan", "inf", "-inf", "-0.0", "x", "", "1,5",
]  # fmt: skip
PATHS = [
    "out", "", ".", "..", "table.csv", "table.csv/x", "no/such/x", "~nobody/x", "/dev/null", "/dev/full",
    "/proc/x", "x" * 300, "a b", "a\nb", "é\u202e", "run", "scores", "cls", "images", "\udcff",
    "-", "--", "*", "%s",
]  # fmt: skip
WORDS = [
    "all", "auto", "none", "default", "seven", "mean", "cls", "last", "first", "mean,cls", "raw", "normed",
    "raw,normed", "0", "1", "1,2", "1,1", ",", "1,,2", "99", "-1", "1-2", "3,2,1", "text", "label", "n",
    "encoder", "decoder", "main", "float32", "float16", "bfloat16", "float64", "int8", "cpu", "cuda", "cuda:0",
    "cuda:99", "meta", "mps", "aligned", "standard", "cosine", "cka", "classifiers", "always", "alternate",
    "linear", "uniform", "0,0,0", "nan,1,1", "one-standard-error", "best", "curvature", "dime",
    "effective_rank", "prompt_entropy", "causal", "swap,typo", "crop", "margin", "patience", "entropy", "onnx",
    "transformers", "sentence-transformers", "masked-lm", "classification", "causal-lm", "token-classification",
    "tracing-glue", "linear-probe:table.csv", "sts:sts.csv", "classification:", ":", ":table.csv",
    "clustering:table.tsv", "retrieval:retrieval.jsonl", "token-probe:tokens.jsonl", "STSBenchmark", "25/32",
    "1/0", "-1/2", "hf:x", "digits", "stdlib-docs", "bert.encoder.layer", "classifier", "a", "b",
]  # fmt: skip
KINDS = {"INTEGER": WHOLE, "NUMBER": NUMBERS, "FOLDER": PATHS, "FILE": PATHS}
"""Values by what an option's declaration says."""


def options(command: str) -> list[Any]:
    return [
        option
        for option in app[command].assemble_argument_collection()
        if option.name.startswith("-")
    ]


def value(option: Any, rng: Random) -> list[str]:
    """Return an option's words: a value of its type, or one of any other."""
    name = rng.choice(option.names)
    if option.hint is bool or "--no-" in name:
        return [name]
    kind = str(option.parameter.metavar)
    own = next((values for sign, values in KINDS.items() if sign in kind), WORDS)
    texts = [text for text in HOSTILE if "\0" not in text and "\ud800" not in text]
    return [name, rng.choice(rng.choice([own, own, own, own, texts, WHOLE, PATHS, WORDS]))]


def test_hostile_options(forks: Forks, made: Path, tmp_path: Path) -> None:
    for trial in Part("options", few=12, share=0.1).trials():
        with trial:
            rng = trial.random
            name = rng.choice(list(COMMANDS))
            words = rng.choice(COMMANDS[name]).split()
            for option in rng.sample(options(name), rng.choice([1, 1, 2, 3])):
                words += value(option, rng)
            place = tmp_path / "trial" / "in"
            place.mkdir(parents=True)
            for other in made.iterdir():
                (shutil.copytree if other.is_dir() else shutil.copyfile)(other, place / other.name)
            command = forks.start(*words, cwd=place, env={"HOME": str(place)})
            ended = command.wait(seconds=60)
            trial.outcome = "refused" if ended.status else "taken"
            if ended.status == -signal.SIGALRM:  # a million steps take their time
                trial.outcome = "long"
                print(f"long: {words}\n{ended.err[-300:]}")
            else:
                complaint = ended.complaint()
                assert complaint is None, f"{complaint}: {words}\n{ended.err[-1500:]}"
        shutil.rmtree(tmp_path / "trial", ignore_errors=True)
