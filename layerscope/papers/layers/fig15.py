"""L-fig15: inside the blocks, the residual additions carry the compression."""

from __future__ import annotations

from collections.abc import Sequence

from layerscope.papers import drawing
from layerscope.papers.assets import Asset, Assets
from layerscope.papers.language import LACKS, NOTE, SCALES, Language, Read, entropy, over_texts
from layerscope.papers.recipe import LAYERS, Claim, Evidence, Recipe

SUBLAYERS = (("sublayers", True),)
BRANCHES = ("attn", "mlp")


def judge(assets: Assets) -> Evidence:
    """Compare the entropy after each residual addition with that of the branch that was added."""
    found = entropy(assets, *SUBLAYERS)
    after = {"attn": found["attn_residual"], "mlp": found["raw"].iloc[:, 1:]}  # the block's end is its last addition
    intervals = {branch: over_texts((after[branch] - found[branch]).mean(axis=1)) for branch in BRANCHES}
    sites = {"attention": "attn", "after attention": "attn_residual", "MLP": "mlp", "block": "raw"}
    curves = {name: found[site].mean() for name, site in sites.items()}
    return Evidence(intervals, plots=[drawing.chart("Prompt entropy inside the blocks", "nats", curves)])


def _needs(setup: Language) -> Sequence[Asset]:
    return [Read(setup, SUBLAYERS)]


RECIPE = Recipe(
    "L-fig15", LAYERS, "Residual additions carry the compression",
    tuple(
        Claim(
            branch, f"After a residual addition, prompt entropy is lower than in the {word} that is added.",
            f"prompt entropy after the addition minus that of the {word}, nats, mean over blocks",
            0.0, "below", "texts",
        )
        for branch, word in zip(BRANCHES, ("attention's output", "MLP's output"), strict=True)
    ),
    judge, SCALES, _needs, lacks=LACKS, note=NOTE,
)  # fmt: skip
