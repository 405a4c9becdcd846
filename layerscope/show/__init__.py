"""Documents, and how they are shown: in a terminal, in a notebook, as a page and as figures."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
