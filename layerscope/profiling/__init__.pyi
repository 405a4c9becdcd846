from .verb import profile as profile
