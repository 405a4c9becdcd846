"""The verb `profile`: one pass over the data, then every metric from what the pass stored."""

from layerscope.profiling.profiler import profile

__all__ = ["profile"]
