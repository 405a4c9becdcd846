from .checkpoints import profile_checkpoints as profile_checkpoints
from .profiler import profile as profile
