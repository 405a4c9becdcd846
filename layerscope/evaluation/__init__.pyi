from .evaluator import evaluate as evaluate
from .layer_lm import LayerLM as LayerLM
from .tasks import task_from_file as task_from_file
from .texts import TextStates as TextStates
