from .evaluator import evaluate as evaluate
from .half_text import half_text_recall as half_text_recall, half_text_reciprocal_rank as half_text_reciprocal_rank
from .layer_lm import LayerLM as LayerLM
from .tasks import task_from_file as task_from_file
from .texts import TextStates as TextStates
