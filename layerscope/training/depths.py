"""Every depth of a trained model, and separate models of some depths, side by side: score, time, size."""

from __future__ import annotations

import copy
import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

import torch

from layerscope.early_exit.truncation.agreement import expected_at
from layerscope.early_exit.truncation.costs import Costs, costs_by_depth
from layerscope.early_exit.truncation.depth import find_depth
from layerscope.early_exit.truncation.source import open_source
from layerscope.errors import LayerscopeError
from layerscope.inputs.corpus import count
from layerscope.inspecting import made_up_samples
from layerscope.models import LayeredModel, LoadOptions, Override
from layerscope.progress import Teller
from layerscope.runs import open_run
from layerscope.runs.files import aside
from layerscope.training.place import DEPTHS, Place

SCORES = ("perplexity", "layer_accuracy")
"""The score of a training: perplexity where it was measured, else accuracy."""


@dataclass(frozen=True)
class Line:
    """One layer of a model: its score, and what a model that ends there costs."""

    name: str
    objective: str
    depth: int
    layer: int
    metric: str
    value: float
    stderr: float
    ms_per_sample: float | None
    megabytes: float | None


@dataclass(frozen=True)
class Trained:
    """What a training left: its folder, its layers and those of its baselines; `measured` says on what."""

    path: Path
    history: Path
    lines: tuple[Line, ...]
    measured: str

    def as_json(self) -> dict[str, Any]:
        """Return the same for a machine; what is not a number is null."""
        rows = [
            {key: None if isinstance(value, float) and value != value else value for key, value in asdict(line).items()}
            for line in self.lines
        ]
        return {
            "path": str(self.path),
            "history": str(self.history),
            "depths": rows,
            "measured": self.measured,
        }


def check_depths(depths: Sequence[Any], deepest: int) -> None:
    """Raise where a baseline would not be shallower than the model."""
    if depths and deepest == 1:
        raise LayerscopeError("--baseline-depths: this model has one layer, and no model is shallower")
    for depth in depths:
        if isinstance(depth, bool) or not isinstance(depth, int) or not 1 <= depth < deepest:
            raise LayerscopeError(
                f"--baseline-depths {depth}: this model has {deepest} layers, give some of 1..{deepest - 1}"
            )


def shallower(model: LayeredModel, depths: Sequence[int], seed: int, *, from_config: bool) -> dict[int, Any]:
    """Return separate models of these depths: the first blocks of a checkpoint, or random weights of such a config.

    Raises `LayerscopeError` where no config of the model's class says another depth.
    """
    if not depths:
        return {}
    _, samples = made_up_samples(model.loaded)
    depth = find_depth(model.module, model.stack, expected_at(model, max(1, model.stack.depth // 2), samples))
    found = {}
    for layers in depths:
        torch.manual_seed(seed)
        if from_config:
            found[layers] = depth.kind(depth.config(model.module.config, layers))
        else:
            found[layers] = copy.deepcopy(depth.build(model.module, layers))
    return found


def compare(place: Place, baselines: Mapping[int, Place], part: str | None, teller: Teller) -> Trained:
    """Write and return `depths.csv` in the history: each layer of the model, and each baseline at its own depth."""
    name = str(place.about["model"]["name"])
    own = _scored(place, name)
    costs = _costs(place.path, [line.layer for line in own], part, teller)
    found = [*own]
    for depth, other in sorted(baselines.items()):
        found += [line for line in _scored(other, f"{name}, {count(depth, 'layer')}") if line.layer == depth]
    lines = tuple(_priced(line, costs) for line in found)
    aside(place.history / DEPTHS, lambda part: part.write_text(_table(lines), encoding="utf-8"))
    return Trained(place.path, place.history, lines, "" if costs is None else costs.measured)


def _scored(place: Place, name: str) -> list[Line]:
    table = open_run(place.history).table()
    table = table[table["step"] == table["step"].max()]
    metric = next(metric for metric in SCORES if (table["metric"] == metric).any())
    rows = table[table["metric"] == metric].sort_values("layer")
    depth, objective = int(rows["layer"].max()), place.about["settings"]["objective"]
    return [
        Line(name, objective, depth, int(row.layer), metric, float(row.value), float(row.stderr), None, None)
        for row in rows.itertuples()
    ]


def _costs(folder: Path, layers: Sequence[int], part: str | None, teller: Teller) -> Costs | None:
    try:
        source = open_source(str(folder), None, Override(part), LoadOptions())
        return costs_by_depth(source, layers)
    except LayerscopeError as error:
        teller.say(f"no times by depth: {error}")
        return None


def _priced(line: Line, costs: Costs | None) -> Line:
    if costs is None:
        return line
    cost = costs.layers[line.layer]
    return replace(line, ms_per_sample=cost.milliseconds, megabytes=cost.megabytes)


def _table(lines: Sequence[Line]) -> str:
    text = io.StringIO()
    writer = csv.DictWriter(text, [field.name for field in fields(Line)], lineterminator="\n")
    writer.writeheader()
    writer.writerows(asdict(line) for line in lines)
    return text.getvalue()
