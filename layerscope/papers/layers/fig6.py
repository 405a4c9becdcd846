"""L-fig6: repeated and random tokens, and longer prompts, move prompt entropy at different depths."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import pandas as pd

from layerscope.papers import drawing
from layerscope.papers.assets import Asset, Assets
from layerscope.papers.intervals import mean
from layerscope.papers.language import LACKS, NOTE, SCALES, Language, Read, entropy, over_texts
from layerscope.papers.recipe import LAYERS, Claim, Evidence, Recipe
from layerscope.papers.released import thirds

SHARES = (0.25, 0.5, 0.75)
LENGTHS = (16, 32, 64, 128)


def judge(assets: Assets) -> Evidence:
    """Compare the entropy of changed texts with that of the texts unchanged, and that of several prompt lengths."""
    plain = entropy(assets)["raw"]
    repeated = {share: entropy(assets, ("repeat_tokens", share))["raw"] for share in SHARES}
    drawn = {share: entropy(assets, ("random_tokens", share))["raw"] for share in SHARES}
    early, middle, _ = thirds(pd.Series(plain.columns[1:], index=plain.columns[1:]))
    found = {
        "repeated": over_texts((repeated[SHARES[-1]] - plain)[middle.index].mean(axis=1)),
        "random": over_texts((drawn[SHARES[-1]] - plain)[early.index].mean(axis=1)),
    }
    by_length = {length: entropy(assets, ("max_length", length))["raw"].iloc[:, 1:].mean(axis=1) for length in LENGTHS}
    means = np.array([each.mean() for each in by_length.values()])
    found["longer"] = mean(list(np.diff(means)))
    rows = pd.concat(by_length, axis=1).dropna()
    steps = np.diff(rows.to_numpy(), axis=1)
    found["falling"] = over_texts(pd.Series([float(np.mean([b < a for a, b in pairwise(row)])) for row in steps]))
    return Evidence(
        found,
        plots=[
            drawing.chart(
                title, "nats", {"unchanged": plain.mean(), **{f"{s:.0%}": t.mean() for s, t in group.items()}}
            )
            for title, group in (("Repeated tokens", repeated), ("Random tokens", drawn))
        ],
    )


def _needs(setup: Language) -> Sequence[Asset]:
    changed = [(kind, share) for kind in ("repeat_tokens", "random_tokens") for share in SHARES]
    cut = [("max_length", length) for length in LENGTHS]
    return [Read(setup), *(Read(setup, (option,)) for option in (*changed, *cut))]


RECIPE = Recipe(
    "L-fig6", LAYERS, "Repetition lowers prompt entropy in the middle, random tokens raise it early, length raises it",
    (
        Claim(
            "repeated", "Repeated tokens lower prompt entropy in the middle layers.",
            f"prompt entropy with {SHARES[-1]:.0%} of tokens repeated minus that of the text unchanged, nats, "
            "middle third",
            0.0, "below", "texts",
        ),
        Claim(
            "random", "Random tokens raise prompt entropy in the early layers.",
            f"prompt entropy with {SHARES[-1]:.0%} of tokens random minus that of the text unchanged, nats, "
            "first third",
            0.0, "above", "texts",
        ),
        Claim(
            "longer", "Longer prompts have a higher prompt entropy.",
            "rise of the mean prompt entropy at each doubling of the length, nats", 0.0, "above", "lengths",
        ),
        Claim(
            "falling", "Each doubling of the length raises prompt entropy by less than the one before.",
            "share of doublings whose rise is below that of the doubling before, mean over texts",
            0.5, "above", "texts",
        ),
    ),
    judge, SCALES, _needs, lacks=LACKS, note=NOTE,
)  # fmt: skip
