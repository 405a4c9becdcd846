"""What each layer of a model says of evaluation batches: sums that grow with neither batches nor exits."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from layerscope.core.errors import LayerscopeError
from layerscope.metrics import effective_depth, saturation_layer
from layerscope.metrics.arrays import directions
from layerscope.training.chunked import CHUNK
from layerscope.training.class_sums import ClassSums
from layerscope.training.loss import IGNORED, check_classes

Row = dict[str, Any]
Read = Callable[[int], Tensor]
Head = Callable[[Tensor], Tensor]

SITE = "head"
"""The states are what the head reads: after all that follows the last block, be it norm, pooling or pooler."""
UNCENTRED = "uncentered"
EPSILON = 0.01
"""Of the effective depth: one point of accuracy."""
MOST_CLASSES = 256
MOST_BYTES = 256 * 2**20
"""Of NC1's second moments, over all layers."""
MEANS = ("layer_accuracy", "label_probability", "cross_entropy", "cosine_similarity", "saturated", "saturation_layer")


class LayerScores:
    """Scores of layers 1 … L, summed over batches; two of them merge.

    A row is a sample of a classifier, or a token whose label counts. Of each layer: accuracy, mean probability of the
    label, cross-entropy (of a language model also perplexity), cosine to the last layer (not centred: means would take
    a second pass), the share of rows saturated there, and NC1 where classes and width allow; of the whole: mean
    saturation layer and effective depth. States are those the head reads (site "head"); of a model whose logits are not
    what a linear layer gives, the logits themselves.
    """

    def __init__(
        self, depth: int, *, shift: bool = False, language_model: bool = False, collapse: tuple[int, int] | None = None
    ) -> None:
        """Start at nothing.

        Args:
            depth: L.
            shift: labels are the inputs, and position t predicts label t + 1.
            language_model: perplexity is what is asked of it.
            collapse: number of classes and width of the states, for NC1; None leaves it out (see `no_collapse`).

        """
        self.depth, self.shift, self.language_model, self.total = depth, shift, language_model, 0
        self.sums = {name: torch.zeros(3, depth, dtype=torch.float64) for name in MEANS}
        self.classes = None if collapse is None else [ClassSums(*collapse) for _ in range(depth)]

    @torch.no_grad()
    def update(self, read: Read, heads: Sequence[Head], labels: Tensor) -> None:
        """Add one batch.

        Args:
            read: returns what exit 0 … L − 1 gives its head, `[B, …, D]`; each is read once, and the last before.
            heads: of each exit, from states `[n, D]` to logits `[n, K]`; called on chunks of rows.
            labels: `[B, …]`; −100 takes no part.

        Raises:
            LayerscopeError: where labels and states do not fit, or a label is none of the head's classes.

        """
        labels = labels[..., 1:] if self.shift else labels
        counts = labels != IGNORED
        truth = labels[counts]
        if not len(truth):
            return
        last = self._rows(read(self.depth - 1), counts)
        tops, fine = [], torch.ones(len(truth), dtype=torch.bool, device=truth.device)
        for place in range(self.depth):
            rows = last if place == self.depth - 1 else self._rows(read(place), counts)
            top, nll, cosine = _judged(rows, last, heads[place], truth)
            kept = torch.isfinite(nll)
            self._add("layer_accuracy", place, (top == truth)[kept])
            self._add("label_probability", place, (-nll[kept]).exp())
            self._add("cross_entropy", place, nll[kept])
            self._add("cosine_similarity", place, cosine[torch.isfinite(cosine)])
            if self.classes is not None:
                kept = kept & torch.isfinite(rows).all(-1)
                self.classes[place].update(rows[kept], truth[kept])
            tops.append(top)
            fine &= kept
        settled = saturation_layer(torch.stack(tops, -1)[fine])
        self._add("saturation_layer", self.depth - 1, settled)
        for place in range(self.depth):
            self._add("saturated", place, settled <= place + 1)
        self.total += len(truth)

    def merge(self, other: LayerScores) -> None:
        """Add the scores of other batches of the same model, as of another process."""
        self.total += other.total
        for name in MEANS:
            self.sums[name] += other.sums[name]
        for mine, its in zip(self.classes or (), other.classes or (), strict=True):
            mine.merge(its)

    def cpu(self) -> LayerScores:
        """Bring what lies on a device to the processor, to be sent."""
        for one in self.classes or ():
            one.to("cpu")
        return self

    def compute(self) -> list[Row]:
        """Return rows of the long frame, none where no label counted; accuracies and probabilities in 0 … 1."""
        if not self.total:
            return []
        means = {name: self._mean(name) for name in MEANS}
        found = [
            self._row(name, place + 1, value, stderr, n)
            for name in MEANS[:-1]
            for place, (value, stderr, n) in enumerate(means[name])
        ]
        for row in found:
            if row["metric"] == "cosine_similarity":
                row |= {"variant": UNCENTRED, "layer_b": self.depth, "site_b": SITE}
        if self.language_model:
            for place, (value, stderr, n) in enumerate(means["cross_entropy"]):
                blind = math.exp(min(value, 700.0)) if math.isfinite(value) else math.nan
                found.append(self._row("perplexity", place + 1, blind, blind * stderr, n))
        found.append(self._row("saturation_layer", self.depth, *means["saturation_layer"][-1]))
        return [*found, *self._depths([value for value, _, _ in means["layer_accuracy"]]), *self._collapse()]

    def _rows(self, state: Tensor, counts: Tensor) -> Tensor:
        state = state[..., :-1, :] if self.shift else state
        if state.shape[:-1] != counts.shape:
            raise LayerscopeError(
                f"states {tuple(state.shape)} and labels {tuple(counts.shape)}: give one label for each state"
            )
        return state[counts]

    def _add(self, name: str, place: int, values: Tensor) -> None:
        wide = values.cpu().double()  # some devices know no float64
        self.sums[name][:, place] += torch.stack((torch.tensor(float(len(wide))), wide.sum(), wide.square().sum()))

    def _mean(self, name: str) -> list[tuple[float, float, int]]:
        """Mean, standard error and number of rows by layer, NaN where there is none, or no error of one."""
        count, total, squares = self.sums[name]
        mean = total / count
        spread = ((squares - total * mean) / (count - 1)).clamp_min(0) / count
        error = torch.where(count > 1, spread, math.nan).sqrt()
        return list(zip(mean.tolist(), error.tolist(), map(int, count.tolist()), strict=True))

    def _row(self, name: str, layer: int, value: float, stderr: float = math.nan, n: int | None = None) -> Row:
        used = self.total if n is None else n
        known = {"layer": layer, "site": SITE, "value": value, "stderr": stderr}
        return {"metric": name, "variant": None, "pooling": None, **known, "n": used, "n_skipped": self.total - used}

    def _depths(self, accuracies: list[float]) -> list[Row]:
        if not all(map(math.isfinite, accuracies)):
            return []
        values = torch.tensor(accuracies, dtype=torch.float64)
        last = effective_depth(values, EPSILON, "last")
        absolute = effective_depth(values, EPSILON)
        return [
            self._row("effective_depth", self.depth, float(value)) | {"variant": _variant(name)}
            for name, value in (("last", last), ("all", absolute))
        ]

    def _collapse(self) -> list[Row]:
        found = [] if self.classes is None else [(i + 1, one.nc1(), one) for i, one in enumerate(self.classes)]
        return [
            self._row("nc1", layer, value, n=int(one.counts.sum())) for layer, value, one in found if value == value
        ]


def logged(rows: Sequence[Row], language_model: bool) -> dict[str, float]:
    """Return what a training log tells of scores: flat names, those of single layers `NAME_layer_K`."""
    values = {(row["metric"], row["variant"], row["layer"]): row["value"] for row in rows}
    depth = max((layer for _, _, layer in values), default=0)
    told, name = ("perplexity", "perplexity") if language_model else ("layer_accuracy", "accuracy")
    wholes = {
        name: (told, None), "saturation_layer": ("saturation_layer", None),
        "effective_depth": ("effective_depth", _variant("last")), "nc1": ("nc1", None),
    }  # fmt: skip
    layers = {name: (told, None), "cosine": ("cosine_similarity", UNCENTRED)}
    found = {name: values[*key, depth] for name, key in wholes.items() if (*key, depth) in values}
    for name, key in layers.items():
        found |= {f"{name}_layer_{k}": values[*key, k] for k in range(1, depth + 1) if (*key, k) in values}
    return found


def no_collapse(depth: int, classes: int, width: int, language_model: bool) -> str | None:
    """Return why NC1 of such a model is not computed, None where it is."""
    if language_model:
        return "NC1 is left out: a language model's classes are its tokens"
    if classes > MOST_CLASSES:
        return f"NC1 is left out: {classes:,} classes, and it is computed for at most {MOST_CLASSES}"
    size = 8 * depth * width * (width + 2 * classes)
    if size > MOST_BYTES:
        return f"NC1 is left out: its sums take {size / 2**20:,.0f} MiB, and at most {MOST_BYTES / 2**20:.0f} are taken"
    return None


def _variant(relative_to: str) -> str:
    """Name an effective depth: accurate as the last layer is, or on all samples (definition 3.1)."""
    return f"relative_to={relative_to},epsilon={EPSILON:g}"


def _judged(rows: Tensor, last: Tensor, head: Head, truth: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return top prediction, negative log-likelihood and cosine to the last layer of each row, logits in chunks."""
    tops, losses, cosines = [], [], []
    size, start = 1, 0
    while start < len(rows):
        part, labels = rows[start : start + size], truth[start : start + size, None]
        logits = _wide(head(part))
        if start == 0:
            check_classes(truth, logits.shape[-1])
        tops.append(logits.argmax(-1))
        losses.append((logits.logsumexp(-1, keepdim=True) - logits.gather(1, labels))[:, 0])
        pair = (directions(_widest(each), torch.zeros(())) for each in (part, last[start : start + size]))
        cosines.append(torch.linalg.vecdot(*pair).clamp(-1.0, 1.0))
        start += size
        size = max(1, CHUNK // logits.shape[-1])  # the first row tells the number of classes
    return torch.cat(tops), torch.cat(losses), torch.cat(cosines)


def _widest(values: Tensor) -> Tensor:
    return values.float() if values.device.type == "mps" else values.double()


def _wide(values: Tensor) -> Tensor:
    return values if values.dtype == torch.float64 else values.float()
