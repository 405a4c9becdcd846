"""What a model gives for a batch, with gradients, and how far one model is from another by it.

A shortened model should give what its full model gives. Of a language model or a classifier these
are its predictions; of an encoder it is the vector that it serves. The states of all tokens teach
more in a step than one vector of a sample does, so both take part in the loss.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.functional import cosine_similarity, kl_div

from layerscope.models import LayeredModel
from layerscope.models.batching import batches_of
from layerscope.models.capture import evaluating
from layerscope.models.forward import Inputs, hooked, run, state_of
from layerscope.models.lens import logits_of
from layerscope.models.pooling import pool, served


@dataclass(frozen=True)
class Outputs:
    """The `states` [B, T, D] of the last layer after any final norm, their `mask` [B, T], and `given`.

    `given` are logits [B, T, K] or [B, K] where `are_logits`, else vectors [B, D].
    """

    states: Tensor
    mask: Tensor | None
    given: Tensor
    are_logits: bool


Read = Callable[[Outputs, Inputs], Tensor]
"""What is read of a batch's outputs, a row for each sample."""


def reads_logits(model: LayeredModel) -> bool:
    """Return whether a model is compared by its predictions, and not by its vectors."""
    return model.head is not None and not (model.head.alone or model.is_sparse)


def distance_of(model: LayeredModel) -> str:
    """Return what the distance between two models is, by what they give."""
    if not reads_logits(model):
        return "1 − cosine"
    if model.scorer is not None:
        return "squared difference of scores"
    return "divergence of predictions (nats)"


def outputs_of(model: LayeredModel, inputs: Inputs, pooling: str) -> Outputs:
    """Run a model on a batch; of an encoder `pooling` makes its vectors where nothing comes after its blocks."""
    module, stack = model.module, model.stack
    block = module.get_submodule(stack.blocks[-1])
    states: list[Tensor] = []

    def keep(_: nn.Module, __: object, ___: object, output: object) -> None:
        states.append(state_of(output))

    with hooked([(block, None, keep)]):
        output = run(module.get_submodule(stack.entry), inputs)
    tokens = states[-1]
    if stack.norm:
        norm: Any = module.get_submodule(stack.norm)
        tokens = norm(tokens)
    return _outputs(model, inputs, tokens, logits_of(output), pooling)


def outputs_by_layer(
    model: LayeredModel, inputs: Inputs, pooling: str, read: Read
) -> Tensor:
    """Return what is read of a batch of outputs at each layer from the first on, [L, B, …], all from one pass.

    They are those of the models that end at these layers. No gradients are kept.
    """
    values: list[Tensor] = []
    raw: list[Tensor] = []

    def visit(layer: int, site: str, tokens: Tensor) -> None:
        if site == "raw":
            raw[:] = [tokens]
        if layer == 0 or site != model.final:
            return
        logits = None
        if model.head is not None and (reads_logits(model) or model.is_sparse):
            logits = model.head.logits(raw[0], inputs)
        outputs = _outputs(model, inputs, tokens, logits, pooling)
        values.append(read(outputs, inputs))

    model.run(inputs, visit)
    return torch.stack(values)


def _outputs(
    model: LayeredModel,
    inputs: Inputs,
    tokens: Tensor,
    logits: Tensor | None,
    pooling: str,
) -> Outputs:
    """Return a batch's outputs from its last states, and from what the model's head makes of them."""
    mask = model.mask(inputs, tokens)
    if logits is not None and reads_logits(model):
        return Outputs(tokens, mask, logits.float(), are_logits=True)
    if model.loaded.served is None:
        vectors = pool(tokens, mask, pooling)
    else:
        after = list(model.loaded.served)[1:]
        pooled = tokens
        if model.is_sparse and logits is not None:
            # its pooling works in place where no gradients are needed
            after[0].train(torch.is_grad_enabled())
            pooled = logits
        vectors = served(after, pooled, mask)
    return Outputs(tokens, mask, vectors.float(), are_logits=False)


def distances(student: Outputs, teacher: Outputs) -> Tensor:
    """Return how far the student's predictions or vectors are from the teacher's, of each sample [B]."""
    if not student.are_logits:
        return 1 - cosine_similarity(student.given, teacher.given, dim=-1)
    if student.given.shape[-1] == 1:
        return (student.given - teacher.given).square().squeeze(-1)
    divergences = kl_div(
        student.given.log_softmax(-1),
        teacher.given.log_softmax(-1),
        reduction="none",
        log_target=True,
    ).sum(-1)
    if divergences.ndim == 1:
        return divergences
    if student.mask is None:
        return divergences.mean(1)
    real = student.mask.float()
    return (divergences * real).sum(1) / real.sum(1)


def unexplained(student: Outputs, teacher: Outputs) -> Tensor:
    """Return the squared error of all real tokens' states over the variance of the teacher's."""
    ours, theirs = student.states.float(), teacher.states.float()
    if student.mask is not None:
        real = student.mask.bool()
        ours, theirs = ours[real], theirs[real]
    ours, theirs = ours.flatten(0, -2), theirs.flatten(0, -2)
    error = (ours - theirs).square().mean()
    return error / (theirs - theirs.mean(0)).square().mean()


@dataclass(frozen=True)
class Pupil:
    """A shortened model, the full one that it learns from, and how both pool."""

    student: LayeredModel
    teacher: LayeredModel
    pooling: str

    def outputs(self, samples: Sequence[Any]) -> tuple[Outputs, Outputs]:
        """Return what student and teacher give for a batch of samples; no gradients reach the teacher."""
        batch = self.teacher.encoder.batch(samples).to(self.teacher.device)
        with torch.no_grad():
            wanted = outputs_of(self.teacher, batch, self.pooling)
        return outputs_of(self.student, batch, self.pooling), wanted


def loss_of(samples: Sequence[Any], pupil: Pupil) -> Tensor:
    """Return the loss of a batch: the distance of what the models give, and that of their states."""
    student, teacher = pupil.outputs(samples)
    return distances(student, teacher).mean() + unexplained(student, teacher)


@torch.no_grad()
def distances_on(samples: Sequence[Any], pupil: Pupil) -> NDArray[np.float64]:
    """Return how far a student is from its teacher on each of these samples `[n]`."""
    teacher = pupil.teacher
    apart = np.zeros(len(samples))
    with evaluating(pupil.student.module), evaluating(teacher.module):
        for rows in batches_of(teacher, teacher.encoder.lengths(samples)):
            batch = [samples[row] for row in rows]
            apart[rows] = distances(*pupil.outputs(batch)).double().cpu().numpy()
    return apart
