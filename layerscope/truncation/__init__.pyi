from .costs import Truncated as Truncated
from .pipeline import truncate_layers as truncate_layers
from .verb import truncate as truncate
