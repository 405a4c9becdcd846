"""What moves the prompt entropy of a language model: changed and longer texts, residual additions, scaled vectors."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise, product
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from layerscope_papers import drawing
from layerscope_papers.assets import Assets
from layerscope_papers.language import (
    PAPER,
    SCALES,
    Language,
    Read,
    entropy,
    over_texts,
    yours,
)
from layerscope_papers.recipe import Evidence, Number, bootstrap, recipe
from layerscope_papers.released import thirds, valley

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
    yours=yours,
    needs=lambda setup: [Read(setup), *(Read(setup, (option,)) for option in OPTIONS)],
)
def changed_texts(assets: Assets) -> Evidence:
    """Compare the entropy of changed texts with that of the texts unchanged, and that of several prompt lengths."""
    plain = entropy(assets)["raw"]
    repeated = {
        share: entropy(assets, ("repeat_tokens", share))["raw"] for share in SHARES
    }
    drawn = {
        share: entropy(assets, ("random_tokens", share))["raw"] for share in SHARES
    }
    early, middle, _ = thirds(pd.Series(plain.columns[1:], index=plain.columns[1:]))
    lengths = _by_length(assets, assets.settings)
    steps = np.diff(lengths.to_numpy(), axis=1)
    return Evidence(
        {
            "repeated": over_texts(
                (repeated[SHARES[-1]] - plain)[middle.index].mean(axis=1)
            ),
            "random": over_texts((drawn[SHARES[-1]] - plain)[early.index].mean(axis=1)),
            "longer": over_texts(lengths[LENGTHS[-1]] - lengths[LENGTHS[0]]),
            "falling": over_texts(
                pd.Series(
                    [float(np.mean([b < a for a, b in pairwise(row)])) for row in steps]
                )
            ),
        },
        plots=[
            drawing.chart(
                title,
                "nats",
                {"unchanged": plain.mean()}
                | {f"{s:.0%}": t.mean() for s, t in group.items()},
            )
            for title, group in (
                ("Repeated tokens", repeated),
                ("Random tokens", drawn),
            )
        ],
    )


def _by_length(assets: Assets, setup: Language) -> pd.DataFrame:
    """Return the entropy of the first tokens of each text, mean over layers, `[text, number of tokens]`."""
    found = {}
    for length in LENGTHS:
        layers = entropy(assets, ("max_length", length), setup=setup)["raw"].iloc[:, 1:]
        found[length] = layers.mean(axis=1)
    return pd.concat(found, axis=1).dropna()


def _read_at_lengths(setups: Sequence[Language]) -> list[Read]:
    each = product(setups, LENGTHS)
    return [Read(setup, (("max_length", length),)) for setup, length in each]


@recipe("L-fig5", scales={"paper": REASONING}, needs=_read_at_lengths)
def reasoning(assets: Assets) -> Evidence:
    """Compare the entropy of the same texts, and its spread over texts, after tuning and before."""
    base, tuned = (_by_length(assets, setup) for setup in assets.settings)
    texts = base.index.intersection(tuned.index)
    both = np.stack([base.loc[texts], tuned.loc[texts]], axis=1)
    curves = {"before tuning": base.mean(), "after tuning": tuned.mean()}
    return Evidence(
        {
            "higher": over_texts((tuned - base).mean(axis=1)),
            "steadier": bootstrap(both, _wider),
        },
        plots=[drawing.chart("Prompt entropy by number of tokens", "nats", curves)],
    )


def _wider(both: npt.NDArray[np.float64]) -> float:
    """Return how much wider entropies `[text, before or after, length]` are spread over texts after than before."""
    before, after = both.std(axis=0)
    return float((after - before).mean())


@recipe(
    "L-fig15", scales=SCALES, yours=yours, needs=lambda setup: [Read(setup, SUBLAYERS)]
)
def residual_additions(assets: Assets) -> Evidence:
    """Compare the valley after each residual addition with that of the branch that was added."""
    found = entropy(assets, *SUBLAYERS)
    # the block's end is its last addition
    after = {
        "attn": found["attn_residual"],
        "mlp": found["raw"].iloc[:, 1:],
    }
    deeper = {
        branch: after[branch].apply(valley, axis=1)
        - found[branch].apply(valley, axis=1)
        for branch in after
    }
    depth = over_texts(found["raw"].apply(valley, axis=1))
    sites = {
        "attention": "attn",
        "after attention": "attn_residual",
        "MLP": "mlp",
        "block": "raw",
    }
    curves = {name: found[site].mean() for name, site in sites.items()}
    return Evidence(
        {branch: over_texts(each) for branch, each in deeper.items()},
        [Number.of("valley of the blocks' outputs [nats]", depth)],
        [drawing.chart("Prompt entropy inside the blocks", "nats", curves)],
        inapplicable={} if depth.low > 0 else dict.fromkeys(deeper, NO_VALLEY),
    )


@recipe(
    "L-rows",
    scales=SCALES,
    yours=yours,
    needs=lambda setup: [Read(setup, options) for options in ROWS.values()],
)
def scaled_rows(assets: Assets) -> Evidence:
    """Take the depth of the valley in each text's curve, for each way to scale the vectors."""
    by_rows = {name: entropy(assets, *options)["raw"] for name, options in ROWS.items()}
    found = {
        name: over_texts(curves.apply(valley, axis=1))
        for name, curves in by_rows.items()
    }
    means = {name: curves.mean() for name, curves in by_rows.items()}
    flat = all(interval.low <= 0 for interval in found.values())
    return Evidence(
        found,
        plots=[drawing.chart("Prompt entropy by layer", "nats", means)],
        inapplicable=dict.fromkeys(found, NO_VALLEY) if flat else {},
    )
