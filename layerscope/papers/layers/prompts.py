"""What moves the prompt entropy of a language model: changed and longer texts, residual additions, scaled vectors."""

from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd

from layerscope.papers import drawing
from layerscope.papers.assets import Assets
from layerscope.papers.language import LACKS, NOTE, SCALES, Read, entropy, over_texts
from layerscope.papers.recipe import LAYERS, Claim, Evidence, mean, recipe
from layerscope.papers.released import thirds, valley

SHARES = (0.25, 0.5, 0.75)
LENGTHS = (16, 32, 64, 128)
OPTIONS = (
    *((kind, share) for kind in ("repeat_tokens", "random_tokens") for share in SHARES),
    *(("max_length", length) for length in LENGTHS),
)
"""What changes a text or cuts it, as `profile` names it."""
SUBLAYERS = (("sublayers", True),)
BRANCHES = {"attn": "attention's output", "mlp": "MLP's output"}
ROWS: dict[str, tuple[tuple[tuple[str, Any], ...], str]] = {
    "raw": ((("rows", "raw"),), "as they are (the paper's equation 1)"),
    "unit": ((), "scaled to unit length"),
    "centred": ((("rows", "centered"),), "minus their mean, then scaled to unit length (the authors' code)"),
}
"""By name: the options of `profile`, and what becomes of the vectors."""


@recipe(
    "L-fig6", LAYERS, "Repetition lowers prompt entropy in the middle, random tokens raise it early, length raises it",
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
    scales=SCALES, lacks=LACKS, note=NOTE,
    needs=lambda setup: [Read(setup), *(Read(setup, (option,)) for option in OPTIONS)],
)  # fmt: skip
def changed_texts(assets: Assets) -> Evidence:
    """Compare the entropy of changed texts with that of the texts unchanged, and that of several prompt lengths."""
    plain = entropy(assets)["raw"]
    repeated = {share: entropy(assets, ("repeat_tokens", share))["raw"] for share in SHARES}
    drawn = {share: entropy(assets, ("random_tokens", share))["raw"] for share in SHARES}
    early, middle, _ = thirds(pd.Series(plain.columns[1:], index=plain.columns[1:]))
    by_length = {length: entropy(assets, ("max_length", length))["raw"].iloc[:, 1:].mean(axis=1) for length in LENGTHS}
    means = np.array([each.mean() for each in by_length.values()])
    steps = np.diff(pd.concat(by_length, axis=1).dropna().to_numpy(), axis=1)
    return Evidence(
        {
            "repeated": over_texts((repeated[SHARES[-1]] - plain)[middle.index].mean(axis=1)),
            "random": over_texts((drawn[SHARES[-1]] - plain)[early.index].mean(axis=1)),
            "longer": mean(list(np.diff(means))),
            "falling": over_texts(pd.Series([float(np.mean([b < a for a, b in pairwise(row)])) for row in steps])),
        },
        plots=[
            drawing.chart(title, "nats", {"unchanged": plain.mean()} | {f"{s:.0%}": t.mean() for s, t in group.items()})
            for title, group in (("Repeated tokens", repeated), ("Random tokens", drawn))
        ],
    )


@recipe(
    "L-fig15", LAYERS, "Residual additions carry the compression",
    *(
        Claim(
            branch, f"After a residual addition, prompt entropy is lower than in the {word} that is added.",
            f"prompt entropy after the addition minus that of the {word}, nats, mean over blocks",
            0.0, "below", "texts",
        )
        for branch, word in BRANCHES.items()
    ),
    scales=SCALES, needs=lambda setup: [Read(setup, SUBLAYERS)], lacks=LACKS, note=NOTE,
)  # fmt: skip
def residual_additions(assets: Assets) -> Evidence:
    """Compare the entropy after each residual addition with that of the branch that was added."""
    found = entropy(assets, *SUBLAYERS)
    after = {"attn": found["attn_residual"], "mlp": found["raw"].iloc[:, 1:]}  # the block's end is its last addition
    intervals = {branch: over_texts((after[branch] - found[branch]).mean(axis=1)) for branch in BRANCHES}
    sites = {"attention": "attn", "after attention": "attn_residual", "MLP": "mlp", "block": "raw"}
    curves = {name: found[site].mean() for name, site in sites.items()}
    return Evidence(intervals, plots=[drawing.chart("Prompt entropy inside the blocks", "nats", curves)])


@recipe(
    "L-rows", LAYERS, "The valley of prompt entropy, for three ways to scale the tokens' vectors (figure 2)",
    *(
        Claim(
            name, f"With vectors {how}, prompt entropy is lower in the middle third of the layers than in the others.",
            "prompt entropy, first and last third minus middle third, nats", 0.0, "above", "texts",
        )
        for name, (_, how) in ROWS.items()
    ),
    scales=SCALES, needs=lambda setup: [Read(setup, options) for options, _ in ROWS.values()], lacks=LACKS, note=NOTE,
)  # fmt: skip
def scaled_rows(assets: Assets) -> Evidence:
    """Take the depth of the valley in each text's curve, for each way to scale the vectors."""
    by_rows = {name: entropy(assets, *options)["raw"] for name, (options, _) in ROWS.items()}
    found = {name: over_texts(curves.apply(valley, axis=1)) for name, curves in by_rows.items()}
    means = {name: curves.mean() for name, curves in by_rows.items()}
    return Evidence(found, plots=[drawing.chart("Prompt entropy by layer", "nats", means)])
