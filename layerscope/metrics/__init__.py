"""Metrics of states: arrays or tensors in, floats out, or tensors with the leading dimensions of what went in.

Every metric takes leading dimensions, so that all layers go through one call; logarithms are
natural. Each raises `LayerscopeError` for empty input, shapes that do not fit and options out of
range; those of a data set also for values that are not finite, which those of a sample's tokens
answer with NaN. A metric is one file: its function, and beside it its record (`metric.Metric`),
which the registry finds there; the stub beside this file lists what is public.

Precision. States may be bfloat16 or float16, as models make them; nothing is computed in half
precision, where the square of 15,000 is already infinite. Metrics of a data set (spectra,
similarities, distances, losses) turn states to float64 before the first sum. Metrics of a sample's
tokens (`prompt_entropy`, `curvature`, `zero_differences`, `norms`), which run inside a model's
forward, work and answer in float32, for float64 input in float64. So half-precision states give
what float64 of the same rounded values gives, to 1e-9 in the former and 1e-5 in the latter. Orders
of entropy below 1, which weigh the smallest eigenvalues, take singular values of the states and
never a Gram.
"""

from layerscope.metrics.metric import public_names as _public_names

_found = _public_names(__name__)
globals().update(_found)  # only now: the name is that of the file as well
__all__ = [*_found]
