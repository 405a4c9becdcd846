from .layered import (
    LayeredModel as LayeredModel,
    Override as Override,
    find_layers as find_layers,
    vectors_for as vectors_for,
)
from .load import load as load
from .loaded import Loaded as Loaded, LoadOptions as LoadOptions
from .pooling import Vectors as Vectors
