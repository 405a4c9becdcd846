"""L-rows: whether prompt entropy has its valley depends on how the tokens' vectors are scaled before it is taken."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from layerscope.papers import drawing
from layerscope.papers.assets import Asset, Assets
from layerscope.papers.language import LACKS, NOTE, SCALES, Language, Read, entropy, over_texts
from layerscope.papers.recipe import LAYERS, Claim, Evidence, Recipe
from layerscope.papers.released import valley

ROWS: dict[str, tuple[tuple[tuple[str, Any], ...], str]] = {
    "raw": ((("rows", "raw"),), "as they are (the paper's equation 1)"),
    "unit": ((), "scaled to unit length"),
    "centred": ((("rows", "centered"),), "minus their mean, then scaled to unit length (the authors' code)"),
}
"""By name: the options of `profile`, and what becomes of the vectors."""


def judge(assets: Assets) -> Evidence:
    """Take the depth of the valley in each text's curve, for each way to scale the vectors."""
    by_rows = {name: entropy(assets, *options)["raw"] for name, (options, _) in ROWS.items()}
    found = {name: over_texts(curves.apply(valley, axis=1)) for name, curves in by_rows.items()}
    means = {name: curves.mean() for name, curves in by_rows.items()}
    return Evidence(found, plots=[drawing.chart("Prompt entropy by layer", "nats", means)])


def _needs(setup: Language) -> Sequence[Asset]:
    return [Read(setup, options) for options, _ in ROWS.values()]


RECIPE = Recipe(
    "L-rows", LAYERS, "The valley of prompt entropy, for three ways to scale the tokens' vectors (figure 2)",
    tuple(
        Claim(
            name, f"With vectors {how}, prompt entropy is lower in the middle third of the layers than in the others.",
            "prompt entropy, first and last third minus middle third, nats", 0.0, "above", "texts",
        )
        for name, (_, how) in ROWS.items()
    ),
    judge, SCALES, _needs, lacks=LACKS, note=NOTE,
)  # fmt: skip
