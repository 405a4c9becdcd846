"""What one batch yields: pooled states, and what needs its tokens, taken while each layer is at hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from layerscope.metrics.arrays import real_first, real_mask
from layerscope.metrics.curvature import curvature_and_zeros
from layerscope.metrics.norms import is_sink, summary
from layerscope.metrics.prompt_entropy import entropy_of_grams, gram_side, token_gram
from layerscope.models.forward import Inputs
from layerscope.models.pooling import pool
from layerscope.models.projection import Projection
from layerscope.profiling.job import Job
from layerscope.runs.folder import packed
from layerscope.runs.states import OWN, PROJECTED

NORMS = {"norm_mean": "mean", "norm_median": "median", "norm_max": "maximum", "sink_share": "sink_share"}
"""Metrics of token norms, and what each is called where they are computed."""

HELD = 1 << 24
"""Numbers of the states that wait for their projection, unless one layer alone has more."""

Prompts = tuple[str, int | None]
"""A site, and how many of each sample's first tokens are meant; None is all."""


class BatchMeasure:
    """Visits every layer of one batch; `tensors` holds the result, keyed as in a shard.

    Keys: `raw.mean` and so on [L+1, B, D]; `projected.own` [L+1, B, P] where there is a shared space;
    `prompt_entropy.alpha=1.raw` and other per-sample values [L+1, B], where of
    a sub-layer's site there is a row for each layer that has it;
    `broken` [B], the first layer of a sample that is not finite, or −1.
    """

    def __init__(self, job: Job, inputs: Inputs, rows: pd.DataFrame) -> None:
        model, vectors = job.model, job.vectors
        self.job, self.model, self.options, self.inputs, self.rows = job, model, job.options, inputs, rows
        self.original = bool((rows["view"] == 0).all())
        self.poolings = (*vectors.poolings, *vectors.pairs) if self.original else vectors.poolings
        self.positions = torch.tensor(rows["position"].to_numpy(), device=model.device) if "position" in rows else None
        self.pooled: dict[str, list[Tensor]] = {}
        self.scalars: dict[str, list[Tensor]] = {}
        self.grams: dict[Prompts, list[Tensor]] = {}
        self.lengths: dict[Prompts, list[Tensor]] = {}
        self.sides: dict[Prompts, str] = {}
        self.means: list[Tensor] = []
        self.inside: list[tuple[int, Tensor]] = []
        self.unprojected: list[Tensor] = []
        self.lens_states: list[Tensor] = []
        self.masked: tuple[()] | tuple[Tensor | None] = ()

    def visit(self, layer: int, site: str, tokens: Tensor) -> None:
        """Take what is asked for from the states of one layer."""
        final = site == "normed" and layer == self.model.stack.depth
        inside = site not in self.model.sites
        mask = self._real(tokens)
        kept = self.original and tokens.ndim == 3 and (site == "raw" or final or inside)
        used = self._norms(site, tokens, mask, kept) if tokens.ndim == 3 else mask
        for name in self.job.vectors.poolings if inside else self.poolings:
            self._keep(f"{site}.{name}", pool(tokens, used if name == "mean" else mask, name, self.positions))
        if inside:
            self.inside.append((layer, pool(tokens, mask, "mean")))
        elif "mean" not in self.poolings or self.options.exclude_sinks:
            self.means.append(pool(tokens, mask, "mean"))  # sees every token, so that no NaN goes unseen
        if kept:
            self._token_metrics(site, tokens, mask, used)
        if site == "raw" and self.model.projection is not None:
            self._project(self.model.projection, layer, tokens, mask)
        if self.original and site == "raw" and self._reads():
            self.lens_states.append(self._lens_rows(tokens))

    def tensors(self) -> dict[str, Tensor]:
        """Return everything measured, on the CPU."""
        out: dict[str, Tensor] = {}
        for key, layers in self.pooled.items():
            out |= packed(key, torch.stack(layers), getattr(torch, self.options.store_dtype))
        for key, layers in self.scalars.items():
            out[key] = torch.stack(layers)
        for prompts, grams in self.grams.items():
            out |= self._entropies(prompts, torch.stack(grams))
        if self.lens_states:
            out |= self._lens(torch.stack(self.lens_states))
        return {k: v.cpu() for k, v in {**out, "broken": self._first_broken()}.items()}

    def _real(self, tokens: Tensor) -> Tensor | None:
        """Which states are real, found once a batch; None where all are, which spares every layer the masking."""
        if not self.masked:
            mask = self.model.mask(self.inputs, tokens)
            self.masked = (None if mask is None or bool(mask.all()) else mask,)
        return self.masked[0]

    def _keep(self, key: str, vectors: Tensor) -> None:
        self.pooled.setdefault(key, []).append(vectors)

    def _project(self, projection: Projection, layer: int, tokens: Tensor, mask: Tensor | None) -> None:
        """Hold some layers back, as many as take little memory: each run through the model's end has its price."""
        self.unprojected.append(tokens.clone())  # a block may change its input in place
        if layer < self.model.stack.depth and (len(self.unprojected) + 1) * tokens.numel() <= HELD:
            return
        vectors = projection.layers(torch.stack(self.unprojected), replace(self.inputs, mask=mask))
        first = layer + 1 - len(self.unprojected)
        self.inside += [(first + i, found) for i, found in enumerate(vectors)]
        self.pooled.setdefault(f"{PROJECTED}.{OWN}", []).extend(vectors)
        self.unprojected.clear()

    def _token_metrics(self, site: str, tokens: Tensor, mask: Tensor | None, used: Tensor | None) -> None:
        """`mask` marks the real tokens, `used` those of them that are no sinks left out."""
        if "curvature" in self.options.metrics:
            angle, zeros = curvature_and_zeros(tokens, mask)
            self.scalars.setdefault(f"curvature.{site}", []).append(angle.float())
            self.scalars.setdefault(f"zero_steps.{site}", []).append(zeros.float())
        if "prompt_entropy" in self.options.metrics:
            self._keep_grams(site, tokens, used)

    def _keep_grams(self, site: str, tokens: Tensor, used: Tensor | None) -> None:
        """The Grams of the samples, and of their first tokens where prefixes are asked for."""
        every = torch.full((len(tokens),), tokens.shape[1], device=tokens.device)
        lengths = every if used is None else used.sum(1)
        self._keep_gram((site, None), tokens, used, lengths)
        first = real_first(tokens, used)[0] if self.options.prefixes else tokens
        for prefix in self.options.prefixes or ():
            self._keep_gram((site, prefix), first[:, :prefix], None, torch.where(lengths >= prefix, prefix, 0))

    def _keep_gram(self, key: Prompts, tokens: Tensor, used: Tensor | None, lengths: Tensor) -> None:
        self.sides[key] = gram_side(*tokens.shape[-2:])
        self.grams.setdefault(key, []).append(token_gram(tokens, used))
        self.lengths.setdefault(key, []).append(lengths)

    def _entropies(self, key: Prompts, grams: Tensor) -> dict[str, Tensor]:
        """S_α of all layers at once; on a GPU eigenvalues are the cost, so S₁ takes a seeded share of the samples."""
        out: dict[str, Tensor] = {}
        site, prefix = key
        for alpha in self.options.alpha:
            every = alpha == 2.0 or "entropy" not in self.rows
            chosen = slice(None) if every else np.flatnonzero(self.rows["entropy"].to_numpy())
            values = grams.new_full(grams.shape[:2], torch.nan)
            values[:, chosen] = self._entropy(key, grams[:, chosen], [n[chosen] for n in self.lengths[key]], alpha)
            variant = f"alpha={alpha:g}" if prefix is None else f"alpha={alpha:g},prefix={prefix}"
            out[f"prompt_entropy.{variant}.{site}"] = values.float()
        return out

    def _entropy(self, key: Prompts, grams: Tensor, lengths: list[Tensor], alpha: float) -> Tensor:
        side = self.sides[key]
        if not self.options.exclude_sinks:
            return entropy_of_grams(grams, lengths[0], alpha, side=side)
        # without its sinks a sample has another number of tokens at every layer
        layers = zip(grams, lengths, strict=True)
        return torch.stack([entropy_of_grams(gram, n, alpha, side=side) for gram, n in layers])

    def _norms(self, site: str, tokens: Tensor, mask: Tensor | None, kept: bool) -> Tensor | None:
        """Keep norms and number of sinks where they are asked for; return which tokens entropies and means take."""
        wanted = [name for name in NORMS if name in self.options.metrics]
        if not wanted and not self.options.exclude_sinks:
            return mask
        exact = torch.promote_types(tokens.dtype, torch.float32)
        norms, real = torch.linalg.vector_norm(tokens, dim=-1, dtype=exact).float(), real_mask(tokens, mask)
        sinks = is_sink(norms, real)
        if kept:
            found = summary(norms, real) if wanted else None
            for name in wanted:
                self.scalars.setdefault(f"{name}.{site}", []).append(getattr(found, NORMS[name]))
            self.scalars.setdefault(f"sinks.{site}", []).append(sinks.sum(1).float())
        return (real & ~sinks).long() if self.options.exclude_sinks else mask

    def _reads(self) -> bool:
        return self.model.lens is not None and self.options.wants("lens")

    def _lens_rows(self, tokens: Tensor) -> Tensor:
        """The states the lens will read: some tokens of a language model, all of a classifier's."""
        assert self.model.lens is not None
        if self.model.lens.kind == "pooled":
            return tokens.clone()  # a block may change its input in place
        sample, position = self._lens_index()
        return tokens[sample, position]

    def _lens_index(self) -> tuple[Tensor, Tensor]:
        chosen = [[(i, p) for p in positions] for i, positions in enumerate(self.rows["lens"])]
        flat = np.array(sum(chosen, []), dtype=np.int64).reshape(-1, 2)
        index = torch.from_numpy(flat).to(self.model.device)
        return index[:, 0], index[:, 1]

    def _lens(self, states: Tensor) -> dict[str, Tensor]:
        """Read layers 0..L through the head: predictions, and for known targets their negative log likelihood."""
        lens = self.model.lens
        assert lens is not None
        mask = None if states.ndim != 4 else self.model.mask(self.inputs, states[0])
        inputs = Inputs(self.inputs.named, self.inputs.positional, mask)
        if lens.kind == "pooled":
            return self._classified([lens.sample_logits(layer, inputs) for layer in states])
        sample, position = self._lens_index()
        out = {"lens.row": sample.int(), "lens.position": position.int()}
        if not len(sample):
            shape = (len(states), 0)
            empty = {"lens.prediction": torch.zeros(shape, dtype=torch.int32)}
            known = {"lens.nll": torch.zeros(shape), "lens.target": torch.zeros(0, dtype=torch.int32)}
            return out | empty | (known if lens.causal else {})
        ids = self.inputs.named.get("decoder_input_ids", self.inputs.named["input_ids"])
        target = ids[sample, position + 1].repeat(len(states)) if lens.causal else None
        predictions, losses, start = [], [], 0
        for logits in lens.token_logits(states.flatten(0, 1), inputs):
            predictions.append(logits.argmax(-1))
            if target is not None:
                losses.append(
                    torch.nn.functional.cross_entropy(logits, target[start : start + len(logits)], reduction="none")
                )
            start += len(logits)
        out["lens.prediction"] = torch.cat(predictions).view(len(states), -1).int()
        if target is not None:
            out["lens.target"] = target.view(len(states), -1)[0].int()
            out["lens.nll"] = torch.cat(losses).view(len(states), -1)
        return out

    def _classified(self, logits: list[Tensor]) -> dict[str, Tensor]:
        out = {"lens.prediction": torch.stack([rows.argmax(-1) for rows in logits]).int()}
        if "target" in self.rows:
            target = torch.tensor(self.rows["target"].to_numpy(), device=logits[0].device)
            losses = [torch.nn.functional.cross_entropy(rows, target, reduction="none") for rows in logits]
            out |= {"lens.nll": torch.stack(losses), "lens.target": target.int()}
        return out

    def _first_broken(self) -> Tensor:
        """Return for each sample the first layer with a NaN or an infinity, or −1."""
        depth, sites = self.model.stack.depth, self.model.sites
        seen = [self.means, *(v for key, v in self.pooled.items() if key.partition(".")[0] in sites)]
        layers = [_layers_fine(vectors, depth) for vectors in seen if vectors]
        fine = torch.stack(layers).all(0)
        for layer, means in self.inside:
            fine[layer] &= torch.isfinite(means).all(-1)
        return torch.where(fine.all(0), -1, (~fine).int().argmax(0)).int()


def _layers_fine(vectors: list[Tensor], depth: int) -> Tensor:
    """Return [L+1, B], whether a sample's vector is finite; `vectors` may hold both sites of a layer in turn."""
    fine = torch.isfinite(torch.stack(vectors)).all(-1)
    return fine.view(depth + 1, -1, fine.shape[-1]).all(1)
