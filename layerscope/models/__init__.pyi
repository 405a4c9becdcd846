from .batching import batches_of as batches_of
from .capture import evaluating as evaluating
from .encode import TextEncoder as TextEncoder, encoder_for as encoder_for
from .forward import Inputs as Inputs, accepts as accepts, setting as setting
from .identity import weights_fingerprint as weights_fingerprint
from .inspection import made_up_samples as made_up_samples
from .layered import (
    LayeredModel as LayeredModel,
    vectors_for as vectors_for,
)
from .lens import Lens as Lens, logits_of as logits_of, replaced as replaced
from .loaded import Loaded as Loaded
from .loading import load as load, without_bars as without_bars
from .mean_head import is_mean_head as is_mean_head
from .modality import modalities_of as modalities_of
from .options import LoadOptions as LoadOptions, Override as Override
from .pooling import Vectors as Vectors, pool as pool
from .probe import find_layers as find_layers
from .stack import Stack as Stack
from .weights import (
    ExitHeads as ExitHeads,
    dtype_of as dtype_of,
    parameters as parameters,
)
