"""Train a model so that every layer speaks to the one shared classifier."""

from layerscope.training.loss import aligned_loss
from layerscope.training.weights import exit_weights

__all__ = ["aligned_loss", "exit_weights"]
