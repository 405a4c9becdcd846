"""See what every layer of a model knows, find the layer that serves you best, and use it."""

import lazy_loader

# what is handed on is named in __init__.pyi, and imported when it is first asked for: torch alone takes seconds
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
__version__ = "0.1.0"
