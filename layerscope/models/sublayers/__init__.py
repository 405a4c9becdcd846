"""Sub-layers: what comes after each norm, attention, MLP and residual addition of a block, found by structure."""

from layerscope.models.sublayers.find import Sublayers, Tap, find_sublayers

__all__ = ["Sublayers", "Tap", "find_sublayers"]
