from .layered import (
    LayeredModel as LayeredModel,
    Override as Override,
    find_layers as find_layers,
    vectors_for as vectors_for,
)
from .load import Loaded as Loaded, LoadOptions as LoadOptions, load as load
from .pooling import Vectors as Vectors
