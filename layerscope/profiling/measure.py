"""What one batch yields: pooled states, and what needs its tokens, taken while each layer is at hand."""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from layerscope.metrics.factors import FromTokens, Tokens
from layerscope.metrics.metric import Metric
from layerscope.models.forward import Inputs
from layerscope.models.pooling import pool
from layerscope.profiling.plan import Job
from layerscope.runs.folder import packed
from layerscope.runs.registry import measured
from layerscope.runs.states import OWN, PROJECTED


class BatchMeasure:
    """Visits every layer of one batch; `tensors` holds the result, keyed as in a shard.

    Keys: `raw.mean` and so on [L+1, B, D]; `projected.own` [L+1, B, P] where there is a shared
        space;
    `prompt_entropy.alpha=1.raw` and other per-sample values [L+1, B], where of
    a sub-layer's site there is a row for each layer that has it;
    `broken` [B], the first layer of a sample that is not finite, or −1.
    """

    def __init__(self, job: Job, inputs: Inputs, rows: pd.DataFrame) -> None:
        self.job, self.model, self.options = job, job.model, job.options
        self.inputs, self.rows = inputs, rows
        self.original = bool((rows["view"] == 0).all())
        self.poolings = job.vectors.poolings
        if self.original:
            self.poolings = (*job.vectors.poolings, *job.vectors.pairs)
        self.positions: Tensor | None = None
        if "position" in rows:
            positions = rows["position"].to_numpy()
            self.positions = torch.tensor(positions, device=self.model.device)
        self.token_metrics = list[tuple[Metric, FromTokens]]()
        for metric, how in measured(FromTokens):
            if self.options.measures(metric) and self.original:
                self.token_metrics.append((metric, how))
        self.reads_head = (
            self.original and self.model.lens is not None and self.options.wants("lens")
        )
        self.pooled = defaultdict[str, list[Tensor]](list)
        self.parts = defaultdict[tuple[str, FromTokens, str], list[Any]](list)
        self.finite = dict[int, Tensor]()
        self.lens_states = list[Tensor]()
        self.mask: Tensor | None = None
        self.is_masked: bool | None = None
        """Whether some states are padding: None before the first layer."""

    def visit(self, layer: int, site: str, tokens: Tensor) -> None:
        """Take what is asked for from the states of one layer."""
        if self.is_masked is None:
            # once a batch; where all states are real every layer is spared the masking
            mask = self.model.mask(self.inputs, tokens)
            self.is_masked = mask is not None and not bool(mask.all())
            self.mask = mask if self.is_masked else None
        is_final = site == "normed" and layer == self.model.stack.depth
        is_inside = site not in self.model.sites
        used = self.mask
        if tokens.ndim == 3:
            sinkless, scalings = self.options.exclude_sinks, self.options.rows
            factors = Tokens(tokens, self.mask, sinkless, scalings)
            used = factors.used
            if site == "raw" or is_final or is_inside:
                for metric, how in self.token_metrics:
                    value = how.compute(factors)
                    self.parts[metric.name, how, site].append(value)
        # sees every token, so that no NaN goes unseen
        means = pool(tokens, self.mask, "mean")
        for name in self.job.vectors.poolings if is_inside else self.poolings:
            if name != "mean":
                vectors = pool(tokens, self.mask, name, self.positions)
            elif used is self.mask:
                vectors = means
            else:
                vectors = pool(tokens, used, "mean")
            self.pooled[f"{site}.{name}"].append(vectors)
        finite = torch.isfinite(means).all(-1)
        if site == "raw" and self.model.projection is not None:
            inputs = replace(self.inputs, mask=self.mask)
            vectors = self.model.projection.vectors(tokens.clone(), inputs)
            self.pooled[f"{PROJECTED}.{OWN}"].append(vectors)
            finite &= torch.isfinite(vectors).all(-1)
        self.finite[layer] = finite & self.finite.get(layer, finite)
        if self.reads_head and site == "raw":
            self._keep(tokens)

    def _keep(self, tokens: Tensor) -> None:
        """Keep what the head is to read of a layer."""
        assert self.model.lens is not None
        if self.model.lens.kind == "pooled":
            # a block may change its input in place
            self.lens_states.append(tokens.clone())
        else:
            self.lens_states.append(tokens[self._index("lens")])

    def tensors(self) -> dict[str, Tensor]:
        """Return everything measured, on the CPU."""
        out = dict[str, Tensor]()
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
                out[".".join(filter(None, (name, variant, site)))] = by_layer
        if self.lens_states:
            out |= self._lens(torch.stack(self.lens_states))
        out["broken"] = self._first_broken()
        return {name: values.cpu() for name, values in out.items()}

    def _index(self, name: str) -> tuple[Tensor, Tensor]:
        """Return sample and position of every token that the plan names so."""
        positions = [*self.rows[name]]
        sample = np.repeat(np.arange(len(positions)), [*map(len, positions)])
        position = np.concatenate(positions).astype(np.int64)
        device = self.model.device
        return torch.tensor(sample, device=device), torch.tensor(
            position, device=device
        )

    def _after(self, sample: Tensor, position: Tensor) -> Tensor:
        """Return the token that follows each position."""
        ids = self.inputs.named.get("decoder_input_ids", self.inputs.named["input_ids"])
        return ids[sample, position + 1]

    def _lens(self, states: Tensor) -> dict[str, Tensor]:
        """Read layers 0..L through the head: predictions, and for known targets their negative log likelihood."""
        lens = self.model.lens
        assert lens is not None
        out, target = dict[str, Tensor](), None
        logits: Iterable[Tensor] = ()
        inputs = replace(self.inputs, mask=None)
        if states.ndim == 4:
            inputs = replace(inputs, mask=self.model.mask(self.inputs, states[0]))
        if lens.kind == "pooled":
            logits = (lens.sample_logits(layer, inputs) for layer in states)
            if "target" in self.rows:
                targets = self.rows["target"].to_numpy()
                target = torch.tensor(targets, device=states.device)
        else:
            sample, position = self._index("lens")
            out = {"lens.row": sample.int(), "lens.position": position.int()}
            if len(sample):
                logits = lens.token_logits(states.flatten(0, 1), inputs)
            if self.model.causal:
                target = self._after(sample, position)
        predictions = [states.new_empty(0, dtype=torch.int32)]
        losses = [states.new_empty(0, dtype=torch.float32)]
        start = 0
        for rows in logits:
            predictions.append(rows.argmax(-1).int())
            if target is not None:
                answers = target.repeat(len(states))[start : start + len(rows)]
                losses.append(cross_entropy(rows, answers, reduction="none"))
            start += len(rows)
        shape = len(states), start // len(states)
        out["lens.prediction"] = torch.cat(predictions).view(shape)
        if target is not None:
            out["lens.target"] = target.int()
            out["lens.nll"] = torch.cat(losses).view(shape)
        return out

    def _first_broken(self) -> Tensor:
        """Return for each sample the first layer with a NaN or an infinity, or −1."""
        fine = torch.stack([self.finite[layer] for layer in self.model.layers])
        numbers = torch.tensor(self.model.layers, device=fine.device)
        first = numbers[(~fine).int().argmax(0)]
        return torch.where(fine.all(0), -1, first).int()
