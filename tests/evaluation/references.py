"""What an evaluation is held to: the states of a model as transformers gives them, and mteb's own scores."""

import mteb
import numpy as np
import torch
import transformers as hf
from torch import nn

from layerscope.evaluation.tasks import open_tasks


@torch.no_grad()
def states_of(model, texts):
    """Mean-pooled states [layers, N, D] of a saved model, after its final norm if it has one, each text alone."""
    module = hf.AutoModel.from_pretrained(model).eval()
    tokenizer = hf.AutoTokenizer.from_pretrained(model)
    norm = getattr(module, "norm", nn.Identity())
    pooled = []
    for text in texts:
        ids = tokenizer(text, return_tensors="pt")["input_ids"]
        *inner, last = module(ids, output_hidden_states=True).hidden_states
        layers = [*map(norm, inner), last]
        pooled.append([layer[0].mean(0).numpy() for layer in layers])
    return np.stack(pooled, 1)


def scores_by_mteb(model, tasks):
    """The main score of a sentence encoder on each task by its name."""
    options = {"cache": None, "co2_tracker": False, "show_progress_bar": False}
    results = mteb.evaluate(model, open_tasks(tasks)[0], **options).task_results
    return {result.task_name: result.get_score() for result in results}
