"""A language model's predictions settle before its last layer, and are more often final the deeper."""

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
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
from layerscope_papers.recipe import Evidence, Number, recipe

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
            tokens=TOKENS,
            max_length=TOKENS,
            top=1,
            out=out,
            progress=False,
        )


def as_at_last(reading: Reading) -> pd.DataFrame:
    """Return whether each layer from 1 on predicts what the last one does, (sample, position) × layer."""
    grid = reading.grid[reading.grid["generated"] & reading.grid["rank"].eq(1)]
    ids = grid.pivot_table(
        index=["sample", "position"], columns="layer", values="id"
    ).loc[:, 1:]
    return ids.eq(ids[reading.depth], axis=0)


def _rise(shares: pd.Series) -> float:
    """Return the Spearman correlation of a curve with the layer number; a flat curve does not rise."""
    found = shares.corr(shares.index.to_series(), "spearman")
    return float(np.nan_to_num(found))


def _readings(setup: Language) -> list[Continued]:
    return [Continued(setup, seed) for seed in range(setup.seeds)]


@recipe(
    "T-fig19", scales={"small": SMALL, "paper": PAPER}, needs=_readings, yours=yours
)
def settled_early(assets: Assets) -> Evidence:
    """Take the share of settled tokens text by text, on average over the models."""
    readings = [open_reading(assets.get(asset)) for asset in _readings(assets.settings)]
    final = [as_at_last(reading) for reading in readings]
    early = [
        100 * r.counted["layer"].lt(r.depth).groupby(r.counted["sample"]).mean()
        for r in readings
    ]
    rises = [
        table.groupby(level=0).mean().iloc[:, :-1].apply(_rise, axis=1)
        for table in final
    ]
    curves = {
        "settled": [r.cumulative.set_index("layer")["share"] for r in readings],
        "predicts what the last layer does": [table.mean() for table in final],
    }
    averages = {
        name: 100 * pd.concat(of, axis=1).mean(axis=1) for name, of in curves.items()
    }
    return Evidence(
        {"early": over_texts(pd.concat(early, axis=1).mean(axis=1))},
        [
            Number.of(
                "Spearman correlation of agreement with the last layer with depth",
                over_texts(pd.concat(rises, axis=1).mean(axis=1)),
            ),
        ],
        [
            drawing.chart("Predictions by layer", "% of new tokens", averages),
            grids(readings[0])[0],
        ],
    )
