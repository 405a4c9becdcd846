"""The verb `compare`: what two runs, or a series of checkpoints, have in common and where they differ."""

from layerscope.comparing.comparison import Comparison, open_comparison
from layerscope.comparing.verb import compare

__all__ = ["Comparison", "compare", "open_comparison"]
