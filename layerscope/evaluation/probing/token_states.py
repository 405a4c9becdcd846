"""States of the tokens themselves, at the layers asked for, kept in a run folder: the same pass, other tensors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch
from torch import Tensor

from layerscope.core.progress import Reporter
from layerscope.models import LayeredModel
from layerscope.models.encode import AudioEncoder
from layerscope.models.forward import Inputs
from layerscope.profiling.passing import open_or_start, report_broken, run_pass
from layerscope.profiling.plan import Job
from layerscope.runs import Run
from layerscope.runs.lock import locked
from layerscope.runs.states import Column

Chosen = Sequence[Sequence[int]]
"""Token positions of each sample of a corpus."""


class TokenMeasure:
    """Keeps tokens of one batch: `SITE.LAYER` [1, M, D] in the model's own dtype, `length` and `broken` [B]."""

    def __init__(
        self, columns: frozenset[Column], chosen: Chosen | None, job: Job, inputs: Inputs, rows: pd.DataFrame
    ) -> None:
        self.columns, self.job, self.inputs = columns, job, inputs
        self.chosen = None if chosen is None else [chosen[sample] for sample in rows["sample"]]
        self.kept: dict[str, Tensor] = {}
        self.index: tuple[Tensor, Tensor] | None = None
        self.broken = torch.full((len(rows),), -1, dtype=torch.int32)

    def visit(self, layer: int, site: str, tokens: Tensor) -> None:
        """Take the tokens of one layer, where it is asked for."""
        if Column(site, layer) not in self.columns:
            return
        if self.index is None:
            self.index = self._positions(tokens)
        kept = tokens[self.index]
        self.kept[f"{site}.{layer}"] = kept[None]
        wrong = torch.unique(self.index[0][~torch.isfinite(kept).all(-1)].cpu())
        self.broken[wrong[self.broken[wrong] < 0]] = layer

    def tensors(self) -> dict[str, Tensor]:
        """Return everything kept, on the CPU."""
        assert self.index is not None
        length = torch.bincount(self.index[0].cpu(), minlength=len(self.broken))
        return {"broken": self.broken, "length": length} | {key: states.cpu() for key, states in self.kept.items()}

    def _positions(self, tokens: Tensor) -> tuple[Tensor, Tensor]:
        if self.chosen is None:
            mask = self.job.model.mask(self.inputs, tokens)
            real = torch.ones(tokens.shape[:2], device=tokens.device) if mask is None else mask
            sample, position = real.nonzero(as_tuple=True)
            return sample, position
        lengths = torch.tensor([len(positions) for positions in self.chosen])
        flat = [position for positions in self.chosen for position in positions]
        sample = torch.arange(len(lengths)).repeat_interleave(lengths)
        return sample.to(tokens.device), torch.tensor(flat, dtype=torch.int64, device=tokens.device)


@dataclass(frozen=True)
class TokenStates:
    """Token states in a run folder; `rows` are the plan's rows of finite samples, without exact copies."""

    run: Run
    rows: npt.NDArray[np.int64]

    @classmethod
    def of(
        cls,
        job: Job,
        path: Path,
        manifest: dict[str, Any],
        columns: Sequence[Column],
        chosen: Chosen | None,
        reporter: Reporter,
    ) -> TokenStates:
        """Run the pass, or what is missing of it; `chosen` None keeps all tokens. A full disk is refused first."""
        measure = partial(TokenMeasure, frozenset(columns), chosen)
        with locked(path):
            folder = open_or_start(path, manifest, job, reporter, partial(_bytes, columns, chosen))
            run_pass(job, folder, reporter, measure)
        run = Run(path)
        report_broken(run, reporter)
        return cls(run, np.flatnonzero(np.concatenate([_fine(run, shard) for shard in folder.shards])))

    @property
    def samples(self) -> npt.NDArray[np.int64]:
        """Numbers of the samples in the corpus, in the order of the states."""
        return np.asarray(self.run.folder.plan["sample"].to_numpy()[self.rows], dtype=np.int64)

    @property
    def labels(self) -> npt.NDArray[Any]:
        """Labels of the samples, in the order of the states."""
        return np.asarray(self.run.folder.plan["label"].to_numpy()[self.rows])

    def layer(self, column: Column) -> tuple[Tensor, npt.NDArray[np.int64]]:
        """Return the tokens [M, D] of one layer, one sample after another, and how many each sample has [N]."""
        tokens, lengths = [], []
        for shard in self.run.folder.shards:
            fine = torch.from_numpy(_fine(self.run, shard))
            with self.run.folder.shard(shard) as file:
                states, length = file.get_tensor(f"{column.site}.{column.layer}")[0], file.get_tensor("length")
            tokens.append(states if bool(fine.all()) else states[fine.repeat_interleave(length)])
            lengths.append(length[fine])
        return torch.cat(tokens), torch.cat(lengths).numpy()


def _fine(run: Run, shard: int) -> npt.NDArray[np.bool_]:
    """Return which rows of a shard are finite and no copies."""
    with run.folder.shard(shard) as file:
        finite = file.get_tensor("broken").numpy() < 0
    return np.asarray(~run.folder.copies[run.folder.rows(shard).index] & finite)


def _tokens(model: LayeredModel, lengths: npt.NDArray[np.int64]) -> int:
    """Return the number of tokens in samples of these lengths: lengths are tokens of texts, samples of raw sounds."""
    if model.encoder.modality == "text":
        return int(lengths.sum())
    if isinstance(model.encoder, AudioEncoder):
        frames: Any = getattr(model.module, "_get_feat_extract_output_lengths", None)
        if frames is not None and getattr(model.module, "main_input_name", "") == "input_values":
            return int(frames(torch.tensor(lengths)).sum())
        if model.max_length is not None:
            window = model.max_length * model.encoder.extractor.sampling_rate
            return int(np.ceil(model.tokens * np.minimum(lengths / window, 1)).sum())
    return len(lengths) * model.tokens


def _bytes(columns: Sequence[Column], chosen: Chosen | None, plan: pd.DataFrame, job: Job) -> int:
    model = job.model
    tokens = _tokens(model, plan["length"].to_numpy()) if chosen is None else sum(map(len, chosen))
    dtype = next((p.dtype for p in model.module.parameters()), torch.float32)
    return tokens * len(columns) * model.stack.width * dtype.itemsize
