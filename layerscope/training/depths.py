"""Every depth of a trained model, and separate models of some depths, side by side: score, time, size."""

import copy
import math
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import Any

import pandas as pd
import torch

from layerscope.core.errors import LayerscopeError, count
from layerscope.core.files import aside
from layerscope.core.progress import Reporter
from layerscope.core.saved import jsonable
from layerscope.metrics.effective_depth import within
from layerscope.models import LayeredModel, LoadOptions, Override
from layerscope.runs import history, open_run
from layerscope.runs.registry import about, scale
from layerscope.show.document import Document, Table, columns, row
from layerscope.show.notebook import Shown
from layerscope.training.folder import BASELINES, DEPTHS, TrainingFolder
from layerscope.truncation.costs import costs_by_depth
from layerscope.truncation.depth import depth_of
from layerscope.truncation.source import open_source

SCORES = {
    "perplexity": ("tokens", "1 %", 1),
    "pair_spearman": ("pairs", "0.01", 3),
    "pair_accuracy": ("pairs", "1 point", 1),
    "layer_accuracy": ("samples", "1 point", 1),
}
"""The scores of a training, the first that was measured counts: what of, what `LOSS` of it is called, its decimals."""
LOSS = Fraction(1, 100)
"""Largest loss at which a shallower layer is chosen over the last: a point of accuracy, 1 % of perplexity."""
FEWEST = 50
"""With fewer samples or tokens no depth is chosen."""


COUNTED = ("pair_accuracy", "layer_accuracy")
"""The scores that are a number of correct ones out of n, which are compared as such: 0.95 - 0.94 is above 0.01."""


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

    @property
    def title(self) -> str:
        """What its score is called."""
        return history.NAMES.get(self.metric, about(self.metric).title)

    def shown(self, value: float, stderr: float = math.nan) -> str:
        """Return a value of its score, with the error if there is one."""
        factor, digits = scale(self.metric), SCORES[self.metric][2]
        error = "" if math.isnan(stderr) else f" ±{factor * stderr:,.{digits}f}"
        unit = " %" if about(self.metric).unit == "%" else ""
        return f"{factor * value:,.{digits}f}{error}{unit}"

    def __str__(self) -> str:
        return self.shown(self.value, self.stderr)

    def loses(self, other: "Line") -> float:
        """Return how much worse this layer is than another: in accuracy (0 … 1), or as a share of its perplexity."""
        if self.metric == "perplexity":
            return self.value / other.value - 1
        return other.value - self.value

    def against(self, last: "Line") -> str:
        """Return in words how fast and how good this layer is beside the last one."""
        loss, faster = self.loses(last), ""
        _, point, digits = SCORES[self.metric]
        lost = f"{100 * loss:.1f} {'%' if point == '1 %' else 'points'}"
        if digits == 3:
            lost = f"{loss:.3f}"
        if self.ms_per_sample and last.ms_per_sample:
            faster = f", {last.ms_per_sample / self.ms_per_sample:.1f} × faster"
        return f"{faster}, {f'{lost} worse than' if loss > 0 else 'as good as'} all {last.layer}"

    def nearly(self, other: "Line") -> bool:
        """Return whether it loses at most `LOSS` against another."""
        if self.metric in COUNTED and math.isfinite(self.value + other.value):
            return other._share() - self._share() <= LOSS
        return bool(within(self.loses(other), float(LOSS)))

    def _share(self) -> Fraction:
        """Return the accuracy as the number of correct ones out of all."""
        return Fraction(round(self.value * self.n), self.n)


@dataclass(frozen=True)
class Trained(Shown):
    """What a training left: its layers and those of its baselines; only a classifier has `classes`."""

    path: Path
    history: Path
    lines: tuple[Line, ...]
    measured: str
    classes: int | None = None
    dims: pd.DataFrame = field(default_factory=pd.DataFrame)
    """The score of sentence embeddings' first dimensions alone: layers by their number."""

    @property
    def layers(self) -> tuple[Line, ...]:
        """The layers of the model itself."""
        return tuple(line for line in self.lines if line.depth == self.lines[0].depth)

    @property
    def chosen(self) -> Line | None:
        """The shallowest layer that loses at most `LOSS` against the last; None without one, or if in doubt."""
        *others, last = self.layers
        fit = (line for line in others if line.nearly(last))
        return next(fit, None) if self._doubt() is None else None

    @property
    def headline(self) -> str:
        """What this training bought, in a line."""
        last, chosen, doubt = self.layers[-1], self.chosen, self._doubt()
        if doubt is not None:
            return f"No depth is chosen: {doubt}"
        unit, point, _ = SCORES[last.metric]
        n = f"N = {last.n:,}" if self.classes else f"N = {last.n:,} {unit}"
        if chosen is None:
            text = f"All {last.layer} layers: {last.title} {last} ({n}); no shallower layer is within {point} of it"
            return text + self._narrow(last)
        text = f"Layer {chosen.layer} of {len(self.layers)}: {last.title} {chosen}{chosen.against(last)} ({last}; {n})"
        return text + self._narrow(chosen)

    def _narrow(self, line: Line) -> str:
        """Return the fewest dimensions of a layer that lose at most `LOSS` against all of the last layer, in words."""
        last = self.layers[-1].value
        for dims, score in self.dims.T.get(line.layer, {}).items():
            if within(last - score, float(LOSS)):
                return f"; its first {dims} dimensions alone: {line.shown(score)}"
        return ""

    @property
    def rivals(self) -> tuple[str, ...]:
        """Separate models that are better than the layer of this one at their depth, a sentence each."""
        layers = {line.layer: line for line in self.layers}
        return tuple(
            f"A separate model of {count(line.layer, 'layer')} is better than layer {line.layer} of this one: "
            f"{line} against {layers[line.layer]}, in {self.path / BASELINES / f'depth-{line.layer}'}"
            for line in self.lines[len(layers) :]
            if layers[line.layer].loses(line) > 0
        )

    def document(self) -> Document:
        """Return what the training bought: each layer at the last step, each depth with its score, time and size."""
        last, depths = history.document(open_run(self.history)), self._depths()
        folder = str(self.path)
        commands = [["layerscope", "report", str(self.history)]]
        if self.chosen is not None:
            best = str(self.chosen.layer)
            commands.insert(
                0, ["layerscope", "truncate", folder, "--layer", best, "--out", f"{folder}-{best}"]
            )
        return Document(
            self.headline,
            last.title,
            last.facts,
            reasons=(*self.rivals, f"{last.answer}."),
            parts=(last.parts[0], depths, *last.parts[1:]),
            lead=(depths, *(part for part in last.parts if _has_dims(part))),
            commands=tuple(map(shlex.join, commands)),
        )

    def _depths(self) -> Table:
        layers = self.layers
        separate = {line.layer: str(line) for line in self.lines[len(layers) :]}
        titles = ["layer", layers[0].title, "ms", "MB"] + ["separate model"] * bool(separate)
        legend = (f"ms: per sample, {self.measured}",) if self.measured else ()
        rows = []
        for line in layers:
            costs = [_decimals(line.ms_per_sample), _decimals(line.megabytes)]
            beside = [separate.get(line.layer, "")] * bool(separate)
            rows.append(row(f"{line.layer} of {line.depth}", str(line), *costs, *beside))
        return Table("A model that ends at each layer", columns(titles), tuple(rows), legend)

    def _doubt(self) -> str | None:
        """Return why the scores say nothing about depth, None where they do."""
        last = self.layers[-1]
        if last.n < FEWEST:
            return f"{count(last.n, 'evaluation sample')} are too few, give at least {FEWEST}"
        if self.classes and last.value - 2 * last.stderr <= 1 / self.classes:
            score = f"({last}, N = {last.n:,})"
            return f"the last layer {score} is not above chance for {self.classes} classes, train longer"
        return None

    def as_dict(self) -> dict[str, Any]:
        """Return the same as JSON can hold it; what is not a number is null."""
        return {
            "path": str(self.path),
            "history": str(self.history),
            "depths": jsonable(self.lines),
            **({} if self.dims.empty else {"dims": self.dims.to_dict("index")}),
            "measured": self.measured,
            "headline": self.headline,
            "layer": None if self.chosen is None else self.chosen.layer,
        }


def _decimals(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f}"


def _has_dims(part: Any) -> bool:
    """Return whether this is the table of layers at fewer dimensions."""
    return isinstance(part, Table) and any(
        column.title.endswith(" dims") for column in part.columns
    )


def shallower(
    model: LayeredModel, depths: Sequence[int], seed: int, *, from_config: bool
) -> dict[int, Any]:
    """Return separate models of these depths: the first blocks of a checkpoint, or random weights of such a config."""
    if not depths:
        return {}
    depth, models = depth_of(model), {}
    for layers in depths:
        torch.manual_seed(seed)
        if from_config:
            models[layers] = depth.kind(depth.config(model.module.config, range(layers)))
        else:
            models[layers] = copy.deepcopy(depth.build(model.module, range(layers)))
    return models


def compare(
    folder: TrainingFolder,
    baselines: Mapping[int, TrainingFolder],
    part: str | None,
    reporter: Reporter,
) -> Trained:
    """Write and return `depths.csv` in the history: each layer of the model, and each baseline at its own depth."""
    name, classes = str(folder.about["model"]["name"]), folder.about["model"]["classes"]
    tables = [_scored(folder, name)]
    for depth, other in sorted(baselines.items()):
        table = _scored(other, f"{name}, {count(depth, 'layer')}")
        tables.append(table[table["layer"] == depth])
    frame, measured = pd.concat(tables), ""
    frame = frame.assign(ms_per_sample=None, megabytes=None)
    try:
        source = open_source(str(folder.path), None, Override(part), LoadOptions())
        costs = costs_by_depth(source, tables[0]["layer"].tolist())
        measured = costs.measured
        by_layer = frame["layer"].map(costs.layers)
        frame["ms_per_sample"] = [cost.milliseconds for cost in by_layer]
        frame["megabytes"] = [cost.megabytes for cost in by_layer]
    except LayerscopeError as error:
        reporter.say(f"no times by depth: {error}")
    lines = tuple(Line(**record) for record in frame.to_dict("records"))
    text = pd.DataFrame(map(asdict, lines)).to_csv(index=False)
    aside(folder.history / DEPTHS, lambda part: part.write_text(text, encoding="utf-8"))
    dims = _by_dims(folder)
    return Trained(folder.path, folder.history, lines, measured, classes and len(classes), dims)


def _scored(folder: TrainingFolder, name: str) -> pd.DataFrame:
    """Return the score of each layer after the last step, with the columns of a `Line` that are known by then."""
    table = open_run(folder.history).table()
    table = table[table["step"] == table["step"].max()]
    metric = next(metric for metric in SCORES if (table["metric"] == metric).any())
    table = table[(table["metric"] == metric) & table["variant"].isna()]
    rows = table.sort_values("layer")[["layer", "metric", "value", "stderr", "n"]]
    return rows.assign(
        name=name, objective=folder.about["settings"]["objective"], depth=rows["layer"].max()
    )


def _by_dims(folder: TrainingFolder) -> pd.DataFrame:
    """Return the last score of each layer (rows) at each number of first dimensions, empty where there are none."""
    rows = open_run(folder.history).at()
    rows = rows[rows["variant"].str.startswith(history.DIMS).fillna(False).astype(bool)]
    numbers = rows["variant"].str.removeprefix(history.DIMS).astype("int64")
    return rows.assign(dims=numbers).pivot(index="layer", columns="dims", values="value")
