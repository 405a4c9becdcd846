"""L-fig2: prompt entropy has a valley in the middle of autoregressive models, and none in bidirectional ones."""

from __future__ import annotations

from layerscope.papers import drawing, released
from layerscope.papers.assets import Assets
from layerscope.papers.intervals import mean
from layerscope.papers.recipe import LAYERS, Claim, Evidence, Number, Recipe

MODELS = ("Pythia-14m", "Pythia-70m", "Pythia-160m", "Pythia-410m")
BIDIRECTIONAL = ("bert-base", "bert-large")
METRICS = ("prompt_entropy", "dataset_entropy", "infonce", "lidar", "dime")


def judge(assets: Assets) -> Evidence:
    """Take the depth of each valley: of a model over data sets, of bidirectional models over models."""
    frame = released.metrics(assets)
    frame = frame[frame["revision"].isin(("", "main"))]
    entropy = released.curves(frame, "prompt_entropy", "maxEntropy")
    depth = entropy.apply(released.valley, axis=1)
    wiki = entropy.xs("wikitext", level="dataset")
    least = min(depth.xs("wikitext", level="dataset").drop(list(BIDIRECTIONAL), level="model"))
    found = {model: mean(depth.xs(model, level="model").tolist()) for model in MODELS}
    flat = [least - depth[model].loc[:, "wikitext"].item() for model in BIDIRECTIONAL]
    known = [*released.PARAMETERS, *BIDIRECTIONAL]
    by_model = {model: wiki.loc[model].iloc[0].dropna() for model in known if model in wiki.index}
    return Evidence(
        found | {"bidirectional": mean(flat)},
        [Number(f"{model}, valley on WikiText", depth[model].loc[:, "wikitext"].item()) for model in by_model],
        [drawing.chart("Prompt entropy by layer, WikiText", "share of the maximum", by_model, by_depth=True)],
    )


RECIPE = Recipe(
    "L-fig2", LAYERS, "A valley of prompt entropy in the middle of autoregressive models",
    (
        *(
            Claim(
                model, f"In {model}, prompt entropy is lower in the middle third of the layers than in the others.",
                "prompt entropy as a share of its maximum, first and last third minus middle third", 0.0, "above",
                "data sets",
            )
            for model in MODELS
        ),
        Claim(
            "bidirectional",
            "Bidirectional models are flat: none has a valley as deep as the shallowest of the autoregressive models.",
            "depth of the shallowest Pythia valley minus that of each BERT, share of the maximum, on WikiText",
            0.0, "above", "models",
            decided_by="a third bidirectional model; the authors released values of two",
        ),
    ),
    judge, {"published": None},
    lacks={
        "small": "an autoregressive model that has the valley",
        "paper": "Pythia-410M, Mamba-370M and BERT on WikiText-103, from the hub",
    },
    note=released.NOTE + " (prompt entropy: tokens centred, then scaled to unit length)",
)  # fmt: skip
