"""From a model, data and a budget to a smaller model; the other packages do the work."""

import lazy_loader

# what is handed on is named in __init__.pyi, and imported when it is first asked for: torch alone
# takes seconds
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
