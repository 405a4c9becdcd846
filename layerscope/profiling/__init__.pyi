from .profiler import profile as profile
