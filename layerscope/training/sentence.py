"""A sentence-transformers loss at every layer of its model."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from transformers import BatchEncoding

from layerscope.core import LayerscopeError
from layerscope.models import LoadOptions, evaluating, find_layers, load, replaced
from layerscope.models.inspection import TEXTS
from layerscope.training.exits import exit_layers, recorded
from layerscope.training.loss import ExitWeights, exit_weights

TOKENS = "token_embeddings"
Features = dict[str, Any]
"""What a SentenceTransformer reads, and what its modules add."""


class AlignedLoss(nn.Module):
    """Σ λ_ℓ loss over the layers of a SentenceTransformer, for `SentenceTransformerTrainer`.

    The embedding of a layer is what the model cut there would give: its final norm, its pooling and
    the modules after it. The transformer runs once for each batch that the loss gives it, and what
    comes after it once for each layer.

    Args:
        loss: any sentence-transformers loss that trains one SentenceTransformer and runs it once a
            step; cached losses run it twice and are refused.
        layers: the exits; by default every layer from 1 on.
        weights: "linear", "uniform", or one number per exit: see `exit_weights`.
        dims: numbers of dimensions: each layer's loss is the mean over these prefixes of the
            embedding and the whole of it, each scaled to length 1 (two-dimensional Matryoshka
            training); by default the embedding as it is.

    Raises:
        LayerscopeError: for a cached loss, one without a model, a model whose layers its pooling
            cannot read, and dims that it does not have.

    Source: Tracing Representation Progression, section 3.1; for dims Kusupati et al. 2022,
    Matryoshka Representation
    Learning, and Li et al. 2024, 2D Matryoshka Sentence Embeddings, which draws one layer and one
    prefix a step.

    Example:
        >>> from sentence_transformers import SentenceTransformer
        >>> from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss
        >>> from layerscope.training import AlignedLoss
        >>> loss = AlignedLoss(MultipleNegativesRankingLoss(SentenceTransformer("tiny-bert")), layers=[1, 3])
        >>> loss.shares
        (0.25, 0.75)

    """

    def __init__(
        self,
        loss: nn.Module,
        layers: Sequence[int] | None = None,
        weights: ExitWeights = "linear",
        dims: Sequence[int] | None = None,
    ) -> None:
        super().__init__()
        self.model = _model_of(loss)
        # what is wrapped is named before what wraps it
        for part in reversed(list(loss.modules())):
            _check_kind(part)
        self.dims: tuple[int, ...] = ()
        self.loss = loss
        if dims is not None:
            self.dims = prefixes(self.model, dims)
            self.loss = _at_each(self.dims, loss, self.model)
        self.layered = find_layers(load(self.model, LoadOptions()), "text", TEXTS)
        self.layers = exit_layers(self.layered, layers)
        self.shares = exit_weights(self.layers, self.layered.depth, weights)
        self._check()

    def forward(
        self, sentence_features: Iterable[Features], labels: Tensor | None = None
    ) -> Tensor:
        """Return the weighted sum over layers; arguments are those of the loss."""
        columns = list(sentence_features)
        total: Any = 0.0
        with self._exits() as choose:
            for index, share in enumerate(self.shares):
                choose(index)
                # the model writes into what it is given, and the next layer must find it as it was
                loss = self.loss([dict(features) for features in columns], labels)
                if isinstance(loss, dict):
                    loss = torch.stack([*loss.values()]).sum()
                total = total + share * loss
        return torch.as_tensor(total)

    def embeddings(self, features: Features) -> Tensor:
        """Return the embedding that each exit gives a batch, `[E, B, D]`, out of one run of the transformer."""
        embeddings = []
        with self._exits() as choose:
            for index in range(len(self.layers)):
                choose(index)
                embeddings.append(self.model(dict(features))["sentence_embedding"])
        return torch.stack(embeddings)

    @contextmanager
    def _exits(self) -> Iterator[Callable[[int], None]]:
        """Within, the transformer gives the token states of the exit that is chosen by its index.

        The first choice runs it on each batch of the loss, and keeps every exit, which later ones
        read in that order.
        """
        model: Any = self.model
        while not hasattr(model, "_first_module"):  # out of what engines wrap around it
            model = getattr(model, "module", None) or model._orig_mod
        transformer = model[0]
        run = transformer.forward
        kept: list[tuple[Features, tuple[Tensor, ...]]] = []
        chosen = 0
        calls = 0

        def choose(index: int) -> None:
            nonlocal chosen, calls
            chosen = index
            calls = 0

        def forward(features: Features, **options: Any) -> Features:
            nonlocal calls
            if calls == len(kept):
                kept.append(self._stacked(lambda: run(features, **options)))
            output, states = kept[calls]
            calls += 1
            return {**output, TOKENS: states[chosen]}

        with replaced({transformer: forward}):
            yield choose

    def _stacked(
        self, call: Callable[[], Features]
    ) -> tuple[Features, tuple[Tensor, ...]]:
        """Return the transformer's output, and the token states of every exit, of one run."""
        with recorded(self.layered, self.layers):
            output = call()
        return output, output[TOKENS].chunk(len(self.layers))

    @torch.no_grad()
    def _check(self) -> None:
        """Raise `LayerscopeError` where the transformer's output does not read the states of its last block alone."""
        model = self.model
        features = features_of(model, TEXTS)
        with evaluating(model):
            states = model[0](dict(features)).get(TOKENS)
            if states is not None:
                _, exits = self._stacked(lambda: model[0](dict(features)))
                last = exits[-1]
                is_shallow = self.layers[-1] < self.layered.depth
                if last.shape == states.shape and (
                    is_shallow or torch.allclose(last, states, rtol=1e-3, atol=1e-4)
                ):
                    return
        raise LayerscopeError(
            f"the layers of {type(model[0]).__name__} do not give token states that its pooling reads"
        )


def features_of(model: Any, texts: Sequence[str]) -> Features:
    """Return texts as a SentenceTransformer reads them, on its device."""
    features = BatchEncoding(model.preprocess(list(texts)))
    return dict(features.to(model.device))


def prefixes(model: Any, dims: Sequence[int]) -> tuple[int, ...]:
    """Return numbers of dimensions with the model's width, ascending; raises for those that it does not have."""
    width = model.get_embedding_dimension()
    if not dims or min(dims) < 1 or max(dims) > width:
        raise LayerscopeError(
            f"dims {list(dims)}: give whole numbers from 1 to {width}, the model's width"
        )
    return tuple(sorted({*dims, width}))


def _at_each(dims: Sequence[int], loss: nn.Module, model: Any) -> nn.Module:
    """Return the mean of a loss over prefixes of the embedding."""
    # the one path of 5.x and 6.x
    from sentence_transformers.losses import MatryoshkaLoss

    if any(isinstance(part, MatryoshkaLoss) for part in loss.modules()):
        raise LayerscopeError(
            "MatryoshkaLoss has dimensions of its own: leave `dims` out, or give the loss inside it"
        )
    weights = [1 / len(dims)] * len(dims)
    mean: nn.Module = MatryoshkaLoss(model, loss, list(dims), weights)
    return mean


def _check_kind(loss: nn.Module) -> None:
    """Raise for a loss that trains every layer itself or runs its model a second time."""
    kinds = " ".join(kind.__name__ for kind in type(loss).__mro__)
    repeats = getattr(loss, "uses_gradient_cache", "Cached" in kinds)
    if repeats or "AdaptiveLayer" in kinds:
        raise LayerscopeError(
            f"{type(loss).__name__} chooses its layers or runs the model again by itself, when no layer can be "
            "read: give a loss that runs the model once, such as the one inside it"
        )


def _model_of(loss: nn.Module) -> Any:
    """Return the SentenceTransformer that a loss trains: its `model`, else the only one it holds, whatever its name."""
    model: Any = getattr(loss, "model", None)
    if hasattr(model, "_first_module"):
        return model
    models = [child for child in loss.children() if hasattr(child, "_first_module")]
    if len(models) != 1:
        raise LayerscopeError(
            f"{type(loss).__name__} does not hold one SentenceTransformer: AlignedLoss takes a loss that trains one"
        )
    return models[0]
