from .verb import evaluate as evaluate
