from .truncator import Truncated as Truncated, truncate as truncate, truncate_layers as truncate_layers
