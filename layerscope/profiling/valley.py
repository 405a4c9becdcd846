"""What `valley` sees of a batch: the tokens of each layer with and without their sinks, and the attention they get.

Three curves tell what a valley of the token entropy is made of:

    all tokens       the forward as it is
    without sinks    the same forward; tokens of more than 10 times the median norm are left out of
                     the measure, layer by layer
    sinks ablated    another forward, in which no MLP makes a token massive

If only the first has the valley, one token makes it. If the second has it too, the other tokens are
compressed themselves. If the third has it, they are compressed even where no sink was ever there to
be read by later blocks.
"""

from collections import defaultdict

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from layerscope.metrics.factors import Tokens
from layerscope.metrics.valley import (
    Valley,
    first_token_attention,
    valley,
    valley_without_sinks,
)
from layerscope.models.attention import ATTENTION
from layerscope.models.forward import Inputs
from layerscope.models.sinks import without_sink_writes
from layerscope.profiling.plan import Job, Tensors
from layerscope.runs.registry import parse_key

ALL = "all tokens"
WITHOUT = "without sinks"
ABLATED = "sinks ablated"
COMPRESSION = {"valley": "entropy", "first_singular": "first_singular"}
"""Metrics that are also taken without sinks, and what they are called in a `Valley`."""
NORMS = ("first_norm", "largest_norm")


class ValleyMeasure:
    """Collects the values of one forward of a batch, and runs a second one where sinks are to be ablated."""

    def __init__(self, job: Job, inputs: Inputs, rows: pd.DataFrame) -> None:
        self.job = job
        self.model = job.model
        self.inputs = inputs
        self.rows = rows
        # on a GPU eigenvalues are the cost: they are taken of a seeded share of the samples
        chosen = np.ones(len(rows), dtype=bool)
        if "entropy" in rows:
            chosen = rows["entropy"].to_numpy()
        self.chosen = torch.from_numpy(chosen).to(job.model.device)
        self.every = defaultdict[str, list[Valley]](list)
        self.rest = defaultdict[str, list[Valley]](list)
        self.heads: dict[int, Tensor] = {}

    def visit(self, layer: int, site: str, tokens: Tensor) -> None:
        """Take the values of the states of one layer, or of its attention weights."""
        if site == ATTENTION:
            mask = self.model.mask(self.inputs, tokens[:, 0])
            self.heads[layer] = first_token_attention(tokens, mask)
            return
        is_final = site == "normed" and layer == self.model.depth
        if site != "raw" and not is_final:
            return
        mask = self.model.mask(self.inputs, tokens)
        if mask is not None:
            mask = mask[self.chosen]
        every = Tokens(tokens[self.chosen], mask)
        measured = valley(every)
        without = measured
        if every.sinks.any():
            without = valley_without_sinks(every)
        self.every[site].append(measured)
        self.rest[site].append(without)

    def tensors(self) -> Tensors:
        """Return the values `[layers, B]`, keyed as in a shard."""
        values = self.values()
        if self.job.options.ablate is None:
            return values
        second = ValleyMeasure(self.job, self.inputs, self.rows)
        module = self.model.module
        taps = self.job.inner.taps
        with without_sink_writes(module, self.model.stack, taps, self._sinks):
            self.model.run(self.inputs, second.visit)
        return values | second.ablated()

    def _sinks(self, states: Tensor) -> Tensor:
        """Return which tokens of a block's states are sinks; what fills a text up is none."""
        mask = self.model.mask(self.inputs, states)
        return Tokens(states, mask).sinks

    def values(self) -> Tensors:
        """Return the values by key: the entropy and the first singular value also of what is no sink.

        Attention is that of the mean and the largest head, NaN where a layer gives no weights.
        """
        values = {}
        for site in self.every:
            every = self._by_layer(self.every[site])
            rest = self._by_layer(self.rest[site])
            for name, part in COMPRESSION.items():
                values[f"{name}.{ALL}.{site}"] = every[part]
                values[f"{name}.{WITHOUT}.{site}"] = rest[part]
            for name in NORMS:
                values[f"{name}.{site}"] = every[name]
        if self.heads:
            shape = self.model.depth + 1, len(self.chosen)
            mean = torch.full(shape, torch.nan, device=self.chosen.device)
            largest = mean.clone()
            for layer, by_head in self.heads.items():
                mean[layer] = by_head.mean(-1)
                largest[layer] = by_head.amax(-1)
            values["first_attention.mean head.raw"] = mean
            values["first_attention.largest head.raw"] = largest
        return values

    def ablated(self) -> Tensors:
        """Return the values by key as those of a forward without the writes that make sinks."""
        values = {}
        for key, by_layer in self.values().items():
            name, variant, site = parse_key(key)
            changed = f"{variant},{ABLATED}"
            if variant in (None, ALL):
                changed = ABLATED
            if variant != WITHOUT:
                values[f"{name}.{changed}.{site}"] = by_layer
        return values

    def _by_layer(self, layers: list[Valley]) -> Tensors:
        """Return each part as `[layers, B]`, NaN for samples that are not among the chosen ones."""
        parts = {}
        for name in vars(layers[0]):
            values = torch.stack([getattr(layer, name) for layer in layers])
            whole = values.new_full((len(layers), len(self.chosen)), torch.nan)
            whole[:, self.chosen] = values
            parts[name] = whole.float()
        return parts
