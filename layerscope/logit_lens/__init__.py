"""What each layer of a model would predict, read by the model's own head, and from where on the prediction stays."""

from layerscope.logit_lens.lens_reader import lens
from layerscope.logit_lens.reading import Reading

__all__ = ["Reading", "lens"]
