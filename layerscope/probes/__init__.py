"""What labels a layer holds: linear, nearest-neighbour, attention and token probes, cross-validated."""

from layerscope.metrics.metric import public_names as _public_names

_found = _public_names(__name__)
globals().update(_found)
__all__ = [*_found]
