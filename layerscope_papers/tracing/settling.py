"""A language model's predictions settle before its last layer."""

from dataclasses import dataclass, replace
from pathlib import Path

import pandas as pd

from layerscope.logit_lens import Reading, grids, open_reading
from layerscope_papers import drawing
from layerscope_papers.assets import Asset, Assets
from layerscope_papers.language import (
    SMALL,
    Language,
    Speaker,
    over_texts,
    texts,
    yours,
)
from layerscope_papers.recipe import Evidence, recipe

PROMPT = "Simply put, the theory of relativity states"
TOKENS = 24
"""Greedy steps, and the most tokens of a text that they continue."""
TEXTS = 64
PAPER = Language(
    "hf:wikitext/wikitext-103-raw-v1",
    TEXTS,
    hub="meta-llama/Llama-3.2-3B",
    parameters=3.2e9,
    depth=28,
    context=8192,
    seeds=1,
)


@dataclass(frozen=True)
class Continued(Asset):
    """What each layer predicts while a model continues the paper's prompt and the beginnings of other texts."""

    setup: Language
    seed: int

    @property
    def rests_on(self) -> tuple[Asset, ...]:
        """The model, where it is trained here."""
        return () if self.setup.hub else (Speaker(self.setup, seed=self.seed),)

    def __str__(self) -> str:
        return f"predictions by layer, seed {self.seed}"

    def make(self, out: Path, assets: Assets) -> None:
        """Read the model with the lens."""
        from layerscope.logit_lens import lens

        model = self.setup.hub or str(assets.get(Speaker(self.setup, seed=self.seed)))
        held = texts(self.setup)[1]
        held = held.take(range(min(TEXTS, len(held))))
        data = replace(
            held,
            samples=[PROMPT, *held.samples],
            names=["the paper's prompt", *held.names],
        )
        lens(
            model,
            data=data,
            samples=len(data),
            generate=TOKENS,
            max_length=TOKENS,
            top=1,
            out=out,
            progress=False,
        )


def _readings(setup: Language) -> list[Continued]:
    return [Continued(setup, seed) for seed in range(setup.seeds)]


@recipe(
    "T-fig19", scales={"small": SMALL, "paper": PAPER}, needs=_readings, yours=yours
)
def settled_early(assets: Assets) -> Evidence:
    """Take the share of settled tokens text by text, on average over the models."""
    readings = [open_reading(assets.get(asset)) for asset in _readings(assets.settings)]
    early = [_settled_early(reading) for reading in readings]
    curves = [
        100 * reading.cumulative.set_index("layer")["share"] for reading in readings
    ]
    title = "Settled predictions by layer"
    return Evidence(
        {"early": over_texts(pd.concat(early, axis=1).mean(axis=1))},
        plots=[
            drawing.mean_chart(title, "% of new tokens", {"settled": curves}),
            grids(readings[0])[0],
        ],
    )


def _settled_early(reading: Reading) -> pd.Series:
    """Return for each text the percentage of its tokens that settle before the last layer."""
    settled = reading.counted
    is_early = settled["layer"].lt(reading.depth)
    return 100 * is_early.groupby(settled["sample"]).mean()
