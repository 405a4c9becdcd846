"""What tuning a language model to embed does to its layers (section 4.2, figure 13)."""

from dataclasses import replace

from layerscope.runs import open_run
from layerscope_papers import drawing
from layerscope_papers.assets import Assets
from layerscope_papers.intervals import mean
from layerscope_papers.language import ENTROPY, PAPER, Read, by_sample
from layerscope_papers.recipe import Evidence, recipe

BASE = "base"
INVARIANCE = "infonce"
OPTIONS = (
    ("metrics", (ENTROPY, INVARIANCE)),
    ("views", 2),
    ("trust_remote_code", True),
)
"""The tuned models bring code of their own, which lets tokens attend to later ones."""


HUB = {
    BASE: "meta-llama/Meta-Llama-3-8B-Instruct",
    "unsupervised": "McGill-NLP/LLM2Vec-Meta-Llama-3-8B-Instruct-mntp-unsup-simcse",
    "supervised": "McGill-NLP/LLM2Vec-Meta-Llama-3-8B-Instruct-mntp-supervised",
}
"""Llama 3, and what became of it by tuning without labels and with them."""
MODELS = {name: replace(PAPER, hub=hub, parameters=8e9) for name, hub in HUB.items()}


@recipe(
    "L-fig13",
    scales={"paper": MODELS},
    needs=lambda models: [Read(setup, OPTIONS) for setup in models.values()],
)
def tuned_to_embed(assets: Assets) -> Evidence:
    """Compare each tuned model with its base: InfoNCE layer by layer, prompt entropy text by text."""
    runs = {
        name: open_run(assets.get(Read(setup, OPTIONS)))
        for name, setup in assets.settings.items()
    }
    losses = {}
    entropies = {}
    for name, run in runs.items():
        losses[name] = run.metric(INVARIANCE).loc[1:]
        entropies[name] = by_sample(run)["raw"].loc[:, 1:]
    intervals = {}
    for name in runs:
        if name == BASE:
            continue
        lower = losses[name] - losses[BASE]
        intervals[f"invariance {name}"] = mean(lower.tolist())
        change = entropies[name] - entropies[BASE]
        intervals[f"entropy {name}"] = mean(change.mean(axis=1))
    by_layer = {name: table.mean() for name, table in entropies.items()}
    plots = [
        drawing.chart("InfoNCE by layer", "nats", losses),
        drawing.chart("Prompt entropy by layer", "nats", by_layer),
    ]
    return Evidence(intervals, plots=plots)
