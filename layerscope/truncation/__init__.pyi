from .verb import truncate as truncate
