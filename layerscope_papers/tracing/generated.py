"""After aligned training, text generated before the last layer is better by four measures."""

from itertools import chain
from operator import sub

import numpy as np
import pandas as pd

from layerscope.generation import open_generation
from layerscope_papers import drawing
from layerscope_papers.assets import Assets
from layerscope_papers.intervals import before_last
from layerscope_papers.language import (
    COHERENCE,
    SMALL,
    Language,
    Speaker,
    Spoken,
)
from layerscope_papers.recipe import Evidence, recipe

PAPER = Language(
    "hf:wikitext/wikitext-103-raw-v1",
    1000,
    hub="gpt2",
    parameters=124e6,
    depth=12,
    context=256,
    steps=40_000,
    batch_size=8,
    learning_rate=2e-5,
    encoder="princeton-nlp/sup-simcse-bert-base-uncased",
)
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
    needs=lambda setup: [*map(Spoken, chain(*models(setup).values()))],
)
def generated(assets: Assets) -> Evidence:
    """Compare each measure seed by seed, on average over the layers before the last."""
    intervals = {}
    plots = []
    for name, unit in UNITS.items():
        curves = {}
        for objective, of in models(assets.settings).items():
            curves[objective] = [_by_layer(assets, model, name) for model in of]
        intervals[name] = before_last(map(sub, curves["aligned"], curves["standard"]))
        plots.append(
            drawing.mean_chart(f"{name.capitalize()} of text by layer", unit, curves)
        )
    return Evidence(intervals, plots=plots)


def _by_layer(assets: Assets, model: Speaker, measure: str) -> pd.Series:
    """Return a measure of the texts of a model by layer: accuracy in percent, of perplexity the logarithm."""
    folder = assets.get(Spoken(model))
    if measure == "coherence" and model.setup.encoder:
        return pd.read_csv(folder / COHERENCE, index_col="layer")[measure]
    values = open_generation(folder).measure(measure)
    if measure == "perplexity":
        return np.log(values)
    return 100 * values if measure == "accuracy" else values
