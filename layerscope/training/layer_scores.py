"""What each layer of a model predicts in evaluation batches: sums that grow with neither batches nor exits."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from layerscope.core.errors import LayerscopeError
from layerscope.metrics import effective_depth, saturation_layer
from layerscope.metrics.arrays import directions
from layerscope.metrics.neural_collapse import nc1
from layerscope.models import LayeredModel
from layerscope.training.exit_loss import ExitLoss, Head
from layerscope.training.loss import CHUNK, IGNORED, check_classes, wide

Row = dict[str, Any]
Read = Callable[[int], Tensor]

SITE = "head"
"""The states are what the head reads: after all that follows the last block, be it norm, pooling or pooler."""
UNCENTRED = "uncentered"
EPSILON = 0.01
"""The effective depth allows a loss of one point of accuracy."""
MOST_CLASSES = 256
MOST_BYTES = 256 * 2**20
"""Memory of NC1's second moments, over all layers."""
MEANS = ("layer_accuracy", "label_probability", "cross_entropy", "cosine_similarity", "saturated", "saturation_layer")


class LayerScores:
    """Scores of layers 1 … L, summed over batches; two of them merge.

    A row is a sample of a classifier, or a token whose label counts. Each layer has accuracy, mean probability of the
    label, cross-entropy (and perplexity), cosine to the last layer (not centred: means would take a second pass), the
    share of rows saturated there, and NC1 where classes and width allow; the model has a mean saturation layer and
    effective depth. States are those the head reads (site "head"), or the logits where no linear layer makes them.

    With `shift` labels are the inputs, and position t predicts label t + 1. `collapse` is the number of classes and the
    width of the states, for NC1; None leaves it out (see `no_collapse`).
    """

    def __init__(
        self, depth: int, *, shift: bool = False, language_model: bool = False, collapse: tuple[int, int] | None = None
    ) -> None:
        self.depth, self.shift, self.language_model, self.total = depth, shift, language_model, 0
        self.sums = torch.zeros(len(MEANS), 3, depth, dtype=torch.float64)
        self.classes = [] if collapse is None else [ClassSums(*collapse) for _ in range(depth)]

    @torch.no_grad()
    def update(self, read: Read, heads: Sequence[Head], labels: Tensor) -> None:
        """Add one batch; raises `LayerscopeError` where labels, `[B, …]` with −100 for no label, do not fit.

        `read` returns what exit 0 … L − 1 gives its head, `[B, …, D]`: each is read once, and the last one first.
        `heads` make logits `[n, K]` of states `[n, D]`, and are called on chunks of rows.
        """
        labels = labels[..., 1:] if self.shift else labels
        counts = labels != IGNORED
        truth = labels[counts]
        if not len(truth):
            return
        last = self._rows(read(self.depth - 1), counts)
        tops, fine = [], torch.ones(len(truth), dtype=torch.bool, device=truth.device)
        for index in range(self.depth):
            rows = last if index == self.depth - 1 else self._rows(read(index), counts)
            top, nll, cosine = _judged(rows, last, heads[index], truth)
            kept = torch.isfinite(nll)
            values = ((top == truth)[kept], (-nll[kept]).exp(), nll[kept], cosine[torch.isfinite(cosine)])
            for name, found in zip(MEANS, values, strict=False):
                self._add(name, index, found)
            if self.classes:
                kept = kept & torch.isfinite(rows).all(-1)
                self.classes[index].update(rows[kept], truth[kept])
            tops.append(top)
            fine &= kept
        settled = saturation_layer(torch.stack(tops, -1)[fine])
        self._add("saturation_layer", self.depth - 1, settled)
        for index in range(self.depth):
            self._add("saturated", index, settled <= index + 1)
        self.total += len(truth)

    def merge(self, other: LayerScores) -> None:
        """Add the scores of other batches of the same model, as of another process."""
        self.total += other.total
        self.sums += other.sums
        for mine, its in zip(self.classes, other.classes, strict=True):
            mine.merge(its)

    def compute(self) -> list[Row]:
        """Return rows of the long frame, none where no label counted; accuracies and probabilities in 0 … 1."""
        if not self.total:
            return []
        means = self._means()
        more = {"cosine_similarity": {"variant": UNCENTRED, "layer_b": self.depth, "site_b": SITE}}
        found = [self._row(name, layer, *mean) | more.get(name, {})
                 for name in MEANS[:-1] for layer, mean in enumerate(means[name], start=1)]  # fmt: skip
        if self.language_model:
            for layer, (value, stderr, n) in enumerate(means["cross_entropy"], start=1):
                perplexity = math.exp(min(value, 700.0)) if math.isfinite(value) else math.nan
                found.append(self._row("perplexity", layer, perplexity, perplexity * stderr, n))
        found.append(self._row("saturation_layer", self.depth, *means["saturation_layer"][-1]))
        accuracies = torch.tensor([value for value, _, _ in means["layer_accuracy"]], dtype=torch.float64)
        if bool(torch.isfinite(accuracies).all()):
            depths = {"last": effective_depth(accuracies, EPSILON, "last"), "all": effective_depth(accuracies, EPSILON)}
            for name, reached in depths.items():
                found.append(self._row("effective_depth", self.depth, float(reached)) | {"variant": _variant(name)})
        for layer, sums in enumerate(self.classes, start=1):
            if not math.isnan(value := sums.nc1()):
                found.append(self._row("nc1", layer, value, n=int(sums.counts.sum())))
        return found

    def _means(self) -> dict[str, list[tuple[float, float, int]]]:
        """Return mean, standard error and number of rows by layer; NaN where there is none, or no error of one."""
        n, total, squares = self.sums.unbind(1)
        mean = total / n
        spread = ((squares - total * mean) / (n - 1)).clamp_min(0) / n
        error = torch.where(n > 1, spread, math.nan).sqrt()
        rows = zip(mean.tolist(), error.tolist(), n.long().tolist(), strict=True)
        return {name: list(zip(*row, strict=True)) for name, row in zip(MEANS, rows, strict=True)}

    def _rows(self, state: Tensor, counts: Tensor) -> Tensor:
        state = state[..., :-1, :] if self.shift else state
        if state.shape[:-1] != counts.shape:
            raise LayerscopeError(
                f"states {tuple(state.shape)} and labels {tuple(counts.shape)}: give one label for each state"
            )
        return state[counts]

    def _add(self, name: str, index: int, values: Tensor) -> None:
        found = values.cpu().double()  # some devices know no float64
        new = torch.stack((torch.tensor(float(len(found))), found.sum(), found.square().sum()))
        self.sums[MEANS.index(name), :, index] += new

    def _row(self, name: str, layer: int, value: float, stderr: float = math.nan, n: int | None = None) -> Row:
        used = self.total if n is None else n
        known = {"layer": layer, "site": SITE, "value": value, "stderr": stderr}
        return {"metric": name, "variant": None, "pooling": None, **known, "n": used, "n_skipped": self.total - used}


def score_options(model: LayeredModel, exit_loss: ExitLoss) -> tuple[dict[str, Any], str | None]:
    """Return the options of `LayerScores` for a model with a head, and why NC1 is left out where it is."""
    head, depth = exit_loss.every.head, model.stack.depth
    classes = 0 if model.lens is None else model.lens.classes
    width = classes if head is None else head.in_features
    config: Any = getattr(model.module, "config", None)
    text = config.get_text_config() if hasattr(config, "get_text_config") else config
    language_model = exit_loss.shift or getattr(text, "vocab_size", None) == classes
    left_out = no_collapse(depth, classes, width, language_model)
    collapse = None if left_out else (classes, width)
    return dict(depth=depth, shift=exit_loss.shift, language_model=language_model, collapse=collapse), left_out


def once(labels: Tensor, accelerator: Any) -> Tensor:
    """Return labels without those that only fill up the last batch of several processes: they were scored before.

    As in `Accelerator.gather_for_metrics`, the last batch has `remainder` samples over all processes in their order.
    """
    state = accelerator.gradient_state
    if accelerator.num_processes == 1 or not state.end_of_dataloader or state.remainder <= 0:
        return labels
    own = min(len(labels), max(0, state.remainder - accelerator.process_index * len(labels)))
    kept = labels.clone()
    kept[own:] = IGNORED
    return kept


def over_processes(scores: LayerScores, accelerator: Any) -> LayerScores:
    """Return the scores of all processes, in each of them."""
    if accelerator.num_processes == 1:
        return scores
    from accelerate.utils import gather_object  # type: ignore[import-untyped]  # accelerate has no types

    for sums in scores.classes:  # to be sent
        sums.to("cpu")
    whole: LayerScores
    whole, *others = gather_object([scores])
    for other in others:
        whole.merge(other)
    return whole


def logged(rows: Sequence[Row], language_model: bool) -> dict[str, float]:
    """Return what a training log says of scores: flat names, those of single layers `NAME_layer_K`."""
    values = {(row["metric"], row["variant"], row["layer"]): row["value"] for row in rows}
    depth = max((layer for _, _, layer in values), default=0)
    metric, name = ("perplexity", "perplexity") if language_model else ("layer_accuracy", "accuracy")
    wanted = {
        name: (metric, None, depth),
        "saturation_layer": ("saturation_layer", None, depth),
        "effective_depth": ("effective_depth", _variant("last"), depth),
        "nc1": ("nc1", None, depth),
    }
    for own, key in ((name, (metric, None)), ("cosine", ("cosine_similarity", UNCENTRED))):
        wanted |= {f"{own}_layer_{layer}": (*key, layer) for layer in range(1, depth + 1)}
    return {name: values[key] for name, key in wanted.items() if key in values}


def no_collapse(depth: int, classes: int, width: int, language_model: bool) -> str | None:
    """Return why NC1 of such a model is not computed, None where it is."""
    size = 8 * depth * width * (width + 2 * classes)
    if language_model:
        return "NC1 is left out: a language model's classes are its tokens"
    if classes > MOST_CLASSES:
        return f"NC1 is left out: {classes:,} classes, and at most {MOST_CLASSES} are allowed"
    if size > MOST_BYTES:
        return f"NC1 is left out: its sums take {size / 2**20:,.0f} MiB, and at most {MOST_BYTES >> 20} are allowed"
    return None


def _variant(relative_to: str) -> str:
    """Name an effective depth: as accurate as the last layer, or on all samples (definition 3.1)."""
    return f"relative_to={relative_to},epsilon={EPSILON:g}"


def _judged(rows: Tensor, last: Tensor, head: Head, truth: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return top prediction, negative log-likelihood and cosine to the last layer of each row, logits in chunks."""
    tops, losses, cosines = [], [], []
    size, start = 1, 0
    while start < len(rows):
        part, labels = rows[start : start + size], truth[start : start + size, None]
        logits = wide(head(part))
        if start == 0:
            check_classes(truth, logits.shape[-1])
        tops.append(logits.argmax(-1))
        losses.append((logits.logsumexp(-1, keepdim=True) - logits.gather(1, labels))[:, 0])
        pair = (each.float() if each.device.type == "mps" else each.double() for each in (part, last[start:][:size]))
        cosines.append(torch.linalg.vecdot(*(directions(each, torch.zeros(())) for each in pair)).clamp(-1.0, 1.0))
        start += size
        size = max(1, CHUNK // logits.shape[-1])  # the first row shows the number of classes
    return torch.cat(tops), torch.cat(losses), torch.cat(cosines)


class ClassSums:
    """Float64 sums of states `[n, D]` of K classes: count and sum of each class, and one D x D second moment of all.

    Each class is summed around a point near its mean, that of its first batch: neither a large offset nor classes that
    have collapsed to points cancel digits away. Memory is 8 (D + 2K) D bytes, whatever the number of states.
    """

    def __init__(self, classes: int, width: int) -> None:
        self.counts = torch.zeros(classes, dtype=torch.float64)
        self.shifts = torch.zeros(classes, width, dtype=torch.float64)
        self.sums = torch.zeros(classes, width, dtype=torch.float64)
        self.moment = torch.zeros(width, width, dtype=torch.float64)

    def update(self, states: Tensor, labels: Tensor) -> None:
        """Add finite states `[n, D]` with their classes `[n]`."""
        if states.device.type != "mps":  # which knows no float64
            self.to(states.device)
        rows, labels = states.to(self.moment.device).double(), labels.to(self.moment.device)
        counts = torch.bincount(labels, minlength=len(self.counts)).double()
        means = torch.zeros_like(self.sums).index_add_(0, labels, rows) / counts.clamp_min(1)[:, None]
        first = (self.counts == 0) & (counts > 0)
        self.shifts[first] = means[first]
        moved = rows - self.shifts[labels]
        self.counts += counts
        self.sums.index_add_(0, labels, moved)
        self.moment.addmm_(moved.T, moved)

    def to(self, device: torch.device | str) -> None:
        """Move to a device."""
        for name, sums in vars(self).items():
            setattr(self, name, sums.to(device))

    def merge(self, other: ClassSums) -> None:
        """Add the sums over other states of the same classes."""
        other.to(self.moment.device)
        first = self.counts == 0
        self.shifts[first] = other.shifts[first]
        apart = (other.shifts - self.shifts) * (other.counts > 0)[:, None]
        moved = other.counts[:, None] * apart
        cross = other.sums.T @ apart
        self.counts += other.counts
        self.sums += other.sums + moved
        self.moment += other.moment + cross + cross.T + apart.T @ moved

    def nc1(self) -> float:
        """Return what `neural_collapse` gives of all states at once as `nc1`; NaN for fewer than two classes."""
        there = self.counts > 0
        if int(there.sum()) < 2:
            return math.nan
        counts, total = self.counts[there], self.counts.sum()
        off = self.sums[there] / counts[:, None]
        means = self.shifts[there] - self.shifts[there][0] + off
        between = means - (counts[:, None] * means).sum(0) / total

        def spread(directions: Tensor) -> Tensor:
            around = ((directions @ self.moment) * directions).sum(-1)
            return (around - (counts[:, None] * (off @ directions.T).square()).sum(0)).clamp_min(0) / total

        return float(nc1(between, spread))
