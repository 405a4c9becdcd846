"""What labels a layer holds: linear, nearest-neighbour, attention and token probes, cross-validated."""

import lazy_loader

# the names are in __init__.pyi and imported when they are first used: torch alone takes seconds
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
