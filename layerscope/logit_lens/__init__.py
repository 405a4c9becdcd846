"""What each layer of a model would predict, read by the model's own head, and from where on the prediction stays."""

import lazy_loader

# what is handed on is named in __init__.pyi, and imported when it is first asked for: torch alone
# takes seconds
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
