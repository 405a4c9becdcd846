"""Of language models: after aligned training predictions settle earlier, and text of every layer is better."""

from dataclasses import dataclass
from itertools import chain
from operator import sub
from pathlib import Path

import numpy as np
import pandas as pd

from layerscope import metrics
from layerscope.generation import open_generation
from layerscope.runs import open_run
from layerscope_papers import drawing
from layerscope_papers.assets import Asset, Assets
from layerscope_papers.bench import settled
from layerscope_papers.intervals import before_last
from layerscope_papers.language import SMALL, Language, Speaker, texts
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
SCALES = {"small": SMALL, "paper": PAPER}
FURTHER = {"steps": SMALL.steps, "learning_rate": 3e-4}
"""How a user's model is trained further, on a part of the user's texts."""
COHERENCE = "coherence.csv"
UNITS = {
    "accuracy": "%",
    "perplexity": "log of perplexity",
    "coherence": "cosine",
    "diversity": "0 … 1",
}


@dataclass(frozen=True)
class Spoken(Asset):
    """Continuations of held-out texts at every layer of a trained model, with their four measures."""

    model: Speaker
    named = "texts of {model}"

    def make(self, out: Path, assets: Assets) -> None:
        """Generate and measure them."""
        from layerscope.generation import generate

        setup = self.model.setup
        _, held = texts(setup)
        generate(
            str(assets.get(self.model)),
            data=held,
            layers="all",
            samples=64,
            prefix=setup.context // 4,
            max_new_tokens=setup.context // 2,
            top_p=0.95,
            measure=True,
            max_length=setup.context,
            out=out,
            progress=False,
        )
        if setup.encoder:
            measured = coherence_by_layer(open_generation(out).texts, setup.encoder)
            measured.to_csv(out / COHERENCE)


def coherence_by_layer(texts: pd.DataFrame, encoder: str) -> pd.Series:
    """Return the mean cosine of prompts and continuations by layer, as an encoder of the hub pools their tokens.

    A text without a word counts nowhere.
    """
    import torch
    from transformers import AutoModel, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(encoder)
    model = AutoModel.from_pretrained(encoder).eval()
    has_words = texts["prompt"].str.strip().ne("") & texts["text"].str.strip().ne("")
    cosines = {}
    for layer, of_layer in texts[has_words].groupby("layer"):
        pooled = []
        for column in ("prompt", "text"):
            sentences = of_layer[column].tolist()
            read = tokenizer(
                sentences, padding=True, truncation=True, return_tensors="pt"
            )
            with torch.inference_mode():
                pooled.append(model(**read).pooler_output)
        cosines[layer] = float(metrics.coherence(*pooled).mean())
    return pd.Series(cosines, name="coherence").rename_axis("layer")


def models(setup: Language) -> dict[str, list[Speaker]]:
    """Return the models of all seeds by how they are trained."""
    aligned = (("schedule", "always"),)
    return {
        "standard": [Speaker(setup, "standard", seed) for seed in range(setup.seeds)],
        "aligned": [
            Speaker(setup, "aligned", seed, aligned) for seed in range(setup.seeds)
        ],
    }


def _trained(setup: Language) -> list[Speaker]:
    return list(chain(*models(setup).values()))


@recipe("T-fig6-text", scales=SCALES, needs=_trained, yours=FURTHER)
def settled_earlier(assets: Assets) -> Evidence:
    """Compare the mean layer from which a prediction of the next token no longer changes."""
    histories = {}
    for name, of in models(assets.settings).items():
        histories[name] = [open_run(assets.get(model) / "history") for model in of]
    return settled(histories)


@recipe(
    "T-fig9",
    scales=SCALES,
    needs=lambda setup: list(map(Spoken, _trained(setup))),
    yours=FURTHER,
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
