"""Perceptrons: without residual connections, CKA calls layers alike of which one head reads only the last."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd

from layerscope.runs import open_run
from layerscope_papers import drawing
from layerscope_papers.assets import Asset, Assets
from layerscope_papers.bench import to_last
from layerscope_papers.intervals import before_last, mean
from layerscope_papers.recipe import Evidence, recipe

KINDS = {"with residual connections": True, "without residual connections": False}
TEST = 500


@dataclass(frozen=True)
class Shape:
    """One scale: the digits' perceptrons, how long they are trained, and how often.

    Attributes:
        depth: blocks.
        width: dimensions of a state.
        steps: training steps.
        batch_size: digits of a step.
        learning_rate: highest of the schedule.
        seeds: perceptrons of each kind.

    """

    depth: int = 9
    width: int = 128
    steps: int = 600
    batch_size: int = 64
    learning_rate: float = 1e-3
    seeds: int = field(default=5, repr=False)


@dataclass(frozen=True)
class Perceptron(Asset):
    """A multilayer perceptron trained on digits, and a run of it on those left out."""

    shape: Shape
    residual: bool
    seed: int

    def __str__(self) -> str:
        return f"perceptron {'with' if self.residual else 'without'} residual connections seed {self.seed}"

    def make(self, out: Path, assets: Assets) -> None:
        """Train it, and profile it where its head reads."""
        from sklearn.datasets import load_digits
        from sklearn.model_selection import train_test_split

        from layerscope import train
        from layerscope.profiling import profile

        shape = self.shape
        (rows, labels) = load_digits(return_X_y=True)
        parts = train_test_split(
            (rows / 16).astype("float32"),
            labels,
            test_size=TEST,
            random_state=0,
            stratify=labels,
        )
        learnt, held, learnt_labels, held_labels = parts
        module = perceptron(shape, residual=self.residual, seed=self.seed)
        train(
            module,
            (learnt, learnt_labels),
            (held, held_labels),
            out=out / "trained",
            max_steps=shape.steps,
            eval_every=shape.steps,
            batch_size=shape.batch_size,
            learning_rate=shape.learning_rate,
            objective="standard",
            seed=self.seed,
            progress=False,
        )
        profile(
            module,
            (held, held_labels),
            out=out / "run",
            metrics=["cosine_similarity", "cka", "layer_accuracy"],
            samples="all",
            views=0,
            cka="biased",
            progress=False,
        )


def perceptron(shape: Shape, *, residual: bool, seed: int) -> Any:
    """Return a perceptron with random weights: a linear layer, blocks of a linear layer and ReLU, and a head."""
    import torch
    from torch import nn

    class Residual(nn.Sequential):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x + nn.Sequential.forward(self, x)  # type: ignore[no-any-return,no-untyped-call]  # torch has no types here

    torch.manual_seed(seed)
    kind = Residual if residual else nn.Sequential
    blocks = [
        kind(nn.Linear(shape.width, shape.width), nn.ReLU()) for _ in range(shape.depth)
    ]
    return nn.Sequential(
        nn.Linear(64, shape.width), *blocks, nn.Linear(shape.width, 10)
    )


def _models(shape: Shape, residual: bool) -> list[Perceptron]:
    return [Perceptron(shape, residual, seed) for seed in range(shape.seeds)]


@recipe(
    "T-fig12",
    scales={"small": Shape(), "paper": Shape()},
    needs=lambda shape: [
        model for residual in KINDS.values() for model in _models(shape, residual)
    ],
)
def misled(assets: Assets) -> Evidence:
    """Compare both similarities to the last layer, and what the head reads, over the layers before the last."""
    curves: dict[str, dict[str, list[pd.Series]]] = {}
    for name, residual in KINDS.items():
        runs = [
            open_run(assets.get(model) / "run")
            for model in _models(assets.settings, residual)
        ]
        curves[name] = {
            "cosine, centred": [to_last(run) for run in runs],
            "CKA, biased": [to_last(run, "cka") for run in runs],
            "accuracy": [run.metric("layer_accuracy").loc[1:] for run in runs],
        }
    (cosine, cka, _) = curves["with residual connections"].values()
    plain = curves["without residual connections"]
    intervals = {
        "agree": mean(
            [
                a.iloc[:-1].corr(b.iloc[:-1], "spearman")
                for a, b in zip(cosine, cka, strict=True)
            ]
        ),
        "alike": before_last(plain["CKA, biased"]),
        "unlike": before_last(plain["cosine, centred"]),
        "unread": before_last(100 * curve for curve in plain["accuracy"]),
    }
    similarity = "similarity to the last, accuracy"
    plots = [
        drawing.mean_chart(f"A perceptron {name}", similarity, by_label)
        for name, by_label in curves.items()
    ]
    return Evidence(intervals, plots=plots)
