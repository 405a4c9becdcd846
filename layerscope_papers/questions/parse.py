"""Whether aligned training harms tasks other than the one it is trained on: labels of words, by layer."""

import inspect
import io
import json
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import import_module
from operator import sub
from pathlib import Path

import pandas as pd

from layerscope.scores import open_evaluation
from layerscope_papers import drawing
from layerscope_papers.assets import Asset, Assets
from layerscope_papers.language import SMALL, Speaker
from layerscope_papers.recipe import Evidence, at_last, before_last, recipe
from layerscope_papers.tracing import generated

SENTENCES, LEAST, MOST = 150, 8, 24
"""Sentences of a task, and words of each."""
MODULES = ("argparse", "calendar", "configparser", "difflib", "inspect", "textwrap")
DEEPEST = 2
TASK = "depths"
SKIPPED = (tokenize.COMMENT, tokenize.NL, tokenize.INDENT, tokenize.DEDENT)
Sentence = list[tuple[str, str]]
"""Words, each with its label."""


def depths() -> Iterator[Sentence]:
    """Yield logical lines of Python's library that have brackets, each token with the number of those around it."""
    for name in MODULES:
        found: Sentence = []
        depth = 0
        for token in tokenize.generate_tokens(
            io.StringIO(inspect.getsource(import_module(name))).readline
        ):
            if token.type == tokenize.NEWLINE:
                if any(label != "0" for _, label in found):
                    yield found
                found = []
            elif token.type not in SKIPPED and token.string.strip():
                depth += token.string in "([{"
                word = '""' if token.type == tokenize.STRING else token.string
                found.append((word, str(min(depth, DEEPEST))))
                depth -= token.string in ")]}"


@dataclass(frozen=True)
class Tagged(Asset):
    """Scores of every layer of a language model on the depth of brackets around a word."""

    model: Speaker
    minutes = 0.25
    named = "labels of words by {model}"

    def make(self, out: Path, assets: Assets) -> None:
        """Write the labelled words, and judge a probe at every layer."""
        from layerscope.evaluation import evaluate

        out.mkdir(parents=True, exist_ok=True)
        data = out / f"{TASK}.jsonl"
        data.write_text(lines(depths()), encoding="utf-8")
        evaluate(
            str(assets.get(self.model)),
            [f"token-probe:{data}"],
            out / "scores",
            progress=False,
        )


def lines(sentences: Iterator[Sentence]) -> str:
    """Return the first sentences of enough words as JSON lines."""
    chosen = [sentence[:MOST] for sentence in sentences if len(sentence) >= LEAST]
    step = max(1, len(chosen) // SENTENCES)
    rows = [
        dict(zip(("tokens", "labels"), zip(*found, strict=True), strict=True))
        for found in chosen[::step]
    ]
    return "\n".join(map(json.dumps, rows[:SENTENCES]))


@recipe(
    "Q-parse",
    scales={"small": SMALL, "paper": generated.PAPER},
    needs=generated.needed(Tagged),
)
def unharmed(assets: Assets) -> Evidence:
    """Compare aligned and standard training seed by seed, at the last layer and before it."""
    curves = {}
    for name, speakers in generated.models(assets.settings).items():
        curves[name] = [_curve(assets, model) for model in speakers]
    gains = list(map(sub, curves["aligned"], curves["standard"]))
    title = "Probe of the depth of brackets by layer"
    return Evidence(
        {"last": at_last(gains), "earlier": before_last(gains)},
        plots=[drawing.mean_chart(title, "%", curves)],
    )


def _curve(assets: Assets, model: Speaker) -> pd.Series:
    """Return a probe's accuracy in percent at layers 1 … L."""
    table = open_evaluation(assets.get(Tagged(model)) / "scores").table()
    return 100 * table[f"{TASK} (token probe)"].loc[1:]
