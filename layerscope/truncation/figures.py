"""What truncated models cost and score beside the full one."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from layerscope.core.stopwatch import machine
from layerscope.models.capture import evaluating
from layerscope.truncation.checkpoint import auto_class
from layerscope.truncation.depth import Depth
from layerscope.truncation.onnx_file import export, onnx_run, weights_in
from layerscope.truncation.source import Source
from layerscope.truncation.speed import Workload, milliseconds, operations, parameters, plain_run, workload

SCORE = "linear_probe"


@dataclass(frozen=True)
class Made:
    """A depth that was written: its last layer, how the config holds it, its folder, and its largest difference."""

    layer: int
    depth: Depth
    folder: Path
    difference: float


@dataclass(frozen=True)
class Truncated:
    """A truncated model with its figures, those of the full model beside them.

    `dtype` is that of its weights, `difference` the largest between its output and the full model's layer.
    `megabytes` are those of its weights on disk (of the full model: what they would be), `milliseconds` a sample's
    share of a forward, `speedup` that of the full model over its own, `ideal` the same of their operations; `score` and
    `stderr` what `scored` says at that layer, None where there is none: the linear probe of a run, or accuracy or
    perplexity as `train` measured them, over `samples` of `data`.

    >>> from layerscope.truncation import truncate_layers
    >>> made, = truncate_layers("tiny-bert", [2], "shallow", progress=False)
    >>> made.layer, made.depth, made.parameters < made.full_parameters
    (2, 3, True)
    """

    model: str
    layer: int
    depth: int
    path: str
    format: str
    site: str
    auto: str
    dtype: str
    difference: float
    parameters: int
    megabytes: float
    milliseconds: float
    speedup: float
    ideal: float
    full_parameters: int
    full_megabytes: float
    full_milliseconds: float
    measured: str
    score: float | None = None
    stderr: float | None = None
    full_score: float | None = None
    scored: str = "linear probe"
    samples: int | None = None
    data: str | None = None

    def shown(self, full: bool = False) -> str:
        """Return the score of this model, or of the full one, as it is shown."""
        value, error = (self.full_score, None) if full else (self.score, self.stderr)
        if value is None:
            return "–"
        blind = self.scored == "perplexity"
        told = [f"{number:,.1f}" if blind else f"{number:.1%}" for number in (value, error) if number is not None]
        return " ± ".join(told)

    def at(self, path: Path) -> Truncated:
        """Return the same at its final place."""
        return replace(self, path=str(path))


def measure(source: Source, made: Sequence[Made], format: str, site: str) -> list[Truncated]:  # noqa: A002
    """Return the figures of every depth that was written; their speeds are measured in turns with the full model's."""
    module, deepest = source.module, source.model.stack.depth
    work = workload(source)
    full = made[0].depth.build(module, deepest)
    cuts = [entry.depth.build(module, entry.layer) for entry in made]
    for model in (full, *cuts):  # the counter of operations hooks into gradients; the weights are shared, this is not
        model.requires_grad_(False)
    onnx = format == "onnx"
    if onnx:
        with _whole_file(source, made[0], site) as file:
            weights = _on_disk(file, onnx)
            runs = [onnx_run(folder, work) for folder in (file, *(entry.folder for entry in made))]
            whole, *times = milliseconds(runs, work.samples, source.model.device)
    else:
        weights = megabytes(full, source.dtype)
        with evaluating(module):
            runs = [plain_run(called(model, source), work) for model in (full, *cuts)]
            whole, *times = milliseconds(runs, work.samples, source.model.device)
    most = operations(called(full, source), work)
    beside: dict[str, Any] = {
        "full_parameters": parameters(full),
        "full_megabytes": weights,
        "dtype": "float32" if onnx else str(source.dtype).removeprefix("torch."),
        "full_milliseconds": whole,
        "full_score": _score(source, deepest, format)[0],
        **_about_scores(source),
        "measured": told(source, work, onnx),
    }
    figures = []
    for entry, cut, took in zip(made, cuts, times, strict=True):
        score, stderr = _score(source, entry.layer, format)
        figures.append(
            Truncated(
                model=source.name, layer=entry.layer, depth=deepest, path=str(entry.folder), format=format,
                site=site if source.model.stack.norm is not None else "raw", auto=auto_class(cut),
                difference=entry.difference,
                parameters=parameters(cut), megabytes=_on_disk(entry.folder, onnx), milliseconds=took,
                speedup=whole / took, ideal=most / max(1, operations(called(cut, source), work)), score=score,
                stderr=stderr, **beside,
            )
        )  # fmt: skip
    return figures


def called(model: nn.Module, source: Source) -> nn.Module:
    """Return the model, or the one of its towers that reads these inputs."""
    return model.get_submodule(source.model.stack.entry)


def told(source: Source, work: Workload, onnx: bool = False) -> str:
    """Return in words what milliseconds are of, and what they were measured on."""
    engine = "float32 by onnxruntime" if onnx else str(source.dtype).removeprefix("torch.")
    return f"medians over forwards of {work.told}, in turns, in {engine}, on {machine(source.model.device)}"


@contextmanager
def _whole_file(source: Source, made: Made, site: str) -> Iterator[Path]:
    """Yield a folder with the full model exported as the truncated one is, for as long as it is measured."""
    with tempfile.TemporaryDirectory(dir=made.folder, prefix=".full-") as folder:
        export(source, made.depth, source.model.stack.depth, site, Path(folder))
        yield Path(folder)


def _on_disk(folder: Path, onnx: bool) -> float:
    files = weights_in(folder) if onnx else folder.rglob("*.safetensors")
    return sum(path.stat().st_size for path in files) / 1e6


def megabytes(module: nn.Module, dtype: torch.dtype) -> float:
    """Return how large a model's weights are in a checkpoint of this dtype."""
    return parameters(module) * torch.empty(0, dtype=dtype).element_size() / 1e6


def _about_scores(source: Source) -> dict[str, Any]:
    """Return what the scores are, and what they were measured on."""
    if source.run is not None:
        return {"data": source.run.info["data"]["name"], "samples": source.run.info["data"]["samples"]}
    if source.trained is None:
        return {}
    return {"scored": source.trained.name, "data": source.trained.data, "samples": source.trained.samples}


def _score(source: Source, layer: int, format: str) -> tuple[float | None, float | None]:  # noqa: A002
    """The score at a layer, with its standard error, at the site that a truncated model yields; None where unknown."""
    if source.run is None and source.trained is not None and format != "sentence-transformers":
        return source.trained.at(layer)
    if source.run is None:
        return None, None
    table = source.run.table()
    rows = table[
        (table["metric"] == SCORE)
        & (table["layer"] == layer)
        & (table["site"] == source.run.final)
        & (table["pooling"] == source.pooled_by)
    ]
    return (None, None) if rows.empty else (float(rows["value"].iloc[0]), float(rows["stderr"].iloc[0]))
