"""What aligned training adds to earlier layers carries over to changed images."""

from collections.abc import Callable
from dataclasses import dataclass
from operator import sub
from pathlib import Path

import numpy as np

from layerscope.inputs import Corpus, open_corpus
from layerscope.runs import open_run
from layerscope_papers import drawing
from layerscope_papers.assets import Asset, Assets
from layerscope_papers.bench import ACCURACY, Bench, trained
from layerscope_papers.images import Pixels, changed, images, noisy
from layerscope_papers.intervals import at_last, before_last, mean
from layerscope_papers.recipe import Evidence, Number
from layerscope_papers.vision import BOTH, Trained, Vision, profiled

NOISE, FADED, MOVED = 0.2, 0.5, 1 / 8
"""Standard deviation of the noise in units of the range, contrast that is left, and share of the width."""


SHIFTS: dict[str, Callable[[Pixels, int], Pixels]] = {
    "with noise": lambda image, i: noisy(image, i, NOISE),
    "with half the contrast": lambda image, i: (
        image.mean() + FADED * (image - image.mean())
    ),
    "moved by an eighth of their width": lambda image, i: np.pad(
        image, ((0, 0), (int(MOVED * image.shape[1]), 0), (0, 0))
    )[:, : image.shape[1]],
}
SOURCE = "from another source"
FOLDERS = {"cifar10": "cifar10.2"}
"""By data set: the folder of images of the same classes from another source."""
KINDS = dict(
    zip((*SHIFTS, SOURCE), ("noise", "contrast", "shift", "source"), strict=True)
)
"""Other images, and the claim on each."""


@dataclass(frozen=True)
class Elsewhere(Asset):
    """A run of a trained model on changed test images, or on those of another source."""

    model: Trained
    kind: str
    minutes = 0.04
    named = "{kind} {model}"

    def make(self, out: Path, assets: Assets) -> None:
        """Profile it, from the shard where it was stopped."""
        profiled(self.model, self.data(assets), [ACCURACY], out, assets)

    def data(self, assets: Assets) -> Corpus:
        """Return the images."""
        name = self.model.setup.data
        if self.kind == SOURCE:
            return open_corpus((assets.data or Path()) / FOLDERS[name])
        _, test = images(name, assets.data)
        return changed(test, SHIFTS[self.kind])


def _kinds(setup: Vision) -> list[str]:
    """Return what is measured at a scale: without another source where none is known."""
    return [kind for kind in KINDS if kind != SOURCE or setup.data in FOLDERS]


@trained(
    "T-fig17",
    needs=lambda setup: [
        Elsewhere(model, kind)
        for training in BOTH.values()
        for model in training.seeds(setup)
        for kind in _kinds(setup)
    ],
    local=lambda setup: filter(None, [FOLDERS.get(setup.data)]),
)
def transfer(bench: Bench) -> Evidence:
    """Compare aligned and standard training seed by seed, before the last layer; show the last one beside it."""
    intervals = {}
    plots = []
    numbers = []
    kinds = _kinds(bench.setup)
    for kind in kinds:
        curves = {
            name: [
                100
                * open_run(bench.assets.get(Elsewhere(model, kind)))
                .metric(ACCURACY)
                .loc[1:]
                for model in training.seeds(bench.setup)
            ]
            for name, training in BOTH.items()
        }
        gains = list(map(sub, curves["aligned"], curves["standard"]))
        title = f"Accuracy on images {kind}"
        intervals[KINDS[kind]] = before_last(gains)
        plots.append(drawing.mean_chart(title, "%", curves))
        numbers.append(
            Number.of(f"{title}: gain at the last layer [points]", at_last(gains))
        )
    missing = {*KINDS.values()} - set(intervals)
    return Evidence(
        intervals | dict.fromkeys(missing, mean([])),
        numbers,
        plots,
        inapplicable=dict.fromkeys(
            missing, "images of the same classes from another source"
        ),
    )
