from .checkpoints import profile_checkpoints as profile_checkpoints
from .verb import profile as profile
