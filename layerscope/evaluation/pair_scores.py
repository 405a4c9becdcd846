"""What a model itself says of pairs of texts, at each layer: a score, classes, or the similarity of its vectors."""

from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from layerscope.core import LayerscopeError
from layerscope.core.rank_correlation import Floats, spearman_by_sample
from layerscope.evaluation.probe_states import Pass, Shared
from layerscope.inputs import Corpus, draw, open_corpus
from layerscope.inputs.pairs import Pair, paired
from layerscope.models import LayeredModel, batches_of, evaluating
from layerscope.models.layered import truth_of
from layerscope.models.pooling import served
from layerscope.probes.scores import ProbeScore, score_of, score_of_values
from layerscope.scores.probe_results import Slot

HEAD = "head"
"""Stands for the pooling of layers that the model's own head reads."""


def scored_pairs(data: Any, samples: int | None, seed: int) -> Corpus:
    """Return pairs of texts with a score or a label each."""
    corpus = paired(open_corpus(data), data, None)
    if corpus.labels is None or not isinstance(corpus.samples[0], Pair):
        raise LayerscopeError(
            f"{corpus.name} has no pairs with scores: give the columns text_a, text_b and score, or label"
        )
    return draw(corpus, samples, seed)


class PairScores(Shared):
    """What a model's head gives for each pair at each layer, or the similarity of the two sparse vectors."""

    read = staticmethod(scored_pairs)

    def __init__(self, data: Any, model: LayeredModel, slots: Any) -> None:
        super().__init__(data, model, slots)
        name = model.loaded.name
        if not (model.reads_pairs or model.is_sparse):
            raise LayerscopeError(
                f"{name} has no score of two texts, as a reranker or a SparseEncoder has: give it sts:FILE"
            )
        place = model.final, HEAD
        self.last = model.stack.depth, *place
        self.slots = [*dict.fromkeys((layer, *place) for layer, *_ in slots)]
        self.truth = truth_of(data, model)
        self.values: dict[int, Floats] = {}

    @torch.inference_mode()
    def compute(self, work: Pass) -> None:
        """Run the model over the pairs, and keep what each layer gives `[N, K]`."""
        model = self.model
        samples = self.corpus.samples
        width = 1
        if model.reads_pairs and model.head is not None:
            width = model.head.classes
        for layer in model.layers:
            self.values[layer] = np.zeros((len(samples), width))
        lengths = model.encoder.lengths(samples)
        with (
            evaluating(model.module),
            work.reporter.bar("pairs", len(samples), "pairs") as advance,
        ):
            for rows in batches_of(model, lengths):
                batch = [samples[row] for row in rows]
                given = self._given(batch)
                for layer, values in given.items():
                    self.values[layer][rows] = values.double().cpu().numpy()
                advance(len(rows))

    def _given(self, pairs: list[Pair]) -> dict[int, Tensor]:
        """Return by layer what the model gives for some pairs [B, K]."""
        if self.model.reads_pairs:
            return self._by_head(pairs)
        first = self._by_head([pair.first for pair in pairs])
        second = self._by_head([pair.second for pair in pairs])
        encoder = self.model.loaded.served
        by_layer = {}
        for layer, vectors in first.items():
            similarity = encoder.similarity_pairwise(vectors, second[layer])
            by_layer[layer] = similarity.unsqueeze(-1)
        return by_layer

    def _by_head(self, samples: list[Any]) -> dict[int, Tensor]:
        """Return by layer the logits of some samples, or their sparse vectors, by the model's own head."""
        model = self.model
        head = model.head
        assert head is not None
        inputs = model.encoder.batch(samples).to(model.device)
        states: dict[int, Tensor] = {}

        def keep(layer: int, site: str, tokens: Tensor) -> None:
            if site == "raw":
                states[layer] = tokens.clone()

        model.run(inputs, keep)
        mask = model.mask(inputs, states[0])
        by_layer = {}
        for layer, raw in states.items():
            if model.is_sparse:
                logits = head.sequence_logits(raw, inputs)
                after = list(model.loaded.served)[1:]
                by_layer[layer] = served(after, logits, mask)
            else:
                by_layer[layer] = head.sample_logits(raw, replace(inputs, mask=mask))
        return by_layer

    def layer(self, slot: Slot) -> tuple[Any, ...]:
        """Return what a layer gives for each pair `[N, K]`, and what is true of it `[N]`."""
        return self.values[slot[0]], self.truth


def pair_score(values: Floats, truth: NDArray[Any], seed: int) -> ProbeScore:
    """Return Spearman's correlation of one score a pair with the true one, or of several classes the accuracy."""
    fold = np.arange(len(values)) % 5
    if values.shape[1] > 1:
        return score_of(values.argmax(1) == truth, fold, 0)
    by_pair = np.zeros(len(values))
    # before the first block a head may read a token that is the same in all pairs
    if np.ptp(values) > 0:
        by_pair = spearman_by_sample(truth, values[:, 0])
    return score_of_values(by_pair, fold)
