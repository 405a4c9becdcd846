"""Scores of layers on tasks: read, summarised, correlated with metrics, and the rules that choose a layer by them."""

import lazy_loader

# what is handed on is named in __init__.pyi, and imported when it is first asked for: torch alone
# takes seconds
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
