"""What each layer can, found in the passes of the Trainer's own evaluation."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch import Tensor

from layerscope.models import LayeredModel
from layerscope.training.exit_loss import ExitLoss
from layerscope.training.layer_scores import LayerScores, Row, logged, no_collapse
from layerscope.training.loss import IGNORED


class LayerEvaluation:
    """Scores every layer of a model while it is evaluated; `rows` are those of the last evaluation."""

    def __init__(self, model: LayeredModel, exit_loss: ExitLoss) -> None:
        """Take a model with a head, whose forward `exit_loss` has replaced."""
        head, depth = exit_loss.every.head, model.stack.depth
        classes = 0 if model.lens is None else model.lens.classes
        width = classes if head is None else head.in_features
        self.language_model = exit_loss.shift or _vocabulary(model) == classes
        self.left_out = no_collapse(depth, classes, width, self.language_model)
        self.exit_loss, self.rows = exit_loss, list[Row]()
        self._depth, self._collapse = depth, None if self.left_out else (classes, width)

    @contextmanager
    def scoring(self, accelerator: Any) -> Iterator[None]:
        """Within, every labelled batch is scored; afterwards `rows` are those of all processes."""
        scores = LayerScores(
            self._depth, shift=self.exit_loss.shift, language_model=self.language_model, collapse=self._collapse
        )
        self.exit_loss.score = lambda read, heads, labels: scores.update(read, heads, _once(labels, accelerator))
        try:
            yield
        finally:
            self.exit_loss.score = None
        self.rows = _of_all(scores, accelerator).compute()

    def logged(self) -> dict[str, float]:
        """Return the last evaluation as a training log tells it."""
        return logged(self.rows, self.language_model)


def _vocabulary(model: LayeredModel) -> int | None:
    config: Any = getattr(model.module, "config", None)
    text = config.get_text_config() if hasattr(config, "get_text_config") else config
    return getattr(text, "vocab_size", None)


def _once(labels: Tensor, accelerator: Any) -> Tensor:
    """Return labels with those ignored that only fill up the last batch of several processes: they were scored before.

    As in `Accelerator.gather_for_metrics`, the last batch counts so many samples over all processes in their order.
    """
    state = accelerator.gradient_state
    if accelerator.num_processes == 1 or not state.end_of_dataloader or state.remainder <= 0:
        return labels
    own = min(len(labels), max(0, state.remainder - accelerator.process_index * len(labels)))
    kept = labels.clone()
    kept[own:] = IGNORED
    return kept


def _of_all(scores: LayerScores, accelerator: Any) -> LayerScores:
    """Return the scores of all processes, in each of them."""
    if accelerator.num_processes == 1:
        return scores
    from accelerate.utils import gather_object  # type: ignore[import-untyped]

    first, *others = gather_object([scores.cpu()])
    for other in others:
        first.merge(other)
    whole: LayerScores = first
    return whole
