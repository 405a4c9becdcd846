"""What each layer of a model predicts in evaluation batches: sums that grow with neither batches nor exits."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from operator import add
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from layerscope.core import LayerscopeError
from layerscope.metrics import cosine_to, effective_depth, saturation_layer
from layerscope.metrics.neural_collapse import ClassSums
from layerscope.training.exit_loss import ExitLoss
from layerscope.training.loss import (
    CHUNK,
    IGNORED,
    Head,
    at_least_float32,
    check_classes,
)
from layerscope.training.some_rows import SomeRows

Row = dict[str, Any]
Read = Callable[[int], Tensor]

SITE = "head"
"""The states are what the head reads: after all that follows the last block, be it norm, pooling or pooler."""
EPSILON = 0.01
"""The effective depth allows a loss of one point of accuracy."""
MOST_BYTES = 2**30
"""Memory of the sums by class, over all layers."""
COSINE_BYTES = 128 * 2**20
"""Memory of the rows that the cosine is measured on, whose means are known at the end alone."""
MEANS = ("layer_accuracy", "label_probability", "cross_entropy", "agreement", "saturated",
         "saturation_layer")  # fmt: skip


@dataclass(eq=False)
class LayerScores:
    """Scores of layers 1 … L, summed over batches; two of them merge.

    A row is a sample of a classifier, or a token whose label counts; one that is not finite at
    every layer is skipped. States are those the head reads (site "head"), or the logits where no
    linear layer makes them. The cosine to the last layer is centred (footnote 2 of Tracing
    Representation Progression), on an even sample of the rows where they are many. With `shift`
    labels are the inputs, and position t predicts label t + 1. `collapse` is the number of classes
    and the width of the states, for neural collapse; None leaves it out.
    """

    depth: int
    shift: bool = False
    language_model: bool = False
    collapse: tuple[int, int] | None = None
    total: int = 0
    skipped: int = 0
    some: SomeRows | None = None

    def __post_init__(self) -> None:
        self.sums = torch.zeros(2, len(MEANS), self.depth, dtype=torch.float64)
        self.classes: list[ClassSums] = []
        if self.collapse is not None:
            self.classes = [ClassSums.empty(*self.collapse) for _ in range(self.depth)]

    @torch.no_grad()
    def update(self, read: Read, heads: Sequence[Head], labels: Tensor) -> None:
        """Add one batch; raises `LayerscopeError` where labels, `[B, …]` with −100 for no label, do not fit.

        `read` returns what exit 0 … L − 1 gives its head, `[B, …, D]`: each is read once, and the
        last one first. `heads` make logits `[n, K]` of states `[n, D]`, and are called on chunks of
        rows.
        """
        if self.shift:
            labels = labels[..., 1:]
        counts = labels != IGNORED
        labels = labels[counts]
        if not len(labels):
            return
        last = self._rows(read(self.depth - 1), counts)
        if self.some is None:
            bytes_of_row = 4 * self.depth * last.shape[-1]
            self.some = SomeRows(COSINE_BYTES // bytes_of_row)
        chosen = self.some.choose(len(labels)).to(last.device)
        states = []
        tops = []
        losses = []
        for index, head in enumerate(heads):
            rows = last
            if index < self.depth - 1:
                rows = self._rows(read(index), counts)
            top, loss = _predicted(rows, head, labels)
            if self.classes:
                finite = torch.isfinite(loss)
                self.classes[index].update(rows[finite], labels[finite])
            tops.append(top)
            losses.append(loss)
            states.append(at_least_float32(rows[chosen]))
        by_layer = torch.stack(losses)
        finite = torch.isfinite(by_layer).all(0)
        self.some.add(torch.stack(states, 1)[finite[chosen]])
        self._add(torch.stack(tops)[:, finite], by_layer[:, finite], labels[finite])
        self.total += len(labels)
        self.skipped += int((~finite).sum())

    def _add(self, tops: Tensor, losses: Tensor, labels: Tensor) -> None:
        """Add predictions and negative log-likelihoods `[L, n]` of rows that have these `labels`."""
        settled = saturation_layer(tops.T)
        layers = torch.arange(1, self.depth + 1, device=tops.device)[:, None]
        values = (
            tops == labels,
            (-losses).exp(),
            losses,
            tops == tops[-1],
            settled <= layers,
            settled.expand(self.depth, -1),
        )
        # not all have float64
        numbers = torch.stack([value.cpu().double() for value in values])
        squares = numbers.square().sum(-1)
        self.sums += torch.stack((numbers.sum(-1), squares))

    def merge(self, other: "LayerScores") -> None:
        """Add the scores of other batches of the same model, as of another process."""
        self.total += other.total
        self.skipped += other.skipped
        self.sums += other.sums
        self.classes = list(map(add, self.classes, other.classes))
        if self.some is not None and other.some is not None:
            self.some.add(other.some.rows)
        self.some = self.some or other.some

    def compute(self) -> list[Row]:
        """Return rows of the long frame, none where no label counted; accuracies and probabilities in 0 … 1."""
        if not self.total:
            return []
        rows = [*self._means(), *self._cosines(), *self._collapses()]
        if self.total == self.skipped:
            return rows
        hits = self.sums[0, MEANS.index("layer_accuracy")]
        accuracies = hits / (self.total - self.skipped)
        for name, relative_to in (("last", "last"), ("all", None)):
            depth = float(effective_depth(accuracies, EPSILON, relative_to))
            row = self._row("effective_depth", self.depth, depth)
            rows.append(row | {"variant": depth_variant(name)})
        return rows

    def _means(self) -> Iterator[Row]:
        """Yield mean and standard error of every layer; NaN where no row was finite, or no error of one."""
        n = self.total - self.skipped
        total, squares = self.sums
        means = total / n
        variances = (squares - total * means) / (n - 1)
        errors = variances.clamp_min(0).div(n).sqrt()
        for index, layer in np.ndindex(*means.shape):
            name = MEANS[index]
            number = layer + 1
            value = float(means[index, layer])
            stderr = float(errors[index, layer])
            if name != "saturation_layer" or number == self.depth:
                yield self._row(name, number, value, stderr)
            if name == "cross_entropy" and self.language_model:
                perplexity = math.exp(min(value, 700.0))
                yield self._row("perplexity", number, perplexity, perplexity * stderr)

    def _cosines(self) -> Iterator[Row]:
        """Yield the centred cosine of each layer to the last, with its standard error."""
        if self.some is None or not len(self.some.rows):
            return
        for layer, column in enumerate(cosine_to(self.some.rows).mT, start=1):
            cosines = column[torch.isfinite(column)]
            n = len(cosines)
            error = math.nan
            if n > 1:
                error = float(cosines.std()) / n**0.5
            row = self._row("cosine_similarity", layer, float(cosines.mean()), error)
            yield row | {"layer_b": self.depth, "site_b": SITE, "n": n}

    def _collapses(self) -> Iterator[Row]:
        """Yield the neural collapse of each layer that has one."""
        for layer, sums in enumerate(self.classes, start=1):
            collapse = sums.collapse()
            if collapse is not None:
                yield self._row("nc1", layer, float(collapse.nc1))

    def _row(
        self, name: str, layer: int, value: float, stderr: float = math.nan
    ) -> Row:
        """Return a row of one layer over all rows that were judged."""
        n = self.total - self.skipped
        return row_of(name, layer, value, stderr, n, n_skipped=self.skipped)

    def _rows(self, state: Tensor, counts: Tensor) -> Tensor:
        """Return the states `[n, D]` of the rows whose labels count."""
        if self.shift:
            state = state[..., :-1, :]
        if state.shape[:-1] != counts.shape:
            raise LayerscopeError(
                f"states {tuple(state.shape)} and labels {tuple(counts.shape)}: give one label for each state"
            )
        return state[counts]


def row_of(
    metric: str, layer: int, value: float, stderr: float, n: int, **more: Any
) -> Row:
    """Return a row of the long frame of a run."""
    return {
        "metric": metric,
        "variant": None,
        "pooling": None,
        "layer": layer,
        "site": SITE,
        "value": value,
        "stderr": stderr,
        "n": n,
        "n_skipped": 0,
        **more,
    }


def empty_scores(exit_loss: ExitLoss) -> LayerScores:
    """Return the scores of a model with a head before any batch."""
    every = exit_loss.every
    depth = len(every.layers)
    classes = width = every.classes
    if every.head is not None:
        width = every.head.in_features
    language_model = exit_loss.language_model
    collapse = None
    size = 8 * (depth * width * (width + 2 * classes) + 3 * classes**2)
    # the classes of a language model are its tokens
    if not language_model and size <= MOST_BYTES:
        collapse = classes, width
    return LayerScores(depth, exit_loss.shift, language_model, collapse)


def once(labels: Tensor, accelerator: Any) -> Tensor:
    """Return labels without those that only fill up the last batch of several processes: they were scored before.

    As in `Accelerator.gather_for_metrics`, the last batch has `remainder` samples over all
    processes in their order.
    """
    state = accelerator.gradient_state
    is_last = state.end_of_dataloader and state.remainder > 0
    if accelerator.num_processes == 1 or not is_last:
        return labels
    new = max(0, state.remainder - accelerator.process_index * len(labels))
    kept = labels.clone()
    kept[new:] = IGNORED
    return kept


def over_processes(scores: LayerScores, accelerator: Any) -> LayerScores:
    """Return the scores of all processes, in each of them."""
    if accelerator.num_processes == 1:
        return scores
    from accelerate.utils import gather_object

    for sums in scores.classes:  # to be sent
        sums.to("cpu")
    whole: LayerScores
    whole, *others = gather_object([scores])
    for other in others:
        whole.merge(other)
    return whole


def logged(rows: Sequence[Row], language_model: bool) -> dict[str, float]:
    """Return what a training log says of scores: flat names, those of single layers `NAME_layer_K`."""
    score = "accuracy"
    metric = "layer_accuracy"
    if language_model:
        score = metric = "perplexity"
    flat = {}
    # layers ascend, so the last one stays under a name without a layer
    for row in rows:
        name = row["metric"]
        layer = row["layer"]
        value = row["value"]
        if name == metric:
            flat[score] = flat[f"{score}_layer_{layer}"] = value
        elif name == "cosine_similarity":
            flat[f"cosine_layer_{layer}"] = value
        elif name in ("saturation_layer", "nc1"):
            flat[name] = value
        elif row["variant"] == depth_variant("last"):
            flat["effective_depth"] = value
    return flat


def depth_variant(relative_to: str) -> str:
    """Name an effective depth: as accurate as the last layer, or on all samples (definition 3.1)."""
    return f"relative_to={relative_to},epsilon={EPSILON:g}"


def _predicted(rows: Tensor, head: Head, labels: Tensor) -> tuple[Tensor, Tensor]:
    """Return top prediction and negative log-likelihood of each row, logits in chunks."""
    classes = head(rows[:1]).shape[-1]
    check_classes(labels, classes)
    tops = []
    losses = []
    size = max(1, CHUNK // classes)
    chunks = torch.split(rows, size), torch.split(labels, size)
    for chunk, targets in zip(*chunks, strict=True):
        logits = at_least_float32(head(chunk))
        tops.append(logits.argmax(-1))
        losses.append(cross_entropy(logits, targets, reduction="none"))
    return torch.cat(tops), torch.cat(losses)
