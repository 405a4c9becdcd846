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
        """Return a value of its score, with the error if it is known."""
        factor, digits, unit = (
            scale(self.metric),
            SCORES[self.metric][2],
            " %" * (about(self.metric).unit == "%"),
        )
        error = "" if math.isnan(stderr) else f" ±{factor * stderr:,.{digits}f}"
        return f"{factor * value:,.{digits}f}{error}{unit}"

    def __str__(self) -> str:
        return self.shown(self.value, self.stderr)

    def loses(self, other: "Line") -> float:
        """Return how much worse this layer is than another: in accuracy (0 … 1), or as a share of its perplexity."""
        return (
            self.value / other.value - 1
            if self.metric == "perplexity"
            else other.value - self.value
        )

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
    def own(self) -> tuple[Line, ...]:
        """The layers of the model itself."""
        return tuple(line for line in self.lines if line.depth == self.lines[0].depth)

    @property
    def chosen(self) -> Line | None:
        """The shallowest layer that loses at most `LOSS` against the last; None without one, or if in doubt."""
        fit = (line for line in self.own[:-1] if line.nearly(self.own[-1]))
        return next(fit, None) if self._doubt() is None else None

    @property
    def headline(self) -> str:
        """What this training bought, in a line."""
        own, last, found, doubt = self.own, self.own[-1], self.chosen, self._doubt()
        if doubt is not None:
            return f"No depth is chosen: {doubt}"
        name, (unit, point, digits) = last.title, SCORES[last.metric]
        what = f"N = {last.n:,}{'' if self.classes else f' {unit}'}"
        if found is None:
            text = f"All {last.layer} layers: {name} {last} ({what}); no shallower layer is within {point} of it"
            return text + self._narrow(last)
        loss, times = found.loses(last), (found.ms_per_sample, last.ms_per_sample)
        lost = (
            f"{loss:.3f}"
            if digits == 3
            else f"{100 * loss:.1f} {'%' if point == '1 %' else 'points'}"
        )
        apart = f"{lost} worse than" if loss > 0 else "as good as"
        faster = f", {times[1] / times[0]:.1f} × faster" if times[0] and times[1] else ""
        text = f"Layer {found.layer} of {len(own)}: {name} {found}{faster}, {apart} all {last.layer} ({last}; {what})"
        return text + self._narrow(found)

    def _narrow(self, line: Line) -> str:
        """Return the fewest dimensions of a layer that lose at most `LOSS` against all of the last layer, in words."""
        scores, last = self.dims.T.get(line.layer, {}), self.own[-1].value
        fit = [(dims, score) for dims, score in scores.items() if within(last - score, float(LOSS))]
        return f"; its first {fit[0][0]} dimensions alone: {line.shown(fit[0][1])}" if fit else ""

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
        others = {line.layer: line for line in self.lines[len(self.own) :]}
        titles = ["layer", self.own[0].title, "ms", "MB"] + ["separate model"] * bool(others)
        legend = (f"ms: per sample, {self.measured}",) if self.measured else ()
        rows = []
        for line in self.own:
            timed = [
                "–" if value is None else f"{value:.2f}"
                for value in (line.ms_per_sample, line.megabytes)
            ]
            beside = [str(others[line.layer]) if line.layer in others else ""] if others else []
            rows.append(row(f"{line.layer} of {line.depth}", str(line), *timed, *beside))
        return Table("A model that ends at each layer", columns(titles), tuple(rows), legend)

    def _doubt(self) -> str | None:
        """Return why the scores say nothing about depth, None where they do."""
        last = self.own[-1]
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
    depth = depth_of(model)
    found = {}
    for layers in depths:
        torch.manual_seed(seed)
        if from_config:
            found[layers] = depth.kind(depth.config(model.module.config, range(layers)))
        else:
            found[layers] = copy.deepcopy(depth.build(model.module, range(layers)))
    return found


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
    costs, measured = {}, ""
    try:
        source = open_source(str(folder.path), None, Override(part), LoadOptions())
        found = costs_by_depth(source, tables[0]["layer"].tolist())
        costs, measured = found.layers, found.measured
    except LayerscopeError as error:
        reporter.say(f"no times by depth: {error}")
    frame = pd.concat(tables)
    for column, name in (("ms_per_sample", "milliseconds"), ("megabytes", "megabytes")):
        frame[column] = [getattr(costs.get(layer), name, None) for layer in frame["layer"]]
    lines = tuple(Line(**record) for record in frame.to_dict("records"))
    table = pd.DataFrame(map(asdict, lines)).to_csv(index=False)
    aside(folder.history / DEPTHS, lambda part: part.write_text(table, encoding="utf-8"))
    return Trained(
        folder.path, folder.history, lines, measured, classes and len(classes), _by_dims(folder)
    )


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
