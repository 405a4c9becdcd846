"""Load a model, find its blocks, capture their outputs, and read them through its own head."""

from layerscope.models.layered import LayeredModel, Override, find_layers, pooling_for
from layerscope.models.load import Loaded, LoadOptions, load

__all__ = ["LayeredModel", "LoadOptions", "Loaded", "Override", "find_layers", "load", "pooling_for"]
