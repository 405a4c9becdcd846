"""The verb `reproduce`: the claims of the two papers, each a recipe with a verdict."""

import lazy_loader

# the names are in __init__.pyi and imported when they are first used: torch alone takes seconds
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
