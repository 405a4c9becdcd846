"""What moves the prompt entropy of a language model: changed and longer texts, residual additions, scaled vectors.

Prompt entropy is that of the token states of one text, so that every text is a sample: a claim about
a model is judged on the difference that a change makes text by text, with its interval over texts.

Where a claim explains the valley in the middle layers, a model without one says nothing about it;
the claim is not applicable then.
"""

from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from layerscope_papers import drawing
from layerscope_papers.assets import Assets
from layerscope_papers.intervals import bootstrap, mean
from layerscope_papers.language import (
    PAPER,
    SCALES,
    Language,
    Read,
    entropy,
)
from layerscope_papers.recipe import Evidence, Number, recipe
from layerscope_papers.released import valleys

SHARES = (0.25, 0.5, 0.75)
LENGTHS = (16, 32, 64, 128)
OPTIONS = (
    *((kind, share) for kind in ("repeat_tokens", "random_tokens") for share in SHARES),
    *(("max_length", length) for length in LENGTHS),
)
"""What changes a text or cuts it, as `profile` names it."""
SUBLAYERS = (("sublayers", True),)
ROWS: dict[str, tuple[tuple[str, Any], ...]]
ROWS = {"raw": (("rows", "raw"),), "unit": (), "centred": (("rows", "centered"),)}
"""By claim: the options of `profile`."""
REASONING = (
    replace(PAPER, hub="Qwen/Qwen2.5-7B", parameters=7.6e9),
    replace(PAPER, hub="Qwen/Qwen2.5-Math-7B-Instruct", parameters=7.6e9),
)
"""A language model, and what became of it by more mathematics and tuning on chains of thought."""
NO_VALLEY = "a model whose entropy has a valley"


@recipe(
    "L-fig6",
    scales=SCALES,
    yours={},
    needs=lambda setup: [Read(setup), *(Read(setup, (option,)) for option in OPTIONS)],
)
def changed_texts(assets: Assets) -> Evidence:
    """Compare the entropy of changed texts with that of the texts unchanged, and that of several prompt lengths.

    Text by text:

    - repeated: what repeating most of the tokens adds, mean over the middle third of the layers;
    - random: what drawing most of the tokens at random adds, mean over the first third;
    - longer: how much higher the longest beginning lies than the shortest, mean over layers;
    - falling: in which share of the doublings of the length the rise is below the rise before.
    """
    plain = entropy(assets)["raw"]
    early, middle, _ = np.array_split(plain.columns[1:], 3)
    intervals = {}
    plots = []
    for claim, option, layers in (
        ("repeated", "repeat_tokens", middle),
        ("random", "random_tokens", early),
    ):
        curves = {"unchanged": plain.mean()}
        for share in SHARES:
            changed = entropy(assets, (option, share))["raw"]
            curves[f"{share:.0%}"] = changed.mean()
        # at the largest share
        change = (changed - plain)[layers]
        intervals[claim] = mean(change.mean(axis=1))
        plots.append(drawing.chart(f"{claim.capitalize()} tokens", "nats", curves))
    lengths = _by_length(assets, assets.settings)
    intervals["longer"] = mean(lengths[LENGTHS[-1]] - lengths[LENGTHS[0]])
    rises = lengths.diff(axis=1).iloc[:, 1:]
    is_smaller = rises.diff(axis=1).iloc[:, 1:] < 0
    intervals["falling"] = mean(is_smaller.mean(axis=1))
    return Evidence(intervals, plots=plots)


def _by_length(assets: Assets, setup: Language) -> pd.DataFrame:
    """Return the entropy of the first tokens of each text, mean over layers, `[text, number of tokens]`.

    Texts that are too short for the longest beginning are left out.
    """
    by_length = {}
    for length in LENGTHS:
        by_site = entropy(assets, ("max_length", length), setup=setup)
        layers = by_site["raw"].iloc[:, 1:]
        by_length[length] = layers.mean(axis=1)
    return pd.concat(by_length, axis=1).dropna()


def _read_at_lengths(setups: Sequence[Language]) -> list[Read]:
    each = product(setups, LENGTHS)
    return [Read(setup, (("max_length", length),)) for setup, length in each]


@recipe("L-fig5", scales={"paper": REASONING}, needs=_read_at_lengths)
def reasoning(assets: Assets) -> Evidence:
    """Compare the entropy of the same texts, and its spread over texts, after tuning and before.

    - higher: how much the entropy of a text rises, mean over layers and lengths;
    - steadier: how much the deviation over texts changes, mean over lengths; texts are drawn again
      in pairs, as both models read the same ones.
    """
    base, tuned = (_by_length(assets, setup) for setup in assets.settings)
    texts = base.index.intersection(tuned.index)
    both = np.stack([base.loc[texts], tuned.loc[texts]], axis=1)
    curves = {"before tuning": base.mean(), "after tuning": tuned.mean()}
    return Evidence(
        {
            "higher": mean((tuned - base).mean(axis=1)),
            "steadier": bootstrap(both, _wider),
        },
        plots=[drawing.chart("Prompt entropy by number of tokens", "nats", curves)],
    )


def _wider(both: npt.NDArray[np.float64]) -> float:
    """Return how much wider entropies `[text, before or after, length]` are spread over texts after than before."""
    before, after = both.std(axis=0)
    return float((after - before).mean())


@recipe(
    "L-fig15", scales=SCALES, yours={}, needs=lambda setup: [Read(setup, SUBLAYERS)]
)
def residual_additions(assets: Assets) -> Evidence:
    """Compare the valley after each residual addition with that of the branch that was added.

    Both branches of a block are judged by themselves: attention's output and the state after it is
    added (attn), and the MLP's output and the end of the block (mlp). A model whose blocks end
    without a valley has none that an addition could bring.
    """
    entropies = entropy(assets, *SUBLAYERS)
    of_block = entropies["raw"].iloc[:, 1:]
    # the block's end is its last addition
    branches = {
        "attn": (entropies["attn"], entropies["attn_residual"]),
        "mlp": (entropies["mlp"], of_block),
    }
    deeper = {}
    for name, (branch, after) in branches.items():
        deeper[name] = mean(valleys(after) - valleys(branch))
    depth = mean(valleys(entropies["raw"]))
    curves = {
        "attention": entropies["attn"].mean(),
        "after attention": entropies["attn_residual"].mean(),
        "MLP": entropies["mlp"].mean(),
        "block": of_block.mean(),
    }
    return Evidence(
        deeper,
        [Number.of("valley of the blocks' outputs [nats]", depth)],
        [drawing.chart("Prompt entropy inside the blocks", "nats", curves)],
        inapplicable={} if depth.low > 0 else dict.fromkeys(deeper, NO_VALLEY),
    )


@recipe(
    "L-rows",
    scales=SCALES,
    yours={},
    needs=lambda setup: [Read(setup, options) for options in ROWS.values()],
)
def scaled_rows(assets: Assets) -> Evidence:
    """Take the depth of the valley in each text's curve, for each way to scale the vectors.

    The paper's equation 1 takes them as they are (raw), `profile` by default scales them to unit length, and the
    authors' code subtracts their mean first (centred). Where none shows a valley, the model is none
    to ask.
    """
    by_rows = {}
    for name, options in ROWS.items():
        by_rows[name] = entropy(assets, *options)["raw"]
    intervals = {name: mean(valleys(curves)) for name, curves in by_rows.items()}
    means = {name: curves.mean() for name, curves in by_rows.items()}
    flat = all(interval.low <= 0 for interval in intervals.values())
    return Evidence(
        intervals,
        plots=[drawing.chart("Prompt entropy by layer", "nats", means)],
        inapplicable=dict.fromkeys(intervals, NO_VALLEY) if flat else {},
    )
