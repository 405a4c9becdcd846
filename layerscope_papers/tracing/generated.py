"""After aligned training, text generated before the last layer is better by four measures."""

import numpy as np

from layerscope.generation import open_generation
from layerscope_papers import drawing
from layerscope_papers.assets import Assets
from layerscope_papers.language import SMALL, Language, Speaker, Spoken
from layerscope_papers.recipe import Evidence, before_last, recipe

PAPER = Language(
    "hf:wikitext/wikitext-103-raw-v1",
    1000,
    hub="gpt2",
    depth=12,
    context=256,
    steps=40_000,
    batch_size=8,
    learning_rate=2e-5,
)
SCALE = {"accuracy": 100.0}
"""What a measure is multiplied by; perplexity is compared by its logarithm."""
UNITS = {
    "accuracy": "%",
    "perplexity": "log of perplexity",
    "coherence": "cosine",
    "diversity": "0 … 1",
}


def models(setup: Language) -> dict[str, list[Speaker]]:
    """Return the models of all seeds by how they are trained."""
    aligned = (("schedule", "always"),)
    return {
        "standard": [Speaker(setup, "standard", seed) for seed in range(setup.seeds)],
        "aligned": [
            Speaker(setup, "aligned", seed, aligned) for seed in range(setup.seeds)
        ],
    }


@recipe(
    "T-fig9",
    scales={"small": SMALL, "paper": PAPER},
    needs=lambda setup: [
        Spoken(model) for of in models(setup).values() for model in of
    ],
)
def generated(assets: Assets) -> Evidence:
    """Compare each measure seed by seed, on average over the layers before the last."""
    found, plots = {}, []
    for name, unit in UNITS.items():
        curves = {}
        for objective, of in models(assets.settings).items():
            values = [
                open_generation(assets.get(Spoken(model))).measure(name) for model in of
            ]
            curves[objective] = [
                np.log(c) if name == "perplexity" else SCALE.get(name, 1.0) * c
                for c in values
            ]
        found[name] = before_last(
            a - b for a, b in zip(curves["aligned"], curves["standard"], strict=True)
        )
        plots.append(
            drawing.mean_chart(f"{name.capitalize()} of text by layer", unit, curves)
        )
    return Evidence(found, plots=plots)
