"""Turn a depth into a model: a checkpoint that ends at one layer, loaded without layerscope."""

from layerscope.early_exit.truncation import Truncated, truncate, truncate_layers

__all__ = ["Truncated", "truncate", "truncate_layers"]
