"""T-fig11: neighbouring layers are alike, as the skip connection outweighs the branch that is added to it."""

from __future__ import annotations

import numpy as np

from layerscope import metrics
from layerscope.papers import drawing
from layerscope.papers.assets import Assets
from layerscope.papers.intervals import mean
from layerscope.papers.recipe import TRACING, Claim, Evidence, Recipe
from layerscope.papers.tracing.fig1 import METRICS
from layerscope.papers.vision import LACKS, SCALES, STANDARD, Bench, needs


def judge(assets: Assets) -> Evidence:
    """Take each block's mean cosine of input and output, and the median ratio of skip connection to branch."""
    bench = Bench(assets, METRICS)
    states = [found[:, 1:] for found in bench.states(STANDARD)]
    cosines = [
        np.array([float(metrics.cosine_similarity(s[:, a], s[:, a + 1]).mean()) for a in range(s.shape[1] - 1)])
        for s in states
    ]
    ratios = [metrics.norm_ratio(each).median(0).values.numpy() for each in states]
    return Evidence(
        {
            "cosine": mean([float(each.min()) for each in cosines]),
            "ratio": mean([float(each.min()) for each in ratios]),
        },
        plots=[
            drawing.chart(title, unit, {"standard": drawing.by_layer(np.mean(found, axis=0), first=2)})
            for title, unit, found in (
                ("Cosine of a block's input and output", "cosine, centred", cosines),
                ("Skip connection against branch", "ratio of norms, median over samples", ratios),
            )
        ],
    )


RECIPE = Recipe(
    "T-fig11", TRACING, "Neighbouring layers are alike: the skip connection outweighs the branch",
    (
        Claim(
            "cosine", "Any two neighbouring layers are alike.",
            "centred cosine of a block's input and output, mean over samples, lowest of the blocks",
            0.5, "above", "seeds",
        ),
        Claim(
            "ratio", "In every block the skip connection outweighs the branch that is added to it.",
            "norm of the block's input over the norm of its change, median over samples, lowest of the blocks",
            1.0, "above", "seeds",
        ),
    ),
    judge, SCALES, needs(STANDARD, metrics=METRICS), lacks=LACKS,
)  # fmt: skip
