"""Turn a depth into a model: a checkpoint that ends at one layer, loaded without layerscope; texts from any depth."""

from layerscope.early_exit.generation import Generated, generate
from layerscope.early_exit.scoring import Scores, score
from layerscope.early_exit.truncation import Truncated, truncate, truncate_layers

__all__ = ["Generated", "Scores", "Truncated", "generate", "score", "truncate", "truncate_layers"]
