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

from layerscope.core.errors import LayerscopeError
from layerscope.core.files import aside
from layerscope.core.progress import Teller
from layerscope.inputs.corpus import count
from layerscope.models import LayeredModel, LoadOptions, Override
from layerscope.models.inspection import made_up_samples
from layerscope.runs import open_run
from layerscope.show.document import Document
from layerscope.show.notebook import Shown
from layerscope.training.document import document
from layerscope.training.folder import BASELINES, DEPTHS, Place
from layerscope.truncation.agreement import expected_at
from layerscope.truncation.costs import Costs, costs_by_depth
from layerscope.truncation.depth import find_depth
from layerscope.truncation.source import open_source

SCORES = ("perplexity", "layer_accuracy")
"""The score of a training: perplexity where it was measured, else accuracy."""
LOSS = 0.01
"""A shallower layer may lose so much to serve in the place of the last: a point of accuracy, 1 % of perplexity."""
FEWEST = 50
"""Below so many samples or tokens no depth is chosen."""


@dataclass(frozen=True)
class Line:
    """One layer of a model: its score over `n` samples or tokens, and what a model that ends there costs."""

    name: str
    objective: str
    depth: int
    layer: int
    metric: str
    value: float
    stderr: float
    ms_per_sample: float | None
    megabytes: float | None
    n: int

    def __str__(self) -> str:
        """Return the score as it is shown."""
        blind = self.metric == "perplexity"
        value, error = (number if blind else 100 * number for number in (self.value, self.stderr))
        return f"{value:,.1f}" + ("" if error != error else f" ±{error:,.1f}") + ("" if blind else " %")

    def loses(self, other: Line) -> float:
        """Return how much worse this layer is than another: in accuracy (0 … 1), or as a share of its perplexity."""
        return self.value / other.value - 1 if self.metric == "perplexity" else other.value - self.value


@dataclass(frozen=True)
class Trained(Shown):
    """What a training left: its folder, its layers and those of its baselines; `measured` says on what.

    `classes` is how many there are to guess from, None of a language model.
    """

    path: Path
    history: Path
    lines: tuple[Line, ...]
    measured: str
    classes: int | None = None

    @property
    def own(self) -> tuple[Line, ...]:
        """The layers of the model itself."""
        return tuple(line for line in self.lines if line.depth == self.lines[0].depth)

    @property
    def chosen(self) -> Line | None:
        """The shallowest layer that loses at most `LOSS` against the last, None where there is none or no telling."""
        last = self.own[-1]
        if self._doubt() is not None:
            return None
        return next((line for line in self.own[:-1] if line.loses(last) <= LOSS), None)

    @property
    def headline(self) -> str:
        """What this training bought, in a line."""
        own, last, found, doubt = self.own, self.own[-1], self.chosen, self._doubt()
        if doubt is not None:
            return f"No depth is chosen: {doubt}"
        name = "perplexity" if last.metric == "perplexity" else "accuracy"
        what = f"N = {last.n:,} {'tokens' if self.classes is None else ''}".strip()
        if found is None:
            within = "1 %" if last.metric == "perplexity" else "1 point"
            return f"All {last.layer} layers: {name} {last} ({what}); no shallower layer is within {within} of it"
        loss = found.loses(last)
        apart = (
            f"{100 * abs(loss):.1f} {'%' if name == 'perplexity' else 'points'} worse than"
            if loss > 0
            else "as good as"
        )
        faster = ""
        if found.ms_per_sample and last.ms_per_sample:
            faster = f", {last.ms_per_sample / found.ms_per_sample:.1f} × faster"
        return f"Layer {found.layer} of {len(own)}: {name} {found}{faster}, {apart} all {last.layer} ({last}; {what})"

    @property
    def rivals(self) -> tuple[str, ...]:
        """Separate models that are better than the layer of this one at their depth, a sentence each."""
        own = {line.layer: line for line in self.own}
        return tuple(
            f"A separate model of {count(line.layer, 'layer')} is better than layer {line.layer} of this one: "
            f"{line} against {own[line.layer]}, in {self.path / BASELINES / f'depth-{line.layer}'}"
            for line in self.lines[len(own) :]
            if own[line.layer].loses(line) > 0
        )

    def document(self) -> Document:
        """Return what the training bought: each layer at the last step, each depth with its score, time and size."""
        return document(self)

    def _doubt(self) -> str | None:
        """Return why the scores say nothing about depth, None where they do."""
        last = self.own[-1]
        if last.n < FEWEST:
            return f"{count(last.n, 'evaluation sample')} are too few, give at least {FEWEST}"
        if self.classes and last.value - 2 * last.stderr <= 1 / self.classes:
            return (
                f"the last layer ({last}, N = {last.n:,}) is not above chance for {self.classes} classes, train longer"
            )
        return None

    def as_dict(self) -> dict[str, Any]:
        """Return the same as JSON can hold it; what is not a number is null."""
        rows = [
            {key: None if isinstance(value, float) and value != value else value for key, value in asdict(line).items()}
            for line in self.lines
        ]
        return {
            "path": str(self.path),
            "history": str(self.history),
            "depths": rows,
            "measured": self.measured,
            "headline": self.headline,
            "layer": None if self.chosen is None else self.chosen.layer,
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
    classes = place.about["model"]["classes"]
    measured = "" if costs is None else costs.measured
    return Trained(place.path, place.history, lines, measured, None if classes is None else len(classes))


def _scored(place: Place, name: str) -> list[Line]:
    table = open_run(place.history).table()
    table = table[table["step"] == table["step"].max()]
    metric = next(metric for metric in SCORES if (table["metric"] == metric).any())
    rows = table[table["metric"] == metric].sort_values("layer")
    depth, objective = int(rows["layer"].max()), place.about["settings"]["objective"]
    columns = (rows["layer"].tolist(), rows["value"].tolist(), rows["stderr"].tolist(), rows["n"].tolist())
    return [
        Line(name, objective, depth, layer, metric, value, stderr, None, None, n)
        for layer, value, stderr, n in zip(*columns, strict=True)
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
