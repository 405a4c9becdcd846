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
    """How well each of K layers predicts N tokens, all of some texts but the first of each.

    `nll` [K, N] holds the negative log-likelihoods in nats, float64, and `correct` [K, N] whether
    the most probable token was the right one. `texts` [N] says which text a token is of, by its
    number. `layers` names the layers, in order.

    >>> from layerscope.generation.scoring import Scores
    >>> nll = np.log([[4.0, 4.0], [2.0, 2.0]])
    >>> scores = Scores((1, 2), nll, np.array([[False, True], [True, True]]), np.array([0, 0]))
    >>> scores.tokens, scores.accuracy, scores.perplexity
    (2, array([0.5, 1. ]), array([4., 2.]))
    """

    layers: tuple[int, ...]
    nll: Floats
    correct: Bools
    texts: NDArray[Any]

    @property
    def tokens(self) -> int:
        """Number of predicted tokens over all texts."""
        return len(self.texts)

    @property
    def accuracy(self) -> Floats:
        """The share of all tokens that each layer puts first, [K] (Tracing Representation Progression, equation 20)."""
        return np.asarray(self.correct.mean(1))

    @property
    def perplexity(self) -> Floats:
        """The perplexity of each layer over all tokens, [K]."""
        return np.asarray(perplexity(torch.from_numpy(self.nll)))

    @property
    def stderrs(self) -> tuple[Floats, Floats]:
        """The standard errors of accuracy and perplexity, [K] each, NaN for one text: texts are drawn, not tokens."""
        return self._errors(self.correct), self.perplexity * self._errors(self.nll)

    def _errors(self, values: NDArray[Any]) -> Floats:
        """Return the standard error of each layer's mean over tokens, where texts are drawn, [K]."""
        # texts are numbered from 0
        if self.texts.max() < 1:
            return np.full(len(self.layers), np.nan)
        return np.array([error_of(row, self.texts) for row in values])


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
    scored = []
    with (
        evaluating(model.module),
        reporter.bar("forward", len(rows), "texts") as advance,
    ):
        for batch in batches_of(model, [*map(len, rows)]):
            scored.append(_scored(model, {i: rows[i] for i in batch}, layers))
            advance(len(batch))
    columns = zip(*scored, strict=True)
    nll, correct, texts = (np.concatenate(column, -1) for column in columns)
    # batches began with the longest text
    order = texts.argsort(kind="stable")
    nll = nll.take(order, 1)
    correct = correct.take(order, 1)
    return Scores(tuple(layers), nll, correct, texts[order])


@torch.inference_mode()
def _scored(
    model: LayeredModel, batch: dict[int, Sequence[int]], layers: Sequence[int]
) -> tuple[Floats, Bools, NDArray[Any]]:
    """Return the losses [K, n] and the hits [K, n] of a batch's tokens, and the index of the text of each, [n]."""
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
    nll = torch.cat(losses).view(len(layers), -1).double().cpu().numpy()
    correct = torch.cat(hits).view(len(layers), -1).cpu().numpy()
    texts = np.repeat([*batch], [len(row) - 1 for row in batch.values()])
    broken = np.isnan(nll)
    if broken.any():
        text = texts[broken.any(0)][0]
        layer = layers[int(broken[:, texts == text].any(1).argmax())]
        raise LayerscopeError(
            f"layer {layer} gives NaN on text {text}: check its weights, or try another `dtype`"
        )
    return nll, correct, texts
