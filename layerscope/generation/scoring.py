"""How well each layer of a language model predicts given texts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import cross_entropy

from layerscope.core.errors import LayerscopeError
from layerscope.core.progress import Console, Silent, Teller
from layerscope.generation.decoder import open_language_model, read
from layerscope.inputs.pairs import Ids
from layerscope.metrics import perplexity
from layerscope.models import LayeredModel, LoadOptions, Override
from layerscope.models.capture import evaluating
from layerscope.profiling.plan import batches_of
from layerscope.truncation.cutting import checked_layers


@dataclass(frozen=True, eq=False)
class Scores:
    """How well each of K layers predicts the tokens of texts, every token but the first.

    `nll` holds for each text of T tokens the negative log-likelihoods [K, T − 1] in nats, float64, and `correct`
    [K, T − 1] whether the most probable token was the right one. `layers` names the layers, in order.

    >>> from layerscope.generation import Scores
    >>> scores = Scores((1, 2), (np.log([[4.0, 4.0], [2.0, 2.0]]),), (np.array([[False, True], [True, True]]),))
    >>> scores.tokens, scores.accuracy, scores.perplexity
    (2, array([0.5, 1. ]), array([4., 2.]))
    """

    layers: tuple[int, ...]
    nll: tuple[NDArray[np.float64], ...]
    correct: tuple[NDArray[np.bool_], ...]

    @property
    def tokens(self) -> int:
        """Number of tokens that were predicted, over all texts."""
        return sum(values.shape[1] for values in self.nll)

    @property
    def accuracy(self) -> NDArray[np.float64]:
        """The share of all tokens that each layer puts first, [K] (Tracing Representation Progression, equation 20)."""
        return np.asarray(np.concatenate(self.correct, 1).mean(1))

    @property
    def perplexity(self) -> NDArray[np.float64]:
        """The perplexity of each layer over all tokens, [K]."""
        return np.asarray(perplexity(torch.from_numpy(np.concatenate(self.nll, 1))))


def score(
    model: Any,
    texts: Sequence[str],
    layers: int | Sequence[int] | None = None,
    *,
    processor: Any = None,
    part: str | None = None,
    blocks: str | None = None,
    norm: str | None = None,
    revision: str | None = None,
    dtype: str = "auto",
    device: str = "auto",
    trust_remote_code: bool = False,
    allow_pickle: bool = False,
    progress: bool = True,
) -> Scores:
    """Return how well the model, cut at each of these layers, predicts every token of texts from those before it.

    One forward gives all layers; each is read by the model's own final norm and head, which is what the truncated model
    gives.

    Args:
        model: a hub name, a local folder, or a loaded transformers model with `processor`.
        texts: of at least two tokens, and of no more than the model has positions.
        layers: one or several of 1 … L; None: all.
        processor: tokenizer of a model given as an object.
        part: which stack of blocks, where a model has several.
        blocks: path of the module that holds the blocks, where the probe is not to decide.
        norm: path of the final norm, or "none".
        revision: of a hub model.
        dtype: of the weights.
        device: where to put them.
        trust_remote_code: let the checkpoint's own code run.
        allow_pickle: load pickled weights.
        progress: tell what happens on standard error.

    Raises:
        LayerscopeError: for every wrong input, and for logits that are NaN.

    Example:
        >>> from layerscope.generation import score
        >>> found = score("tiny-gpt2", ["the food was good"], layers=[1, 3], progress=False)
        >>> found.layers, found.perplexity.shape
        ((1, 3), (2,))

    """
    teller: Teller = Console() if progress else Silent()
    options = LoadOptions(revision, dtype, device, trust_remote_code, allow_pickle)
    found = open_language_model(model, processor, Override(part, blocks, norm), options)
    kept = checked_layers(_asked(layers, found.stack.depth), found.stack.depth)
    rows = read(found, texts, "text")
    _check_lengths(found, rows)
    nll: dict[int, NDArray[np.float64]] = {}
    correct: dict[int, NDArray[np.bool_]] = {}
    with evaluating(found.module), teller.bar("forward", len(rows), "texts") as advance:
        for batch in batches_of(found, [len(row) for row in rows]):
            for i, losses, hits in _scored(found, {i: rows[i] for i in batch}, kept):
                nll[i], correct[i] = losses, hits
            advance(len(batch))
    order = range(len(rows))
    return Scores(tuple(kept), tuple(nll[i] for i in order), tuple(correct[i] for i in order))


def _asked(layers: int | Sequence[int] | None, depth: int) -> Sequence[Any]:
    if layers is None:
        return range(1, depth + 1)
    return layers if isinstance(layers, Sequence) and not isinstance(layers, str) else [layers]


def _check_lengths(model: LayeredModel, rows: Sequence[list[int]]) -> None:
    for i, row in enumerate(rows):
        if len(row) < 2:
            raise LayerscopeError(
                f"text {i} has one token: nothing of it is predicted, leave it out or join it to another"
            )
        if model.max_length is not None and len(row) > model.max_length:
            raise LayerscopeError(
                f"text {i} has {len(row)} tokens and the model reads {model.max_length}: cut it into several"
            )


@torch.inference_mode()
def _scored(
    model: LayeredModel, batch: dict[int, list[int]], layers: Sequence[int]
) -> Iterator[tuple[int, NDArray[np.float64], NDArray[np.bool_]]]:
    """Yield of each text its number, its losses and its hits, [K, T − 1]."""
    lens = model.lens
    assert lens is not None
    inputs = model.encoder.batch([Ids(tuple(row)) for row in batch.values()]).to(model.device)
    assert inputs.mask is not None
    ids, told = inputs.named["input_ids"], inputs.mask[:, 1:].bool()  # what follows a token tells whether it is read
    states: list[Tensor] = []

    def keep(layer: int, site: str, tokens: Tensor) -> None:
        if site == "raw" and layer in layers:
            states.append(tokens[:, :-1][told])

    model.run(inputs, keep, until=layers[-1])
    target = ids[:, 1:][told].repeat(len(layers))
    losses, hits, start = [], [], 0
    for logits in lens.token_logits(torch.cat(states), inputs):
        truth = target[start : start + len(logits)]
        losses.append(cross_entropy(logits, truth, reduction="none"))
        hits.append(logits.argmax(-1) == truth)
        start += len(logits)
    sizes, shape = [len(row) - 1 for row in batch.values()], (len(layers), -1)
    nll = torch.split(torch.cat(losses).view(shape).double().cpu(), sizes, 1)
    correct = torch.split(torch.cat(hits).view(shape).cpu(), sizes, 1)
    for i, own, first in zip(batch, nll, correct, strict=True):
        broken = own.isnan().any(1)
        if bool(broken.any()):
            layer = layers[int(broken.int().argmax())]
            raise LayerscopeError(
                f"layer {layer} gives logits that are NaN on text {i}: look at its weights, or take another dtype"
            )
        yield i, own.numpy(), first.numpy()
