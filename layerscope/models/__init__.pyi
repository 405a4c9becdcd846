from .encode import encoder_for as encoder_for
from .layered import (
    LayeredModel as LayeredModel,
    Override as Override,
    find_layers as find_layers,
    vectors_for as vectors_for,
)
from .loading import Loaded as Loaded, load as load
from .placing import LoadOptions as LoadOptions
from .pooling import Vectors as Vectors
