from .costs import Truncated as Truncated
from .verb import truncate as truncate, truncate_layers as truncate_layers
