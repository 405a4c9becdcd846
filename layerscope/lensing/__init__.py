"""What each layer of a model would predict, read by the model's own head, and from where on the prediction stays."""

from layerscope.lensing.reading import Reading
from layerscope.lensing.verb import lens

__all__ = ["Reading", "lens"]
