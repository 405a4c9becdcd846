from .tasks import task_from_file as task_from_file
from .verb import evaluate as evaluate
