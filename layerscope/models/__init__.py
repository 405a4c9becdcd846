"""Load a model, find its blocks, capture their outputs, and read them through its own head."""

from layerscope.models.layered import LayeredModel, Override, find_layers, vectors_for
from layerscope.models.load import load
from layerscope.models.loaded import Loaded, LoadOptions
from layerscope.models.pooling import Vectors

__all__ = ["LayeredModel", "LoadOptions", "Loaded", "Override", "Vectors", "find_layers", "load", "vectors_for"]
