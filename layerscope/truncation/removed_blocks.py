"""What a model loses without some of its blocks: by its loss, its predictions or its vectors."""

from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn.functional import cosine_similarity, cross_entropy

from layerscope.core import LayerscopeError, processes
from layerscope.core.margin import error_of
from layerscope.models import Inputs, LayeredModel, batches_of, pool
from layerscope.models.lens import CHUNK, skipping
from layerscope.models.pooling import served
from layerscope.truncation.expected import states_at

Blocks = tuple[int, ...]
"""Numbers of blocks, counted from 1."""


def greedy_removal(meter: "Meter", n: int) -> Blocks:
    """Return n blocks, each the one that costs least once those before it are gone."""
    gone: Blocks = ()
    every = range(1, meter.model.depth + 1)
    for _ in range(n):
        left = [block for block in every if block not in gone]
        candidates = [tuple(sorted((*gone, block))) for block in left]
        gone = min(candidates, key=lambda blocks: meter.cost(blocks)[0])
    return gone


class Meter:
    """Compares what a model gives without some of its blocks with what the full one gives, on the same samples.

    Of a language model the loss of the next token counts, of a classifier the divergence of its
    predictions, of a reranker the difference of its scores, else the cosine of the vector that it
    serves.
    """

    def __init__(
        self, model: LayeredModel, samples: Sequence[Any], pooling: str, advance: Any
    ) -> None:
        self.model = model
        self.pooling = pooling
        self.advance = advance
        if model.is_language_model:
            self.kind = "tokens"
        elif model.scorer is not None:
            self.kind = "scores"
        elif model.reads_pairs:
            self.kind = "pooled"
        else:
            self.kind = "vectors"
        encoder = model.encoder
        self.batches = [
            encoder.batch([samples[i] for i in rows]).to(model.device)
            for rows in batches_of(model, encoder.lengths(samples))
        ]
        self.cost = cache(self._cost)
        self.full = self._outputs(())
        if not self.full.isfinite().all():
            raise LayerscopeError(
                f"{model.loaded.name} gives values that are not finite on these samples: its weights are damaged, or "
                "need `dtype='float32'`"
            )

    def _cost(self, blocks: Blocks) -> tuple[float, float, float]:
        """Return what the model loses without these blocks, with its standard error, and what is left."""
        cut = self._outputs(blocks)
        full = self.full
        if self.kind == "tokens":
            cost = cut - full
            score = cut
        elif self.kind == "pooled":
            cost = (full.exp() * (full - cut)).sum(-1)
            score = (full.argmax(-1) == cut.argmax(-1)).double()
        elif self.kind == "scores":
            score = cut.squeeze(-1)
            cost = (score - full.squeeze(-1)).square()
        else:
            score = cosine_similarity(cut, full, dim=-1)
            cost = 1 - score
        losses = cost.numpy()
        return float(losses.mean()), error_of(losses), float(score.mean())

    @torch.inference_mode()
    def _outputs(self, blocks: Blocks) -> Tensor:
        """Return a loss, log-probabilities or a vector of each sample, float64, in the order of the batches."""
        model = self.model

        def outputs(inputs: Inputs) -> Tensor:
            with skipping(model.module, model.stack, blocks):
                states = states_at(model.module, model.stack, inputs, model.depth)
            masked = replace(inputs, mask=model.mask(inputs, states["raw"]))
            return self._read(states, masked).double().cpu()

        batches = [*processes.team().each(outputs, self.batches)]
        self.advance(1)
        return torch.cat(batches)

    def _read(self, states: dict[str, Tensor], inputs: Inputs) -> Tensor:
        """Return a loss, log-probabilities or a vector of each sample of a batch."""
        model = self.model
        raw = states["raw"]
        final = states[model.final]
        mask = inputs.mask
        if self.kind == "tokens" and mask is not None:
            return self._losses(raw, inputs, mask[:, 1:].bool())
        if model.scorer is not None:
            return model.scorer.sample_logits(raw, inputs)
        if self.kind == "pooled" and model.lens is not None:
            return model.lens.sample_logits(raw, inputs).double().log_softmax(-1)
        if model.projection is not None:
            return model.projection.vectors(raw, inputs)
        if model.loaded.served is None:
            return pool(final, mask, self.pooling)
        if model.is_sparse and model.lens is not None:
            final = model.lens.sequence_logits(raw, inputs)
        return served(list(model.loaded.served)[1:], final, mask)

    def _losses(self, raw: Tensor, inputs: Inputs, real: Tensor) -> Tensor:
        """Return the mean loss of the next token of each sample [B]; `real` [B, N - 1] says which tokens follow."""
        lens = self.model.lens
        assert lens is not None
        logits = lens.token_logits(raw[:, :-1][real], inputs)
        tokens = inputs.named["input_ids"][:, 1:][real]
        truths = torch.split(tokens, max(1, CHUNK // lens.classes))
        losses = [
            cross_entropy(*pair, reduction="none")
            for pair in zip(logits, truths, strict=True)
        ]
        by_sample = torch.split(torch.cat(losses), real.sum(1).tolist())
        return torch.stack([sample.mean() for sample in by_sample])

    @torch.inference_mode()
    def influence(self) -> npt.NDArray[np.float64]:
        """Return how much each block turns its input, 1 less the mean cosine over all tokens, `[blocks]`.

        Source: Men et al. 2024, ShortGPT, equation 1.
        """
        model = self.model

        def cosines(inputs: Inputs) -> Tensor:
            layers: list[Tensor] = []

            def visit(layer: int, site: str, tokens: Tensor) -> None:
                if site == "raw":
                    # a block may change its input in place
                    layers.append(tokens.clone())

            model.run(inputs, visit)
            mask = model.mask(inputs, layers[0])
            pairs = pairwise(states.double() for states in layers)
            by_block = torch.stack([cosine_similarity(*pair, dim=-1) for pair in pairs])
            if mask is None:
                return by_block.flatten(1).cpu()
            return by_block[:, mask.bool()].cpu()

        batches = [*processes.team().each(cosines, self.batches)]
        self.advance(1)
        return np.asarray(1 - torch.cat(batches, 1).mean(1).numpy())
