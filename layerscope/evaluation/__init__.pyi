from .layer_lm import LayerLM as LayerLM
from .stored_texts import TextStates as TextStates
from .tasks import task_from_file as task_from_file
from .verb import evaluate as evaluate
