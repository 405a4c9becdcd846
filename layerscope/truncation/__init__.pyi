from .cutting import truncate_layers as truncate_layers
from .figures import Truncated as Truncated
from .truncator import truncate as truncate
