"""A classifier over the mean of an encoder's tokens, kept in a checkpoint that transformers itself can load.

A linear head commutes with the mean, so the checkpoint is that of a token classifier, with
`head_pooling` "mean" in its config; in memory the model pools before its head. For transformers' own
pipelines its config names one that takes the mean, kept beside the weights.
"""

import shutil
from functools import cache, wraps
from pathlib import Path
from typing import Any

from torch import Tensor, nn

KEY = "head_pooling"
MEAN = "mean"
PIPELINE = Path(__file__).with_name("mean_pipeline.py")
TASKS = ("text-classification", "sentiment-analysis")


def is_mean_head(config: Any) -> bool:
    """Return whether a checkpoint's token classifier is meant to be read as a classifier of means."""
    return getattr(config, KEY, None) == MEAN


def mean_headed(module: Any) -> Any:
    """Return a token classifier, in place, as a classifier of the mean of its tokens, under its class's own name."""
    kind: Any = type(module)
    if standard_class(kind) is kind:
        setattr(module.config, KEY, MEAN)
        pipeline = {
            "impl": f"{PIPELINE.stem}.MeanTextClassification",
            "pt": ["AutoModelForTokenClassification"],
        }
        module.config.custom_pipelines = dict.fromkeys(TASKS, pipeline)
        module.__class__ = _mean_pooled_class(kind)
    return module


def as_configured(module: Any) -> Any:
    """Return a model just loaded as its config wants it: one with a mean head gets it."""
    if is_mean_head(getattr(module, "config", None)):
        return mean_headed(module)
    return module


def standard_class(kind: Any) -> Any:
    """Return transformers' own class, of a class that was made here too."""
    return kind.__dict__.get("_standard", kind)


@cache
def _mean_pooled_class(base: Any) -> type:
    """Return a subclass that pools before its head and keeps the class's name.

    With that name its config and its checkpoint stay standard.
    """

    @wraps(base.forward)
    def forward(
        self: Any,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        *,
        labels: Tensor | None = None,
        num_items_in_batch: Any = None,
        **named: Any,
    ) -> Any:
        from transformers.loss.loss_utils import fixed_cross_entropy
        from transformers.modeling_outputs import SequenceClassifierOutput

        def pool(_: nn.Module, inputs: tuple[Tensor]) -> tuple[Tensor]:
            (states,) = inputs
            if states.ndim == 3:
                states = mean(states, attention_mask)
            return (states,)

        # Reading an exit calls forward again inside forward, with other rows, and the head then has
        # two of these hooks. The inner one runs first (`prepend`), with the mask of its own rows;
        # the outer one gets means, which have two dimensions, and leaves them as they are.
        (head,) = (child for child in self.children() if isinstance(child, nn.Linear))
        with head.register_forward_pre_hook(pool, prepend=True):
            named |= {"attention_mask": attention_mask, "return_dict": True}
            output = base.forward(self, input_ids, **named)
        loss = None
        if labels is not None:
            logits = output.logits.float()
            loss = fixed_cross_entropy(logits, labels, num_items_in_batch)
        return SequenceClassifierOutput(
            loss, output.logits, output.hidden_states, output.attentions
        )

    @wraps(base.save_pretrained)
    def save_pretrained(
        self: Any, save_directory: Any, *args: Any, **named: Any
    ) -> Any:
        base.save_pretrained(self, save_directory, *args, **named)
        shutil.copyfile(PIPELINE, Path(save_directory) / PIPELINE.name)

    names = {
        "forward": forward,
        "save_pretrained": save_pretrained,
        "_standard": base,
        "__module__": base.__module__,
        "__qualname__": base.__qualname__,
    }
    return type(base.__name__, (base,), names)


def mean(states: Tensor, mask: Tensor | None) -> Tensor:
    """Return the mean [R, D] of real tokens of states [R, T, D]; the mask's rows [B, T] repeat where R is E·B."""
    if mask is None:
        return states.mean(1)
    # sizes by shape: len() would freeze the batch in an ONNX export
    times = states.shape[0] // mask.shape[0]
    rows = mask.repeat(times, 1).unsqueeze(-1).to(states.dtype)
    counts = rows.sum(1).clamp_min(1)
    return (states * rows).sum(1) / counts
