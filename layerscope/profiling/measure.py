"""What one batch yields: pooled states, and what needs its tokens, taken while each layer is at hand."""

from dataclasses import replace
from typing import Any, Literal

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from layerscope.metrics.factors import FromTokens, Tokens
from layerscope.models.forward import Inputs
from layerscope.models.pooling import Projection, pool
from layerscope.profiling.plan import Job
from layerscope.runs.folder import packed
from layerscope.runs.registry import measured
from layerscope.runs.states import OWN, PROJECTED

HELD = 1 << 24
"""Numbers of the states that wait for their projection, unless one layer alone has more."""


class BatchMeasure:
    """Visits every layer of one batch; `tensors` holds the result, keyed as in a shard.

    Keys: `raw.mean` and so on [L+1, B, D]; `projected.own` [L+1, B, P] where there is a shared
        space;
    `prompt_entropy.alpha=1.raw` and other per-sample values [L+1, B], where of
    a sub-layer's site there is a row for each layer that has it;
    `broken` [B], the first layer of a sample that is not finite, or −1.
    """

    def __init__(self, job: Job, inputs: Inputs, rows: pd.DataFrame) -> None:
        model, vectors = job.model, job.vectors
        self.job, self.model, self.options, self.inputs, self.rows = (
            job,
            model,
            job.options,
            inputs,
            rows,
        )
        self.original = bool((rows["view"] == 0).all())
        self.poolings = (
            (*vectors.poolings, *vectors.pairs) if self.original else vectors.poolings
        )
        self.positions = (
            torch.tensor(rows["position"].to_numpy(), device=model.device)
            if "position" in rows
            else None
        )
        self.pooled: dict[str, list[Tensor]] = {}
        self.token_metrics = [
            (m, how) for m, how in measured(FromTokens) if job.options.measures(m)
        ]
        self.parts: dict[tuple[str, FromTokens, str, int | None], list[Any]] = {}
        self.means: list[Tensor] = []
        self.inside: list[tuple[int, Tensor]] = []
        self.unprojected: list[Tensor] = []
        self.lens_states: list[Tensor] = []
        self.mask: Tensor | Literal["unknown"] | None = "unknown"

    def visit(self, layer: int, site: str, tokens: Tensor) -> None:
        """Take what is asked for from the states of one layer."""
        final = site == "normed" and layer == self.model.stack.depth
        inside = site not in self.model.sites
        if isinstance(
            self.mask, str
        ):  # once a batch; None where all states are real spares every layer the masking
            real = self.model.mask(self.inputs, tokens)
            self.mask = None if real is None or bool(real.all()) else real
        mask = used = self.mask
        if tokens.ndim == 3:
            factors = Tokens(
                tokens, mask, self.options.exclude_sinks, self.options.rows
            )
            used = factors.used
            if self.original and (site == "raw" or final or inside):
                self._token_metrics(site, factors)
        for name in self.job.vectors.poolings if inside else self.poolings:
            vectors = pool(
                tokens, used if name == "mean" else mask, name, self.positions
            )
            self.pooled.setdefault(f"{site}.{name}", []).append(vectors)
        if inside:
            self.inside.append((layer, pool(tokens, mask, "mean")))
        elif "mean" not in self.poolings or self.options.exclude_sinks:
            # sees every token, so that no NaN goes unseen
            self.means.append(pool(tokens, mask, "mean"))
        if site == "raw" and self.model.projection is not None:
            self._project(self.model.projection, layer, tokens, mask)
        if self.original and self.model.lens is not None and self.options.wants("lens"):
            self._keep(site, tokens, self.model.lens.kind)

    def _keep(self, site: str, tokens: Tensor, kind: str) -> None:
        """Keep what the head is to read of a layer."""
        if site == "raw":  # a block may change its input in place
            self.lens_states.append(
                tokens.clone() if kind == "pooled" else tokens[self._index("lens")]
            )

    def tensors(self) -> dict[str, Tensor]:
        """Return everything measured, on the CPU."""
        out: dict[str, Tensor] = {}
        for key, layers in self.pooled.items():
            out |= packed(
                key, torch.stack(layers), getattr(torch, self.options.store_dtype)
            )
        # on a GPU eigenvalues are the cost: they are taken of a seeded share of the samples
        chosen = (
            np.flatnonzero(self.rows["entropy"].to_numpy())
            if "entropy" in self.rows
            else slice(None)
        )
        for (name, how, site, prefix), layers in self.parts.items():
            for variant, values in how.finish(
                layers, self.options.alpha, chosen
            ).items():
                variants = ",".join(
                    filter(None, (variant, f"prefix={prefix}" if prefix else ""))
                )
                out[".".join(filter(None, (name, variants, site)))] = values
        if self.lens_states:
            out |= self._lens(torch.stack(self.lens_states))
        out["broken"] = self._first_broken()
        return {name: values.cpu() for name, values in out.items()}

    def _project(
        self, projection: Projection, layer: int, tokens: Tensor, mask: Tensor | None
    ) -> None:
        """Hold some layers back, as many as take little memory: each run through the model's end has its price."""
        self.unprojected.append(tokens.clone())  # a block may change its input in place
        if (
            layer < self.model.stack.depth
            and (len(self.unprojected) + 1) * tokens.numel() <= HELD
        ):
            return
        vectors = projection.layers(
            torch.stack(self.unprojected), replace(self.inputs, mask=mask)
        )
        first = layer + 1 - len(self.unprojected)
        self.inside += [(first + i, projected) for i, projected in enumerate(vectors)]
        self.pooled.setdefault(f"{PROJECTED}.{OWN}", []).extend(vectors)
        self.unprojected.clear()

    def _token_metrics(self, site: str, tokens: Tokens) -> None:
        for metric, how in self.token_metrics:
            for prefix in (None, *((how.prefixes and self.options.prefixes) or ())):
                values = how.compute(tokens if prefix is None else tokens.first(prefix))
                self.parts.setdefault((metric.name, how, site, prefix), []).append(
                    values
                )

    def _index(self, name: str) -> tuple[Tensor, Tensor]:
        """Return sample and position of every token that the plan names so."""
        chosen = [
            (i, p) for i, positions in enumerate(self.rows[name]) for p in positions
        ]
        index = torch.tensor(chosen, dtype=torch.int64, device=self.model.device).view(
            -1, 2
        )
        return index[:, 0], index[:, 1]

    def _after(self, sample: Tensor, position: Tensor) -> Tensor:
        """Return the token that follows each position."""
        ids = self.inputs.named.get("decoder_input_ids", self.inputs.named["input_ids"])
        return ids[sample, position + 1]

    def _lens(self, states: Tensor) -> dict[str, Tensor]:
        """Read layers 0..L through the head: predictions, and for known targets their negative log likelihood."""
        lens = self.model.lens
        assert lens is not None
        inputs = replace(
            self.inputs,
            mask=self.model.mask(self.inputs, states[0]) if states.ndim == 4 else None,
        )
        target, out = None, {}
        if lens.kind == "pooled":
            logits = iter([lens.sample_logits(layer, inputs) for layer in states])
            if "target" in self.rows:
                target = torch.tensor(
                    self.rows["target"].to_numpy(), device=states.device
                )
        else:
            sample, position = self._index("lens")
            out = {"lens.row": sample.int(), "lens.position": position.int()}
            logits = (
                lens.token_logits(states.flatten(0, 1), inputs)
                if len(sample)
                else iter(())
            )
            if self.model.causal:
                target = self._after(sample, position)
        predictions = [states.new_empty(0, dtype=torch.int32)]
        losses, start = [states.new_empty(0, dtype=torch.float32)], 0
        for rows in logits:
            predictions.append(rows.argmax(-1).int())
            if target is not None:
                answers = target.repeat(len(states))[start : start + len(rows)]
                losses.append(
                    torch.nn.functional.cross_entropy(rows, answers, reduction="none")
                )
            start += len(rows)
        shape = len(states), start // len(states)
        out["lens.prediction"] = torch.cat(predictions).view(shape)
        if target is not None:
            out |= {
                "lens.target": target.int(),
                "lens.nll": torch.cat(losses).view(shape),
            }
        return out

    def _first_broken(self) -> Tensor:
        """Return for each sample the first layer with a NaN or an infinity, or −1."""
        sites, numbers = self.model.sites, torch.tensor(self.model.layers)
        seen = [
            self.means,
            *(v for key, v in self.pooled.items() if key.partition(".")[0] in sites),
        ]
        # both sites of a layer may stand in turn
        layers = [
            torch.isfinite(torch.stack(v))
            .all(-1)
            .view(len(numbers), -1, v[0].shape[0])
            .all(1)
            for v in seen
            if v
        ]
        fine = torch.stack(layers).all(0)
        for layer, means in self.inside:
            fine[layer] &= torch.isfinite(means).all(-1)
        return torch.where(
            fine.all(0), -1, numbers.to(fine.device)[(~fine).int().argmax(0)]
        ).int()
