"""From the run folder to the table: every metric by layer, read in row blocks, without the model."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from layerscope import metrics
from layerscope.evaluation.probes import ProbeScore, knn_probe, linear_probe
from layerscope.metrics.arrays import unit_rows
from layerscope.metrics.spectrum import row_factor
from layerscope.profiling.options import Options
from layerscope.progress import Teller
from layerscope.runs.run import COLUMNS, Run, is_scalar, parse_key
from layerscope.runs.states import Column, StoredStates

Row = dict[str, Any]

BLOCK = 1000
"""InfoNCE and DiME compare this many samples with each other, or 256 where there are fewer."""
SMALL_BLOCK = 256
PROBE_SAMPLES = 5000
"""A probe is fitted on at most this many seeded samples."""


def write_tables(run: Run, options: Options, teller: Teller) -> None:
    """Compute every metric asked for that is not yet in the run folder, and keep each as soon as it is known."""
    job = _Tables(run, options)
    steps: dict[str, Callable[[], Iterator[Row]]] = {
        "tokens": job.tokens,
        "pooled": job.dataset,
        "views": job.views,
        "pairs": job.pairs,
        "lens": job.lens,
        "labels": job.probes,
    }
    todo = [kind for kind in steps if options.wants(kind) and not run.folder.has_table(kind)]
    with teller.bar("metrics", len(todo)) as advance:
        for kind in todo:
            rows = [row for row in steps[kind]() if row["metric"] in options.metrics or row["metric"] == "sinks"]
            frame = pd.DataFrame(rows, columns=list(COLUMNS)).astype(COLUMNS)
            frame["part"] = run.info["model"]["part"]
            run.folder.write_table(kind, frame)
            advance(1)


class _Tables:
    def __init__(self, run: Run, options: Options) -> None:
        self.run, self.options = run, options
        plan = run.folder.plan
        self.sample = plan["sample"].to_numpy()
        self.view = plan["view"].to_numpy()
        self.fine = self._fine_rows()
        self.poolings: list[str] = run.info["pooling"]
        self.rows = np.flatnonzero((self.view == 0) & self.fine)
        self.skipped = int(run.info["data"]["samples"]) - len(self.rows)  # broken ones, and those without a token

    def _fine_rows(self) -> np.ndarray[Any, Any]:
        folder = self.run.folder
        fine = np.ones(len(folder.plan), dtype=bool)
        for shard in folder.shards:
            with folder.shard(shard) as file:
                fine[folder.rows(shard).index] = file.get_tensor("broken").numpy() < 0
        return fine

    def tokens(self) -> Iterator[Row]:
        """Metrics of each sample's tokens: their mean and its standard error over the samples."""
        parts: dict[str, list[Tensor]] = {}
        for shard, fine in self._original_shards():
            with self.run.folder.shard(shard) as file:
                for key in (k for k in file.keys() if is_scalar(k)):  # noqa: SIM118
                    parts.setdefault(key, []).append(file.get_tensor(key)[:, fine])
        total = len(self.rows) + self.skipped
        for key, shards in sorted(parts.items()):
            name, variant, site = parse_key(key)
            values = torch.cat(shards, 1).double()
            for i, layer in enumerate(values):
                depth = i if site == "raw" else self.run.depth
                yield _row(name, Column(site, depth), *_mean(layer), total, variant=variant)

    def dataset(self) -> Iterator[Row]:
        """Spectra of the pooled states of all samples."""
        for pooling, column, states in self._columns():
            if "dataset_entropy" in self.options.metrics:
                factor = row_factor(unit_rows(block[:, 0].double()) for block in states.blocks())
                for alpha in self.options.alpha:
                    value = metrics.matrix_entropy(factor, alpha, rows="raw")
                    yield self._pooled_row("dataset_entropy", column, pooling, value, f"alpha={alpha:g}")
            if "effective_rank" in self.options.metrics:
                factor = row_factor(block[:, 0].double() for block in states.blocks())
                yield self._pooled_row("effective_rank", column, pooling, metrics.effective_rank(factor), None)

    def views(self) -> Iterator[Row]:
        """Metrics that compare a sample with its augmentations, in seeded blocks of one size."""
        groups = self._view_rows()
        if groups is None or len(groups) < 2:
            return
        n, total = len(groups), len(np.unique(self.sample[self.view > 0]))
        size = BLOCK if n >= BLOCK else min(n, SMALL_BLOCK)
        order = np.random.default_rng([self.options.seed, 2]).permutation(n)
        blocks = [order[i : i + size] for i in range(0, n - size + 1, size)]
        for pooling, column, _ in self._columns():
            states = self.run.states(pooling, (column,), groups.T.reshape(-1))[:]
            views = states[:, 0].double().view(groups.shape[1], n, -1).transpose(0, 1)
            for name, function in (
                ("infonce", metrics.infonce),
                ("infonce_bound", metrics.infonce_bound),
                ("dime", metrics.dime),
            ):
                if name not in self.options.metrics:
                    continue
                alphas = self.options.alpha if name == "dime" else (None,)
                for alpha in alphas:
                    extra: dict[str, Any] = {} if alpha is None else {"alpha": alpha, "seed": self.options.seed}
                    values = torch.tensor([function(views[b, 0], views[b, 1], **extra) for b in blocks])
                    variant = f"N={size}" + ("" if alpha is None else f",alpha={alpha:g}")
                    mean, error, _ = _mean(values)
                    used = size * len(blocks)
                    yield _row(name, column, mean, error, used, total, variant=variant, pooling=pooling)
            if "lidar" in self.options.metrics:
                variant = f"q={views.shape[1]}"
                value = float(metrics.lidar(views))
                yield _row("lidar", column, value, math.nan, n, total, variant=variant, pooling=pooling)

    def pairs(self) -> Iterator[Row]:
        """Similarity of every two layers, and each sample's cosine to the last layer."""
        columns = self.run.columns
        poolings = [*self.run.info["pair_pooling"], *self.poolings]
        for pooling in poolings:
            states = self.run.states(pooling, columns, self.rows)
            errors = np.full(len(columns), math.nan)
            if "cosine_similarity" in self.options.metrics:
                to_last = metrics.cosine_to(states)
                errors = np.array([_mean(layer)[1] for layer in to_last.T])
                if pooling == poolings[0]:
                    self._keep_samples(to_last, columns)
                matrix = metrics.similarity_matrix(states, "cosine_similarity")
                yield from self._pair_rows("cosine_similarity", "centered", matrix, pooling, errors)
            if "cka" in self.options.metrics and len(states) >= 4:
                matrix = metrics.similarity_matrix(states, "cka")
                yield from self._pair_rows("cka", "linear,debiased", matrix, pooling, np.full(len(columns), math.nan))

    def _pair_rows(self, name: str, variant: str, matrix: Tensor, pooling: str, errors: Any) -> Iterator[Row]:
        columns, total = self.run.columns, len(self.rows) + self.skipped
        for i, a in enumerate(columns):
            for j, b in enumerate(columns):
                error = errors[i] if j == len(columns) - 1 else math.nan
                row = _row(
                    name,
                    a,
                    float(matrix[i, j]),
                    error,
                    len(self.rows),
                    total,
                    variant=variant,
                    pooling=pooling,
                )
                yield row | {"layer_b": b.layer, "site_b": b.site}

    def _keep_samples(self, values: Tensor, columns: tuple[Column, ...]) -> None:
        frame = pd.DataFrame(
            {
                "sample": np.repeat(self.sample[self.rows], len(columns)),
                "metric": "cosine_to_last",
                "variant": "centered",
                "layer": np.tile([c.layer for c in columns], len(self.rows)),
                "site": np.tile([c.site for c in columns], len(self.rows)),
                "value": values.reshape(-1).numpy(),
            }
        )
        self.run.folder.write_table("samples.cosine_to_last", frame)

    def lens(self) -> Iterator[Row]:
        """What each layer predicts through the model's head."""
        prediction, target, nll = self._lens_columns()
        if prediction is None:
            return
        n, depth = prediction.shape[1], self.run.depth
        sites = [Column(self.run.final, layer) for layer in range(depth + 1)]
        if target is not None and nll is not None:
            hits = (prediction == target).double()
            for column, layer_hits, layer_nll in zip(sites, hits, nll.double(), strict=True):
                yield _row("layer_accuracy", column, *_mean(layer_hits), n)
                if self.run.info["model"]["language_model"]:
                    mean, error, count = _mean(layer_nll)
                    yield _row("perplexity", column, math.exp(mean), math.exp(mean) * error, count, n)
        first = metrics.saturation_layer(prediction[1:].T)
        yield _row("saturation_layer", Column(self.run.final, depth), *_mean(first.double()), n)
        for column in sites[1:]:
            yield _row("saturated", column, *_mean((first <= column.layer).double()), n)

    def _lens_columns(self) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
        """Predictions [L+1, n], targets [n] and losses [L+1, n] of the finite samples."""
        found: dict[str, list[Tensor]] = {}
        for shard, fine in self._original_shards():
            with self.run.folder.shard(shard) as file:
                keys = [k for k in file.keys() if k.startswith("lens.")]  # noqa: SIM118
                kept = torch.from_numpy(fine)
                if "lens.row" in keys:
                    kept = kept[file.get_tensor("lens.row").long()]
                for key in keys:
                    values = file.get_tensor(key)
                    found.setdefault(key, []).append(values[kept] if values.ndim == 1 else values[:, kept])
        joined = {k: torch.cat(v, 0 if v[0].ndim == 1 else 1) for k, v in found.items()}
        prediction = joined.get("lens.prediction")
        if prediction is None or prediction.shape[1] == 0:
            return None, None, None
        return prediction, joined.get("lens.target"), joined.get("lens.nll")

    def probes(self) -> Iterator[Row]:
        """Cross-validated accuracy of the labels, at the site a truncated model would yield."""
        plan = self.run.folder.plan
        if "label" not in plan:
            return
        rows = self.rows[np.argsort(self.sample[self.rows])]
        if len(rows) > PROBE_SAMPLES:
            rows = np.sort(np.random.default_rng([self.options.seed, 3]).choice(rows, PROBE_SAMPLES, replace=False))
        labels = plan["label"].to_numpy()[rows]
        if not can_be_probed(labels):
            return
        total = len(self.rows) + self.skipped
        for pooling in self.poolings:
            for layer in range(self.run.depth + 1):
                column = Column(self.run.final, layer)
                states = self.run.states(pooling, (column,), rows)[:][:, 0]
                for name, probe in (("linear_probe", linear_probe), ("knn_probe", _knn)):
                    if name in self.options.metrics:
                        score: ProbeScore = probe(states, labels, seed=self.options.seed)
                        yield _row(name, column, score.mean, score.stderr, score.n, total, pooling=pooling)

    def _original_shards(self) -> Iterator[tuple[int, np.ndarray[Any, Any]]]:
        """Shards of samples themselves, each with which of its rows are finite."""
        folder = self.run.folder
        for shard in folder.shards:
            rows = folder.rows(shard)
            if (rows["view"] == 0).all():
                yield shard, self.fine[rows.index]

    def _columns(self) -> Iterator[tuple[str, Column, StoredStates]]:
        for pooling in self.poolings:
            for column in self.run.columns:
                yield pooling, column, self.run.states(pooling, (column,), self.rows)

    def _pooled_row(self, name: str, column: Column, pooling: str, value: Any, variant: str | None) -> Row:
        total = len(self.rows) + self.skipped
        return _row(name, column, float(value), math.nan, len(self.rows), total, variant=variant, pooling=pooling)

    def _view_rows(self) -> np.ndarray[Any, Any] | None:
        """Rows of the plan [n, 1 + views]: a sample and its views, all of them finite."""
        viewed = pd.DataFrame({"row": np.arange(len(self.view)), "sample": self.sample, "view": self.view})[self.fine]
        if not (viewed["view"] > 0).any():
            return None
        wide = viewed.pivot(index="sample", columns="view", values="row").dropna()
        rows: np.ndarray[Any, Any] = wide.to_numpy(dtype=np.int64)
        return rows


def can_be_probed(labels: Any, folds: int = 5) -> bool:
    """Return whether at least two classes have a member for every fold."""
    counts = pd.Series(labels).value_counts()
    return bool((counts >= folds).sum() >= 2)


def _knn(states: Tensor, labels: Any, seed: int) -> ProbeScore:
    counts = pd.Series(labels).value_counts()
    usable = int(counts[counts >= 5].sum())
    return knn_probe(states, labels, k=min(10, usable - -(-usable // 5)), seed=seed)


def _mean(values: Tensor) -> tuple[float, float, int]:
    """Return mean, standard error and number of the values that are defined."""
    known = values[~torch.isnan(values)]
    n = len(known)
    error = float(known.std()) / math.sqrt(n) if n > 1 else math.nan
    return (float(known.mean()) if n else math.nan), error, n


def _row(
    name: str,
    column: Column,
    value: float,
    stderr: float,
    n: int,
    total: int,
    *,
    variant: str | None = None,
    pooling: str | None = None,
) -> Row:
    return {
        "metric": name,
        "variant": variant,
        "layer": column.layer,
        "site": column.site,
        "pooling": pooling,
        "value": float(value),
        "stderr": stderr,
        "n": n,
        "n_skipped": total - n,
    }
