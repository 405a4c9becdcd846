"""See what every layer of a model knows, find the layer that serves you best, and use it."""

from types import FunctionType
from typing import Any

import lazy_loader

# what is handed on is named in __init__.pyi, and imported when it is first asked for: torch alone
# takes seconds
_imported, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    value = _imported(name)
    if isinstance(value, FunctionType):
        from layerscope.core.options import show_plain_types

        show_plain_types(value)
    return value
