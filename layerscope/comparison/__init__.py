"""The verb `compare`: what two runs, or a series of checkpoints, have in common and where they differ."""

from layerscope.comparison.comparer import compare
from layerscope.comparison.comparison import Comparison, open_comparison

__all__ = ["Comparison", "compare", "open_comparison"]
