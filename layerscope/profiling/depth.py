"""What `causal_depth` measures of a batch: every block skipped in turn, and what its branches add to the stream.

Of a causal model each block is skipped at the first half of a text's tokens. At these tokens the
text is then the same as with the block skipped everywhere, which is the effect at the same token; at
the others only what came before them has changed, which is the effect on future tokens. One skip
gives both. Of a text of five tokens, with block 2 of 3 skipped:

    token                    1      2      3      4      5
    block 2 runs             no     no     no     yes    yes
    block 3 reads            h₁     h₁     h₁     h₂     h₂
    its change counts as     same   same   same   future future

Token 4 differs from the full model only in what block 3 reads of tokens 1 to 3. A model that reads
both ways has no future tokens: its blocks are skipped everywhere.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace

import pandas as pd
import torch
from torch import Tensor

from layerscope.metrics.arrays import real_mask
from layerscope.metrics.causal_depth import (
    branch_contribution,
    causal_depth,
    contribution_change,
    prediction_change,
)
from layerscope.models import LayeredModel
from layerscope.models.forward import Inputs
from layerscope.models.skips import Recorded, record
from layerscope.profiling.plan import Job, Tensors

SAME, FUTURE = "same token", "future tokens"
READ = 4
"""Predictions are read at this many tokens of a text, and of its future tokens."""
ADDED = ("block", "attn", "cross_attn", "mlp")
"""Parts whose states are added to the stream; the other sites are sums."""
Values = defaultdict[str, Tensor]
"""Values `[layers, B]` by key, NaN until they are known."""
Part = tuple[int, str, Tensor]
"""A block or what is inside it: its layer, site and state."""


class DepthMeasure:
    """Skips the blocks once the batch has been seen."""

    def __init__(self, job: Job, inputs: Inputs, rows: pd.DataFrame) -> None:
        self.model = job.model
        self.taps = job.inner.taps
        self.inputs = inputs
        self.real = torch.empty(0, dtype=torch.bool)

    def visit(self, layer: int, site: str, tokens: Tensor) -> None:
        """Take which tokens are real."""
        if layer == 0 and site == "raw":
            mask = self.model.mask(self.inputs, tokens)
            self.real = real_mask(tokens, mask)

    def tensors(self) -> Tensors:
        """Return the values `[L + 1, B]`, keyed as in a shard; NaN where a layer has none."""
        shape = self.model.depth + 1, len(self.real)
        unknown = torch.full(
            shape, torch.nan, dtype=torch.float64, device=self.real.device
        )
        values = Values(unknown.clone)
        inside: list[Part] = []

        def see(layer: int, site: str, state: Tensor) -> None:
            """Keep what is inside a block until the stream before it is known."""
            inside.append((layer, site, state.clone()))

        recorded = record(self.model, self.inputs, self.taps, see)
        recorded.check_length(self.real.shape[1])
        contributions = recorded.contributions
        whole = [(i, "block", added) for i, added in enumerate(contributions, 1)]
        self._measure_branches(recorded, [*whole, *inside], values)
        self._measure_skips(recorded, contributions, values)
        changes = values[f"skip_prediction.{SAME}.raw"]
        values["causal_depth.raw"][-1] = causal_depth(changes[1:].mT)
        return {key: by_layer.float() for key, by_layer in values.items()}

    def _measure_branches(
        self, recorded: Recorded, parts: Sequence[Part], values: Values
    ) -> None:
        """Put among the values cosine and norm of what blocks and their branches add to the stream."""
        stream = dict(enumerate(recorded.stream, 1))
        for layer, site, state in parts:
            if site in ADDED:
                cosine, norm = branch_contribution(state, stream[layer], self.real)
                values[f"branch_cosine.{site}.raw"][layer] = cosine
                values[f"branch_norm.{site}.raw"][layer] = norm
            else:  # after an addition the next branch adds to the sum
                stream[layer] = state

    def _measure_skips(
        self, recorded: Recorded, contributions: Sequence[Tensor], values: Values
    ) -> None:
        """Skip each block in turn, and put among the values what changes after it at the tokens of each side."""
        sides = sides_of(self.model, self.real)
        last = recorded.stream[-1]
        predictions = {
            side: _Predictions(self.model, self.inputs, tokens, last)
            for side, tokens in sides.items()
        }
        for block in range(1, self.model.depth + 1):
            skipped = recorded.without(block, sides[SAME])
            before = next(skipped)
            later = defaultdict[str, list[Tensor]](list)
            for contribution, state in zip(contributions[block:], skipped, strict=True):
                changed = state - before
                for side, tokens in sides.items():
                    change = contribution_change(contribution, changed, tokens)
                    later[side].append(change)
                before = state
            for side, changes in later.items():
                mean = torch.stack(changes).nanmean(0)
                values[f"skip_later.{side}.raw"][block] = mean
            for side, prediction in predictions.items():
                change = prediction.change(before)
                values[f"skip_prediction.{side}.raw"][block] = change


def sides_of(model: LayeredModel, real: Tensor) -> dict[str, Tensor]:
    """Return the tokens `[B, T]` at which blocks are skipped, and where there are some those that follow them."""
    is_pooled = model.lens is not None and model.lens.kind == "pooled"
    if not model.causal or is_pooled:
        return {SAME: real}
    length = real.sum(-1, keepdim=True)
    half = (length + 1) // 2
    first = real & (real.cumsum(-1) <= half)
    return {SAME: first, FUTURE: real & ~first}


class _Predictions:
    """Compares what is predicted from other states of the last layer, at some tokens of each sample."""

    def __init__(
        self, model: LayeredModel, inputs: Inputs, real: Tensor, last: Tensor
    ) -> None:
        self.model = model
        self.real = real
        self.inputs = inputs
        self.is_pooled = model.lens is not None and model.lens.kind == "pooled"
        if self.is_pooled:
            self.inputs = replace(inputs, mask=model.mask(inputs, last))
            self.sample = torch.arange(len(real), device=real.device)
        else:
            self.sample, self.position = _spread(real)
        self.full = self._read(last)

    def change(self, last: Tensor) -> Tensor:
        """Return the mean change of each sample `[B]`, NaN where it has no such token."""
        changed = self._read(last)
        if self.model.lens is None:
            moved = (changed - self.full).norm(dim=-1)
            moved = moved / self.full.norm(dim=-1)
        else:
            moved = prediction_change(self.full, changed)
        none = moved.new_zeros(len(self.real))
        total = none.index_add(0, self.sample, moved)
        number = none.index_add(0, self.sample, torch.ones_like(moved))
        mean: Tensor = total / number
        return mean

    def _read(self, last: Tensor) -> Tensor:
        """Return logits, or without a head the model's last states, one row for each prediction, in float64."""
        lens = self.model.lens
        if lens is not None and self.is_pooled:
            return lens.sample_logits(last, self.inputs).double()
        states: Tensor = last[self.sample, self.position]
        if lens is not None:
            none = states.new_empty(0, lens.classes)
            logits = lens.token_logits(states, self.inputs)
            return torch.cat([none, *logits]).double()
        path = self.model.stack.norm
        if path is not None:
            norm = self.model.module.get_submodule(path)
            states = norm(states[:, None])[:, 0]
        return states.double()


def _spread(real: Tensor) -> tuple[Tensor, Tensor]:
    """Return sample and position of up to `READ` tokens of each sample, spread over those of `real` `[B, T]`."""
    samples = []
    positions = []
    for sample, row in enumerate(real):
        tokens = row.nonzero().flatten()
        few = min(READ, len(tokens))
        steps = torch.arange(few, device=row.device) * (len(tokens) - 1)
        chosen = tokens[steps // max(1, few - 1)]
        samples.append(torch.full_like(chosen, sample))
        positions.append(chosen)
    return torch.cat(samples), torch.cat(positions)
