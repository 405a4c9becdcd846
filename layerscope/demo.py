"""The demo: the embedded model on text that every Python has, and the answer in one line."""

from __future__ import annotations

from pathlib import Path

from layerscope.errors import LayerscopeError
from layerscope.inputs import draw, open_corpus
from layerscope.models import LoadOptions, Override, find_layers, load
from layerscope.models.hub import EMBEDDED
from layerscope.profiling.speed import milliseconds_to_layers
from layerscope.profiling.tables.labels import can_be_probed
from layerscope.profiling.verb import profile
from layerscope.runs import Run

DATA = "stdlib-docs"
TIMED_TEXTS = 32
ENOUGH = 100


def run_demo(out: Path, samples: str = "1000", command: str = "") -> tuple[str, Run]:
    """Return the answer, `layer k: x % · the model as shipped: y % · z× faster`, and the run behind it.

    The shares are cross-validated linear-probe accuracies of the documentation's module; the speed is measured here,
    a forward up to layer k against one through all layers.
    """
    _check_enough(samples)
    run = profile(EMBEDDED, DATA, out=out, samples=samples, command=command)
    accuracy = run.metric("linear_probe")
    best = int(accuracy.drop(0).idxmax())
    model = find_layers(
        load(EMBEDDED, LoadOptions()),
        "text",
        ["A probe of the model."] * 2,
        Override(),
        max_length=None,
        prompt="",
    )
    times = milliseconds_to_layers(model, [model.encoder.batch(_texts()).to(model.device)], [best, run.depth])
    return _answer(best, float(accuracy[best]), float(accuracy[run.depth]), times[run.depth] / times[best]), run


def _check_enough(samples: str) -> None:
    """Refuse a draw without two modules of five docstrings, before it is measured."""
    if not samples.isdecimal() or not 1 < int(samples) < ENOUGH:
        return
    if not can_be_probed(draw(open_corpus(DATA), int(samples), seed=0).labels):
        raise LayerscopeError(
            f"--samples {samples} is too few for the demo, which probes for a docstring's module: give {ENOUGH} or more"
        )


def _texts() -> list[str]:
    texts = draw(open_corpus(DATA), TIMED_TEXTS, seed=0).samples
    return [str(text) for text in texts]


def _answer(layer: int, best: float, shipped: float, faster: float) -> str:
    return f"layer {layer}: {best:.1%} · the model as shipped: {shipped:.1%} · {faster:.1f}× faster".replace("%", " %")
