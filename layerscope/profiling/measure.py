"""What one batch yields: pooled states, and what needs its tokens, taken while each layer is at hand.

The states of all tokens at all layers are too large to keep: 100 texts of 128 tokens at 13 layers
of width 768 take half a gigabyte. So a layer is looked at while the model runs on: its tokens are
pooled, each metric of tokens takes what it needs of them, and what the head is to read is copied.
When the batch is through, what must be finished is finished for all layers at once.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any, Protocol

import numpy as np
import pandas as pd
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from layerscope.metrics.factors import FromTokens, Tokens
from layerscope.models.attention import ATTENTION
from layerscope.models.forward import Inputs
from layerscope.models.pooling import pool
from layerscope.profiling.depth import DepthMeasure
from layerscope.profiling.plan import Job, Tensors
from layerscope.profiling.prepared import runs
from layerscope.profiling.valley import ValleyMeasure
from layerscope.runs.folder import packed
from layerscope.runs.registry import measured
from layerscope.runs.states import OWN, PROJECTED


class Measure(Protocol):
    """Sees every layer of one batch, and says what is to be kept of it."""

    def visit(self, layer: int, site: str, tokens: Tensor) -> None:
        """Look at the states of one layer."""

    def tensors(self) -> Tensors:
        """Return what is kept: [B], or [layers, …] with the samples, or their tokens, along the second axis."""


Measures = Callable[[Job, Inputs, pd.DataFrame], Measure]
"""Called for each batch. Of a pass, `broken` [B] is among the tensors: the first layer that is not finite, or −1."""
OBSERVERS: dict[str, Measures] = {
    "valley": ValleyMeasure,
    "causal_depth": DepthMeasure,
}
"""What follows a forward for the metrics that change how the model runs."""


class BatchMeasure:
    """Visits every layer of one batch; `tensors` holds the result, keyed as in a shard.

    Keys, with L layers, B samples of the batch and D features:

    `raw.mean` and so on, site and pooling: [L+1, B, D];
    `projected.own`, where there is a shared space of P features: [L+1, B, P];
    `prompt_entropy.alpha=1.raw` and other per-sample values, metric, variant and site: [L+1, B], of
    a site inside the blocks with a row for each layer that has it;
    `lens.prediction` and so on, what the head reads: [L+1, n] of n samples or tokens;
    `broken`: [B], the first layer of a sample that is not finite, or −1.
    """

    def __init__(self, job: Job, inputs: Inputs, rows: pd.DataFrame) -> None:
        self.job = job
        self.model = job.model
        self.options = job.options
        self.inputs = inputs
        self.rows = rows
        self.poolings = job.vectors.poolings
        self.token_metrics = []
        self.observers = list[Measure]()
        self.reads_head = False
        is_original = rows["view"] == 0
        if is_original.all():
            self.poolings = (*job.vectors.poolings, *job.vectors.pairs)
            for metric, how in measured(FromTokens):
                if self.options.measures(metric):
                    self.token_metrics.append((metric, how))
            for name, kind in OBSERVERS.items():
                if name in self.options.metrics and runs(job):
                    self.observers.append(kind(job, inputs, rows))
            has_lens = self.model.lens is not None
            self.reads_head = has_lens and self.options.wants("lens")
        self.positions: Tensor | None = None
        if "position" in rows:
            positions = rows["position"].to_numpy()
            self.positions = torch.tensor(positions, device=self.model.device)
        self.pooled = defaultdict[str, list[Tensor]](list)
        self.parts = defaultdict[tuple[str, FromTokens, str], list[Any]](list)
        self.finite = dict[int, Tensor]()
        self.lens_states = list[Tensor]()
        self.mask: Tensor | None = None
        """Which states are real, None where all are."""

    def visit(self, layer: int, site: str, tokens: Tensor) -> None:
        """Take from the states of one layer, `[B, T, D]` or pooled `[B, D]`, what the options ask for."""
        for observer in self.observers:
            observer.visit(layer, site, tokens)
        if site == ATTENTION:
            return
        if not self.finite:
            # at the first states alone; where all are real every layer is spared the masking
            mask = self.model.mask(self.inputs, tokens)
            if mask is not None and not mask.all():
                self.mask = mask
        used = self.mask
        if tokens.ndim == 3:
            sinkless = self.options.exclude_sinks
            scalings = self.options.rows
            factors = Tokens(tokens, self.mask, sinkless, scalings)
            used = factors.used
            self._measure(layer, site, factors)
        # sees every token, so that no NaN goes unseen
        means = pool(tokens, self.mask, "mean")
        finite = torch.isfinite(means).all(-1)
        self._pool(site, tokens, used, means)
        if site == "raw":
            if self.model.projection is not None:
                inputs = replace(self.inputs, mask=self.mask)
                vectors = self.model.projection.vectors(tokens.clone(), inputs)
                self.pooled[f"{PROJECTED}.{OWN}"].append(vectors)
                finite &= torch.isfinite(vectors).all(-1)
            if self.reads_head:
                self._keep(tokens)
        self.finite[layer] = finite & self.finite.get(layer, finite)

    def _measure(self, layer: int, site: str, factors: Tokens) -> None:
        """Compute the metrics of tokens: of every layer, of the final one, and of all that is inside the blocks."""
        is_final = site == "normed" and layer == self.model.depth
        is_inside = site not in self.model.sites
        if site == "raw" or is_final or is_inside:
            for metric, how in self.token_metrics:
                value = how.compute(factors)
                self.parts[metric.name, how, site].append(value)

    def _pool(
        self, site: str, tokens: Tensor, used: Tensor | None, means: Tensor
    ) -> None:
        """Pool the states of a layer in every way; `means` are those of all real tokens."""
        poolings = self.poolings
        if site not in self.model.sites:
            poolings = self.job.vectors.poolings
        for name in poolings:
            if name != "mean":
                vectors = pool(tokens, self.mask, name, self.positions)
            elif used is self.mask:
                vectors = means
            else:
                vectors = pool(tokens, used, "mean")
            self.pooled[f"{site}.{name}"].append(vectors)

    def _keep(self, tokens: Tensor) -> None:
        """Keep what the head is to read of a layer: everything, or some of its tokens."""
        assert self.model.lens is not None
        if self.model.lens.kind == "pooled":
            # a block may change its input in place
            self.lens_states.append(tokens.clone())
        else:
            self.lens_states.append(tokens[self._read_tokens()])

    def tensors(self) -> Tensors:
        """Return everything measured, on the CPU."""
        out = Tensors()
        dtype = getattr(torch, self.options.store_dtype)
        for key, layers in self.pooled.items():
            out |= packed(key, torch.stack(layers), dtype)
        # on a GPU eigenvalues are the cost: they are taken of a seeded share of the samples
        chosen: Any = slice(None)
        if "entropy" in self.rows:
            chosen = np.flatnonzero(self.rows["entropy"].to_numpy())
        for (name, how, site), parts in self.parts.items():
            values = how.finish(parts, self.options.alpha, chosen)
            for variant, by_layer in values.items():
                key = f"{name}.{variant}.{site}" if variant else f"{name}.{site}"
                out[key] = by_layer
        if self.lens_states:
            out |= self._lens(torch.stack(self.lens_states))
        for observer in self.observers:
            out |= observer.tensors()
        out["broken"] = self._first_broken()
        return {name: values.cpu() for name, values in out.items()}

    def _read_tokens(self) -> tuple[Tensor, Tensor]:
        """Return sample and position of every token that the head reads."""
        positions = [*self.rows["lens"]]
        counts = [*map(len, positions)]
        sample = np.repeat(np.arange(len(positions)), counts)
        position = np.concatenate(positions).astype(np.int64)
        device = self.model.device
        return torch.tensor(sample, device=device), torch.tensor(
            position, device=device
        )

    def _lens(self, states: Tensor) -> Tensors:
        """Read layers 0..L through the head: predictions, and for known targets their negative log likelihood.

        `states` are `[L+1, B, …]`, or of a head that reads tokens, those of its n tokens
        `[L+1, n, D]`.
        """
        lens = self.model.lens
        assert lens is not None
        out = Tensors()
        target = None
        logits: Iterable[Tensor] = ()
        if lens.kind == "pooled":
            mask = self.model.mask(self.inputs, states[0])
            inputs = replace(self.inputs, mask=mask)
            logits = (lens.sample_logits(layer, inputs) for layer in states)
            if "target" in self.rows:
                targets = self.rows["target"].to_numpy()
                target = torch.tensor(targets, device=states.device)
        else:
            sample, position = self._read_tokens()
            out = {"lens.row": sample.int(), "lens.position": position.int()}
            if len(sample):
                logits = lens.token_logits(states.flatten(0, 1), self.inputs)
            if self.model.causal:
                named = self.inputs.named
                ids = named.get("decoder_input_ids", named["input_ids"])
                target = ids[sample, position + 1]

        # logits come in pieces of the layers, one layer after the other
        predictions = [states.new_empty(0, dtype=torch.int32)]
        losses = [states.new_empty(0, dtype=torch.float32)]
        start = 0
        for piece in logits:
            predictions.append(piece.argmax(-1).int())
            if target is not None:
                answers = target.repeat(len(states))[start : start + len(piece)]
                losses.append(cross_entropy(piece, answers, reduction="none"))
            start += len(piece)
        shape = len(states), start // len(states)
        out["lens.prediction"] = torch.cat(predictions).view(shape)
        if target is not None:
            out["lens.target"] = target.int()
            out["lens.nll"] = torch.cat(losses).view(shape)
        return out

    def _first_broken(self) -> Tensor:
        """Return for each sample the first layer with a NaN or an infinity, or −1."""
        fine = torch.stack([*self.finite.values()])
        layers = torch.tensor([*self.finite], device=fine.device)
        first = layers[(~fine).int().argmax(0)]
        return torch.where(fine.all(0), -1, first).int()
