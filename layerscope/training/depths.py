"""Every depth of a trained model side by side: score, time, size."""

import math
import shlex
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pandas as pd

from layerscope.core import LayerscopeError, Reporter, jsonable
from layerscope.metrics.effective_depth import within
from layerscope.models import LoadOptions, Override
from layerscope.runs import Run, open_run
from layerscope.runs.curves import value_text
from layerscope.runs.history import SCORES
from layerscope.runs.registry import about
from layerscope.show import Document, Shown, Table, columns, row
from layerscope.training.folder import TrainingFolder
from layerscope.truncation.costs import costs_by_depth
from layerscope.truncation.source import open_source

DIMS = "dims="
"""What the variant of a score begins with that reads the first dimensions of an embedding alone."""
LOSS = 0.01
"""Largest loss at which a shallower layer is chosen over the last; of perplexity a share."""
FEWEST = 50
"""With fewer samples or tokens no depth is chosen."""


@dataclass(frozen=True)
class Line:
    """One layer of a model: its score over `n` samples or tokens, and what a model that ends there costs."""

    depth: int
    layer: int
    metric: str
    value: float
    stderr: float
    n: int
    ms_per_sample: float | None = None
    megabytes: float | None = None

    @property
    def title(self) -> str:
        """What its score is called."""
        return about(self.metric).title.removeprefix("layer ")

    def shown(self, value: float, stderr: float = math.nan) -> str:
        """Return a value of its score, with the error if there is one."""
        return value_text(about(self.metric), value, stderr)

    def __str__(self) -> str:
        return self.shown(self.value, self.stderr)

    def nearly(self, other: "Line") -> bool:
        """Return whether it loses at most `LOSS` against another."""
        loss = other.value - self.value
        if self.metric == "perplexity":
            loss = self.value / other.value - 1
        return bool(within(loss, LOSS))


@dataclass(frozen=True)
class Trained(Shown):
    """What a training left: its layers with their scores and costs; only a classifier has `classes`."""

    path: Path
    history: Path
    lines: tuple[Line, ...]
    measured: str
    classes: int | None = None
    dims: pd.DataFrame = field(default_factory=pd.DataFrame)
    """The score of sentence embeddings' first dimensions alone: layers by their number."""

    @property
    def chosen(self) -> Line | None:
        """The shallowest layer that loses at most `LOSS` against the last; None without one, or if in doubt."""
        if self._doubt() is not None:
            return None
        *others, last = self.lines
        return next((line for line in others if line.nearly(last)), None)

    @property
    def headline(self) -> str:
        """What this training bought, in a line."""
        last = self.lines[-1]
        chosen = self.chosen
        doubt = self._doubt()
        if doubt is not None:
            return f"No depth is chosen: {doubt}"
        whole = f"{last} (N = {last.n:,})"
        if chosen is None:
            return f"All {last.layer} layers: {last.title} {whole}; every shallower layer loses more than {LOSS:.0%}"
        faster = ""
        if chosen.ms_per_sample and last.ms_per_sample:
            faster = f", {last.ms_per_sample / chosen.ms_per_sample:.1f} × faster"
        return f"Layer {chosen.layer} of {last.layer}: {last.title} {chosen}{faster}; all {last.layer}: {whole}"

    def document(self) -> Document:
        """Return what the training bought: each layer at the last step, with its score, time and size."""
        last = open_run(self.history).document()
        folder = str(self.path)
        depths = self._depths()
        commands = last.commands
        if self.chosen is not None:
            layer = str(self.chosen.layer)
            cut = ["truncate", folder, "--layer", layer, "--out", f"{folder}-{layer}"]
            commands = (shlex.join(["layerscope", *cut]), *commands)
        return replace(
            last,
            answer=self.headline,
            reasons=(f"{last.answer}.",),
            parts=(last.parts[0], depths, *last.parts[1:]),
            lead=(depths,),
            commands=commands,
        )

    def _depths(self) -> Table:
        """Return the score, time and size of the model that ends at each layer."""
        narrow = [*self.dims.columns[::-1]]
        by_dims = [f"{dims} dims" for dims in narrow]
        titles = ["layer", self.lines[0].title, *by_dims, "ms", "MB"]
        rows = []
        for line in self.lines:
            scores = [line.shown(self.dims.at[line.layer, dims]) for dims in narrow]
            costs = _decimals(line.ms_per_sample), _decimals(line.megabytes)
            rows.append(
                row(f"{line.layer} of {line.depth}", str(line), *scores, *costs)
            )
        legend = (f"ms: per sample, {self.measured}",) if self.measured else ()
        return Table(
            "A model that ends at each layer", columns(titles), tuple(rows), legend
        )

    def _doubt(self) -> str | None:
        """Return why the scores say nothing about depth, None where they do."""
        last = self.lines[-1]
        if last.n < FEWEST:
            return f"{last.n} evaluation samples are too few, give at least {FEWEST}"
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
            "dims": self.dims.to_dict("index"),
            "measured": self.measured,
            "headline": self.headline,
            "layer": self.chosen and self.chosen.layer,
        }


def _decimals(value: float | None) -> str:
    """Return a number with two decimals, a dash where it is unknown."""
    if value is None:
        return "–"
    return f"{value:.2f}"


def compare_depths(folder: TrainingFolder, reporter: Reporter) -> Trained:
    """Return what each layer of a trained model scores and costs."""
    run = open_run(folder.history)
    lines = _scored(run)
    measured = ""
    try:
        part = Override(folder.about["settings"]["part"])
        source = open_source(folder.path, None, part, LoadOptions())
        costs = costs_by_depth(source, [line.layer for line in lines])
        measured = costs.measured
        lines = [
            replace(line, ms_per_sample=cost.milliseconds, megabytes=cost.megabytes)
            for line, cost in zip(lines, costs.layers.values(), strict=True)
        ]
    except LayerscopeError as error:
        reporter.say(f"no times by depth: {error}")
    classes = folder.about["model"]["classes"]
    return Trained(
        folder.path,
        folder.history,
        tuple(lines),
        measured,
        classes and len(classes),
        _by_dims(run),
    )


def _scored(run: Run) -> list[Line]:
    """Return the score of each layer after the last step."""
    table = run.at()
    table = table[table["variant"].isna()]
    metric = next(metric for metric in SCORES if (table["metric"] == metric).any())
    rows = table[table["metric"] == metric].sort_values("layer")
    depth = int(rows["layer"].max())
    columns = ["layer", "metric", "value", "stderr", "n"]
    return [Line(depth, **record) for record in rows[columns].to_dict("records")]


def _by_dims(run: Run) -> pd.DataFrame:
    """Return the last score of each layer (rows) at each number of first dimensions, empty where there are none."""
    rows = run.at()
    reads_first = rows["variant"].str.startswith(DIMS).fillna(False)
    rows = rows[reads_first.astype(bool)]
    numbers = rows["variant"].str.removeprefix(DIMS).astype("int64")
    return rows.assign(dims=numbers).pivot(
        index="layer", columns="dims", values="value"
    )
