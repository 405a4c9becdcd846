"""What truncated models cost and score beside the full one."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from layerscope.truncation.checkpoint import auto_class
from layerscope.truncation.depth import Depth
from layerscope.truncation.onnx_file import export, onnx_run, weights_in
from layerscope.truncation.source import Source
from layerscope.truncation.speed import Workload, megabytes, parameters, workload


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
        form = ",.1f" if self.scored == "perplexity" else ".1%"
        return " ± ".join(format(number, form) for number in (value, error) if number is not None) or "–"


def measure(source: Source, made: Sequence[Made], format: str, site: str) -> list[Truncated]:  # noqa: A002
    """Return the figures of every depth that was written; their speeds are measured in turns with the full model's."""
    module, deepest, onnx = source.module, source.model.stack.depth, format == "onnx"
    work, scores = workload(source), source.scores(format)
    full = made[0].depth.build(module, deepest)
    cuts = [entry.depth.build(module, entry.layer) for entry in made]
    for model in (full, *cuts):  # the counter of operations hooks into gradients; the weights are shared, this is not
        model.requires_grad_(False)
    if onnx:
        size, (whole, *times) = _onnx_files(source, made, site, work)
    else:
        size, (whole, *times) = megabytes(full, source.dtype), work.milliseconds([full, *cuts])
    unknown = (None, None)
    known = scores.by_layer if scores is not None else {}
    beside: dict[str, Any] = {
        "model": source.name, "depth": deepest, "format": format,
        "site": site if source.model.stack.norm is not None else "raw",
        "dtype": "float32" if onnx else str(source.dtype).removeprefix("torch."),
        "full_parameters": parameters(full), "full_megabytes": size, "full_milliseconds": whole,
        "full_score": known.get(deepest, unknown)[0],
        "measured": work.measured("float32 by onnxruntime" if onnx else None),
    }  # fmt: skip
    if scores is not None:
        beside |= {"scored": scores.name, "data": scores.data, "samples": scores.samples}
    operations = work.operations(full)
    figures = []
    for entry, model, took in zip(made, cuts, times, strict=True):
        score, stderr = known.get(entry.layer, unknown)
        figures.append(
            Truncated(
                layer=entry.layer, path=str(entry.folder), auto=auto_class(model), difference=entry.difference,
                parameters=parameters(model), megabytes=_on_disk(entry.folder), milliseconds=took,
                speedup=whole / took, ideal=operations / max(1, work.operations(model)),
                score=score, stderr=stderr, **beside,
            )
        )  # fmt: skip
    return figures


def _onnx_files(source: Source, made: Sequence[Made], site: str, work: Workload) -> tuple[float, list[float]]:
    """Return the megabytes of the full model exported as the others are, and the times of all by onnxruntime."""
    with tempfile.TemporaryDirectory(dir=made[0].folder, prefix=".full-") as folder:
        full = Path(folder)
        export(source, made[0].depth, source.model.stack.depth, site, full)
        runs = [onnx_run(file, work.inputs) for file in (full, *(entry.folder for entry in made))]
        return _on_disk(full), work.milliseconds_of(runs)


def _on_disk(folder: Path) -> float:
    """Return the megabytes of the weights in a folder."""
    return sum(path.stat().st_size for path in (*weights_in(folder), *folder.rglob("*.safetensors"))) / 1e6
