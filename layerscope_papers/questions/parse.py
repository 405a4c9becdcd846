"""Whether aligned training harms tasks other than the one it is trained on: labels of words, by layer."""

import inspect
import io
import json
import keyword
import tokenize
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import import_module
from operator import sub
from pathlib import Path

import pandas as pd

from layerscope.scores import open_evaluation
from layerscope_papers import drawing
from layerscope_papers.assets import Asset, Assets
from layerscope_papers.language import SMALL, Language, Speaker, texts
from layerscope_papers.recipe import Evidence, Interval, at_last, before_last, recipe
from layerscope_papers.tracing import generated

SENTENCES, LEAST, MOST = 150, 8, 24
"""Sentences of a task, and words of each."""
MODULES = ("argparse", "calendar", "configparser", "difflib", "inspect", "textwrap")
DEEPEST = 2
SKIPPED = (tokenize.COMMENT, tokenize.NL, tokenize.INDENT, tokenize.DEDENT)
Sentence = list[tuple[str, str]]
"""Words, each with its label."""


def kinds(setup: Language) -> Iterator[Sentence]:
    """Yield held-out texts, each word with its kind, which is seen in its letters."""
    for text in texts(setup)[1].samples:
        yield [(word, kind(word)) for word in str(text).split()]


def kind(word: str) -> str:
    """Return what a word is: a word of Python, code, a number, capitalised, or plain.

    >>> kind("while"), kind("os.path"), kind("42,"), kind("Return"), kind("text.")
    ('keyword', 'code', 'number', 'capitalised', 'plain')
    """
    bare = word.strip(".,;:!?\"'")
    if keyword.iskeyword(bare):
        return "keyword"
    if any(sign in bare for sign in "_.()[]{}=<>*/`"):
        return "code"
    return (
        "number"
        if any(map(str.isdigit, bare))
        else "capitalised"
        if bare[:1].isupper()
        else "plain"
    )


def depths(setup: Language) -> Iterator[Sentence]:
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


TASKS: dict[str, tuple[Callable[[Language], Iterator[Sentence]], str]] = {
    "kinds": (kinds, "kind of a word"), "depths": (depths, "depth of brackets"),
}  # fmt: skip


@dataclass(frozen=True)
class Tagged(Asset):
    """Scores of every layer of a language model on labels of words."""

    model: Speaker
    minutes = 0.25
    named = "labels of words by {model}"

    def make(self, out: Path, assets: Assets) -> None:
        """Write the labelled words, and judge a probe at every layer."""
        from layerscope.evaluation import evaluate

        out.mkdir(parents=True, exist_ok=True)
        for name, (sentences, _) in TASKS.items():
            (out / f"{name}.jsonl").write_text(
                lines(sentences(self.model.setup)), encoding="utf-8"
            )
        tasks = [f"token-probe:{out / name}.jsonl" for name in TASKS]
        evaluate(str(assets.get(self.model)), tasks, out / "scores", progress=False)


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
    found, plots = dict[str, Interval](), []
    for task, (_, title) in TASKS.items():
        trainings = generated.models(assets.settings)
        curves = {
            name: [_curve(assets, model, task) for model in of]
            for name, of in trainings.items()
        }
        gains = list(map(sub, curves["aligned"], curves["standard"]))
        found |= {
            f"{task}, last": at_last(gains),
            f"{task}, earlier": before_last(gains),
        }
        plots.append(drawing.mean_chart(f"Probe of the {title} by layer", "%", curves))
    return Evidence(found, plots=plots)


def _curve(assets: Assets, model: Speaker, task: str) -> pd.Series:
    """Return a probe's accuracy in percent at layers 1 … L."""
    table = open_evaluation(assets.get(Tagged(model)) / "scores").table()
    return 100 * table[f"{task} (token probe)"].loc[1:]
