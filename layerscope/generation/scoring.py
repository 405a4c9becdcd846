"""How well each layer of a language model predicts given texts."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import cross_entropy

from layerscope.core import LayerscopeError, Reporter
from layerscope.core.margin import error_of
from layerscope.metrics import perplexity
from layerscope.models import LayeredModel, TextEncoder, batches_of, evaluating

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Scores:
    """How well each of K layers predicts the tokens of texts, every token but the first.

    `nll` holds for each text of T tokens the negative log-likelihoods [K, T − 1] in nats, float64,
    and `correct` [K, T − 1] whether the most probable token was the right one. `layers` names the
    layers, in order.

    >>> from layerscope.generation.scoring import Scores
    >>> scores = Scores((1, 2), (np.log([[4.0, 4.0], [2.0, 2.0]]),), (np.array([[False, True], [True, True]]),))
    >>> scores.tokens, scores.accuracy, scores.perplexity
    (2, array([0.5, 1. ]), array([4., 2.]))
    """

    layers: tuple[int, ...]
    nll: tuple[Floats, ...]
    correct: tuple[Bools, ...]

    @property
    def tokens(self) -> int:
        """Number of predicted tokens over all texts."""
        return sum(values.shape[1] for values in self.nll)

    @property
    def accuracy(self) -> Floats:
        """The share of all tokens that each layer puts first, [K] (Tracing Representation Progression, equation 20)."""
        return np.asarray(np.concatenate(self.correct, 1).mean(1))

    @property
    def perplexity(self) -> Floats:
        """The perplexity of each layer over all tokens, [K]."""
        nll = torch.from_numpy(np.concatenate(self.nll, 1))
        return np.asarray(perplexity(nll))

    @property
    def stderrs(self) -> tuple[Floats, Floats]:
        """The standard errors of accuracy and perplexity, [K] each, NaN for one text: texts are drawn, not tokens."""
        accuracy = self._errors(self.correct)
        nll = self._errors(self.nll)
        return accuracy, self.perplexity * nll

    def _errors(self, values: Sequence[NDArray[Any]]) -> Floats:
        """Return the standard error of each layer's mean over tokens, where texts are drawn, [K]."""
        if len(values) < 2:
            return np.full(len(self.layers), np.nan)
        sizes = [each.shape[1] for each in values]
        texts = np.repeat(np.arange(len(sizes)), sizes)
        by_layer = np.concatenate(values, 1)
        return np.array([error_of(row, texts) for row in by_layer])


def scores_of(
    model: LayeredModel,
    rows: Sequence[Sequence[int]],
    layers: Sequence[int],
    reporter: Reporter,
) -> Scores:
    """Return the scores of texts as token ids; raises `LayerscopeError` for one of a single token, and for NaN."""
    for i, row in enumerate(rows):
        if len(row) < 2:
            raise LayerscopeError(
                f"text {i} has one token, and nothing to predict: leave it out or join it to another"
            )
    scored: dict[int, tuple[Floats, Bools]] = {}
    with (
        evaluating(model.module),
        reporter.bar("forward", len(rows), "texts") as advance,
    ):
        for batch in batches_of(model, [*map(len, rows)]):
            scored |= _scored(model, {i: rows[i] for i in batch}, layers)
            advance(len(batch))
    in_order = [scored[i] for i in range(len(rows))]
    nll, correct = zip(*in_order, strict=True)
    return Scores(tuple(layers), nll, correct)


@torch.inference_mode()
def _scored(
    model: LayeredModel, batch: dict[int, Sequence[int]], layers: Sequence[int]
) -> dict[int, tuple[Floats, Bools]]:
    """Return the losses and the hits of each text, [K, T − 1], by its index."""
    assert model.lens is not None and isinstance(model.encoder, TextEncoder)
    inputs = model.encoder.batch_ids(batch.values()).to(model.device)
    assert inputs.mask is not None
    ids = inputs.named["input_ids"]
    predicts = inputs.mask[:, 1:].bool()
    states: list[Tensor] = []

    def keep(layer: int, site: str, tokens: Tensor) -> None:
        if site == "raw" and layer in layers:
            states.append(tokens[:, :-1][predicts])

    model.run(inputs, keep, until=layers[-1])
    labels = ids[:, 1:][predicts].repeat(len(layers))
    losses = []
    hits = []
    start = 0
    for logits in model.lens.token_logits(torch.cat(states), inputs):
        chunk_labels = labels[start : start + len(logits)]
        losses.append(cross_entropy(logits, chunk_labels, reduction="none"))
        hits.append(logits.argmax(-1) == chunk_labels)
        start += len(logits)
    sizes = [len(row) - 1 for row in batch.values()]
    nll = torch.cat(losses).view(len(layers), -1).double().cpu()
    correct = torch.cat(hits).view(len(layers), -1).cpu()
    texts = zip(
        batch, torch.split(nll, sizes, 1), torch.split(correct, sizes, 1), strict=True
    )
    scores = {}
    for i, text_nll, text_correct in texts:
        broken = text_nll.isnan().any(1)
        if bool(broken.any()):
            layer = layers[int(broken.int().argmax())]
            raise LayerscopeError(
                f"layer {layer} gives NaN on text {i}: check its weights, or try another `dtype`"
            )
        scores[i] = text_nll.numpy(), text_correct.numpy()
    return scores
