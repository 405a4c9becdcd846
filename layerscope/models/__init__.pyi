from .encode import encoder_for as encoder_for
from .layered import (
    LayeredModel as LayeredModel,
    vectors_for as vectors_for,
)
from .loading import Loaded as Loaded, load as load
from .options import LoadOptions as LoadOptions, Override as Override
from .pooling import Vectors as Vectors
from .probe import find_layers as find_layers
