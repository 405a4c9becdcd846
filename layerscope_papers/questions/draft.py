"""Whether training every layer makes early layers better at drafting text, when all layers verify it."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from layerscope.models import LoadOptions, load
from layerscope.runs import open_run
from layerscope_papers import drawing
from layerscope_papers.assets import Asset, Assets
from layerscope_papers.language import SMALL, Speaker, texts
from layerscope_papers.recipe import Evidence, Number, at_last, mean, paired, recipe
from layerscope_papers.tracing import generated

PROMPTS, DRAFTS = 32, 4
"""Prompts, a quarter of the model's context each and continued by as much, and draft tokens of each verification."""
TABLE = "drafted.csv"
LENGTH, AGREEMENT, PERPLEXITY = "accepted length", "agreement", "perplexity"
UNITS = {
    LENGTH: "tokens per verification",
    AGREEMENT: "% of next tokens",
    PERPLEXITY: "perplexity",
}


@dataclass(frozen=True)
class Drafted(Asset):
    """Of each layer of a language model: what verification accepts of its drafts, and where it agrees with the last."""

    model: Speaker
    minutes = 1.0
    named = "drafts of {model}"

    def make(self, out: Path, assets: Assets) -> None:
        """Write a row for each layer."""
        from layerscope.generation import SelfSpeculation
        from layerscope.logit_lens import lens

        setup, (_, held) = self.model.setup, texts(self.model.setup)
        loaded, length, found = (
            load(str(assets.get(self.model)), LoadOptions()),
            setup.context // 4,
            {},
        )
        model: Any = loaded.module
        options = {
            "truncation": True,
            "max_length": length,
            "return_tensors": "pt",
            "return_token_type_ids": False,
        }
        prompts = [
            loaded.processor(str(text), **options).to(model.device)
            for text in held.samples
        ]
        chosen = [
            i for i, prompt in enumerate(prompts) if prompt.input_ids.shape[1] == length
        ][:PROMPTS]
        for layer in range(1, setup.depth):
            speculation = SelfSpeculation(model, layer, DRAFTS, fall_back=False)
            reports = []
            for i in chosen:
                model.generate(
                    **prompts[i],
                    custom_generate=speculation,
                    max_new_tokens=length,
                    do_sample=False,
                )
                reports.append(speculation.report)
            found[layer] = 1 + sum(report.accepted for report in reports) / sum(
                report.rounds for report in reports
            )
        read = lens(
            model,
            data=held.take(chosen),
            processor=loaded.processor,
            samples=PROMPTS,
            top=1,
            max_length=setup.context,
            progress=False,
        )
        tops = read.grid.pivot(
            index=["sample", "position"], columns="layer", values="id"
        )
        agreement = 100 * tops.eq(tops[setup.depth], axis=0).mean().loc[1:]
        out.mkdir(parents=True, exist_ok=True)
        pd.DataFrame({AGREEMENT: agreement, LENGTH: pd.Series(found)}).to_csv(
            out / TABLE, index_label="layer"
        )


def opened(folder: Path) -> pd.DataFrame:
    """Return what was measured at each layer."""
    return pd.read_csv(folder / TABLE, index_col="layer", float_precision="round_trip")


@recipe(
    "Q-draft",
    scales={"small": SMALL, "paper": generated.PAPER},
    needs=generated.needed(Drafted),
)
def longer_drafts(assets: Assets) -> Evidence:
    """Compare both with standard training seed by seed, at half depth."""
    half = assets.settings.depth // 2
    curves: dict[str, dict[str, list[pd.Series]]] = {title: {} for title in UNITS}
    lengths, numbers = {}, []
    for name, speakers in generated.models(assets.settings).items():
        drafted = [opened(assets.get(Drafted(model))) for model in speakers]
        histories = [open_run(assets.get(model) / "history") for model in speakers]
        accepted = [table[LENGTH].dropna() for table in drafted]
        perplexities = [history.metric(PERPLEXITY).loc[1:] for history in histories]
        curves[LENGTH][name] = accepted
        curves[AGREEMENT][name] = [table[AGREEMENT] for table in drafted]
        curves[PERPLEXITY][name] = perplexities
        lengths[name] = [float(curve.loc[half]) for curve in accepted]
        numbers += [
            Number.of(f"{LENGTH} at half depth, {name}", mean(lengths[name])),
            Number.of(f"{PERPLEXITY} of the last layer, {name}", at_last(perplexities)),
        ]
    plots = [
        drawing.mean_chart(f"{title.capitalize()} by layer", UNITS[title], by_training)
        for title, by_training in curves.items()
    ]
    longer = paired(lengths["aligned"], lengths["standard"])
    return Evidence({"aligned": longer}, numbers, plots)
