"""Train a model so that every layer speaks to the one shared classifier."""

from typing import Any

from layerscope.training.loss import aligned_loss
from layerscope.training.weights import exit_weights

LAZY = {
    "AlignedLoss": "layerscope.training.sentence",
    "AlignedTrainer": "layerscope.training.trainer",
    "Objective": "layerscope.training.objectives",
    "aligned_detection_loss": "layerscope.training.detection",
}

__all__ = ["AlignedLoss", "AlignedTrainer", "Objective", "aligned_detection_loss", "aligned_loss", "exit_weights"]


def __getattr__(name: str) -> Any:
    """Import what brings transformers along where it is first asked for."""
    if name not in LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(LAZY[name]), name)
