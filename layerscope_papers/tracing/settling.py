"""A language model's predictions settle before its last layer."""

from dataclasses import dataclass, replace
from pathlib import Path

from layerscope.inputs import draw
from layerscope.logit_lens import grids, open_reading
from layerscope_papers import drawing
from layerscope_papers.assets import Asset, Assets
from layerscope_papers.intervals import mean
from layerscope_papers.language import SMALL, Language, texts
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
    named = "predictions by layer"

    @property
    def rests_on(self) -> tuple[Asset, ...]:
        """The model, where it is made here."""
        return self.setup.base

    def make(self, out: Path, assets: Assets) -> None:
        """Read the model with the lens."""
        from layerscope.logit_lens import lens

        held = draw(texts(self.setup)[1], TEXTS, seed=0)
        data = replace(
            held,
            samples=[PROMPT, *held.samples],
            names=["the paper's prompt", *held.names],
        )
        lens(
            self.setup.model(assets),
            data=data,
            samples=len(data),
            generate=TOKENS,
            max_length=TOKENS,
            top=1,
            out=out,
            progress=False,
        )


@recipe(
    "T-fig19",
    scales={"small": SMALL, "paper": PAPER},
    needs=lambda setup: [Continued(setup)],
    yours={},
)
def settled_early(assets: Assets) -> Evidence:
    """Take the percentage of tokens that settle before the last layer, text by text."""
    reading = open_reading(assets.get(Continued(assets.settings)))
    settled = reading.counted
    is_early = settled["layer"].lt(reading.depth)
    early = 100 * is_early.groupby(settled["sample"]).mean()
    by_layer = 100 * reading.cumulative.set_index("layer")["share"]
    title = "Settled predictions by layer"
    return Evidence(
        {"early": mean(early)},
        plots=[
            drawing.chart(title, "% of new tokens", {"settled": by_layer}),
            grids(reading)[0],
        ],
    )
