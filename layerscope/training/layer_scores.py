"""What each layer of a model predicts in evaluation batches: sums that grow with neither batches nor exits."""

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from layerscope.core.errors import LayerscopeError
from layerscope.metrics import cosine_to, effective_depth, saturation_layer
from layerscope.metrics.f1 import f1_of, hits
from layerscope.metrics.neural_collapse import ClassSums
from layerscope.models import LayeredModel
from layerscope.training.exit_loss import ExitLoss, Head
from layerscope.training.loss import CHUNK, IGNORED, check_classes, wide
from layerscope.training.some_rows import SomeRows

Row = dict[str, Any]
Read = Callable[[int], Tensor]

SITE = "head"
"""The states are what the head reads: after all that follows the last block, be it norm, pooling or pooler."""
EPSILON = 0.01
"""The effective depth allows a loss of one point of accuracy."""
ON_TRAIN = ",on=train"
"""What the variant of an effective depth by the accuracy on training data ends with."""
MOST_BYTES = 2**30
"""Memory of the sums by class, over all layers."""
COSINE_BYTES = 128 * 2**20
"""Memory of the rows that the cosine is measured on, whose means are known at the end alone."""
RISES, MONOTONE = "label_probability_rises", "label_probability_monotone"
MEANS = ("layer_accuracy", "label_probability", RISES, "cross_entropy", "agreement", "saturated", "saturation_layer",
         MONOTONE)  # fmt: skip
OF_ALL = ("saturation_layer", MONOTONE)
"""The means that are one number for all layers."""


class LayerScores:
    """Scores of layers 1 … L, summed over batches; two of them merge.

    A row is a sample of a classifier, or a token whose label counts. States are those the head
    reads (site "head"), or the logits where no linear layer makes them. The cosine to the last
    layer is centred (footnote 2 of Tracing Representation Progression), on an even sample of the
    rows where they are many. With `shift` labels are the inputs, and position t predicts label t +
    1. `collapse` is the number of classes and the width of the states, for neural collapse; None
    leaves it out (see `no_collapse`).
    """

    def __init__(
        self,
        depth: int,
        *,
        shift: bool = False,
        language_model: bool = False,
        collapse: tuple[int, int] | None = None,
    ) -> None:
        self.depth, self.shift, self.language_model, self.total = depth, shift, language_model, 0
        self.sums = torch.zeros(len(MEANS), 3, depth, dtype=torch.float64)
        self.classes = (
            [] if collapse is None else [ClassSums.empty(*collapse) for _ in range(depth)]
        )
        self.hits: list[Tensor | int] = [0] * depth
        self.some: SomeRows | None = None
        self.heads: Sequence[Head] = ()

    @torch.no_grad()
    def update(self, read: Read, heads: Sequence[Head], labels: Tensor) -> None:
        """Add one batch; raises `LayerscopeError` where labels, `[B, …]` with −100 for no label, do not fit.

        `read` returns what exit 0 … L − 1 gives its head, `[B, …, D]`: each is read once, and the
        last one first. `heads` make logits `[n, K]` of states `[n, D]`, and are called on chunks of
        rows.
        """
        labels = labels[..., 1:] if self.shift else labels
        counts = labels != IGNORED
        truth = labels[counts]
        if not len(truth):
            return
        last, self.heads = self._rows(read(self.depth - 1), counts), heads
        some = self.some = self.some or SomeRows(COSINE_BYTES // (4 * self.depth * last.shape[-1]))
        chosen, states = some.choose(len(truth)).to(last.device), []
        tops: list[Tensor] = []
        losses: list[Tensor] = []
        fine = torch.ones(len(truth), dtype=torch.bool, device=truth.device)
        for index in range(self.depth):
            rows = last if index == self.depth - 1 else self._rows(read(index), counts)
            top, nll, classes = _judged(rows, heads[index], truth)
            kept = torch.isfinite(nll)
            values = {
                "layer_accuracy": top == truth,
                "label_probability": (-nll).exp(),
                "cross_entropy": nll,
            }
            for name, scores in values.items():
                self._add(name, index, scores[kept])
            if losses:
                both = kept & torch.isfinite(losses[-1])
                self._add(RISES, index, (nll < losses[-1])[both])
            if not self.language_model:
                self.hits[index] = self.hits[index] + hits(top[kept], truth[kept], classes).cpu()
            if self.classes:
                kept = kept & torch.isfinite(rows).all(-1)
                self.classes[index].update(rows[kept], truth[kept])
            tops.append(top)
            losses.append(nll)
            states.append(wide(rows[chosen]))
            fine &= kept
        some.add(torch.stack(states, 1)[fine[chosen]])
        predicted = torch.stack(tops, -1)[fine]
        settled = saturation_layer(predicted)
        self._add("saturation_layer", self.depth - 1, settled)
        self._add(
            MONOTONE, self.depth - 1, (torch.stack(losses, -1)[fine].diff(dim=-1) < 0).all(-1)
        )
        for index in range(self.depth):
            self._add("agreement", index, predicted[:, index] == predicted[:, -1])
            self._add("saturated", index, settled <= index + 1)
        self.total += len(truth)

    def merge(self, other: "LayerScores") -> None:
        """Add the scores of other batches of the same model, as of another process."""
        self.total += other.total
        self.sums += other.sums
        self.hits = [mine + its for mine, its in zip(self.hits, other.hits, strict=True)]
        self.classes = [mine + its for mine, its in zip(self.classes, other.classes, strict=True)]
        if self.some is not None and other.some is not None:
            self.some.add(other.some.rows)
        self.some, self.heads = self.some or other.some, self.heads or other.heads

    def compute(self) -> list[Row]:
        """Return rows of the long frame, none where no label counted; accuracies and probabilities in 0 … 1."""
        if not self.total:
            return []
        means = self._means()
        first = dict.fromkeys(OF_ALL, self.depth) | {RISES: 2}
        rows = []
        for name in MEANS:
            for layer, mean in enumerate(means[name], start=1):
                if layer >= first.get(name, 1):
                    rows.append(self._row(name, layer, *mean))
        if self.language_model:
            for layer, (value, stderr, n) in enumerate(means["cross_entropy"], start=1):
                perplexity = math.exp(min(value, 700.0)) if math.isfinite(value) else math.nan
                rows.append(self._row("perplexity", layer, perplexity, perplexity * stderr, n))
        accuracies = torch.tensor(
            [mean[0] for mean in means["layer_accuracy"]], dtype=torch.float64
        )
        return [*rows, *self._cosines(), *self._depths(accuracies), *self._by_class()]

    def _depths(self, accuracies: Tensor) -> Iterator[Row]:
        if not bool(torch.isfinite(accuracies).all()):
            return
        for name, relative_to in (("last", "last"), ("all", None)):
            reached = effective_depth(accuracies, EPSILON, relative_to)
            variant = {"variant": depth_variant(name)}
            yield self._row("effective_depth", self.depth, float(reached)) | variant

    def _by_class(self) -> Iterator[Row]:
        for layer, counts in enumerate(self.hits, start=1):
            if isinstance(counts, Tensor):
                yield self._row("f1", layer, float(f1_of(counts)), n=int(counts[2].sum()))
        for layer, (sums, head) in enumerate(zip(self.classes, self.heads, strict=False), start=1):
            collapse = sums.collapse(
                head.weight.detach() if isinstance(head, torch.nn.Linear) else None
            )
            for name, value in vars(collapse).items() if collapse is not None else ():
                if value is not None:
                    yield self._row(name, layer, float(value), n=int(sums.counts.sum()))

    def _cosines(self) -> Iterator[Row]:
        rows = torch.empty(0) if self.some is None else self.some.rows
        if not len(rows):
            return
        skipped = self.total - int(self.sums[MEANS.index("saturation_layer"), 0, -1])
        for layer, column in enumerate(cosine_to(rows).mT, start=1):
            cosines = column[torch.isfinite(column)]
            n = len(cosines)
            error = float(cosines.std()) / n**0.5 if n > 1 else math.nan
            about = {"layer_b": self.depth, "site_b": SITE, "n_skipped": skipped}
            yield self._row("cosine_similarity", layer, float(cosines.mean()), error, n) | about

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
        values = values.cpu().double()  # some devices have no float64
        count = torch.tensor(float(len(values)))
        new = torch.stack((count, values.sum(), values.square().sum()))
        self.sums[MEANS.index(name), :, index] += new

    def _row(
        self, name: str, layer: int, value: float, stderr: float = math.nan, n: int | None = None
    ) -> Row:
        used = self.total if n is None else n
        where = {"metric": name, "variant": None, "pooling": None, "layer": layer, "site": SITE}
        return {
            **where,
            "value": value,
            "stderr": stderr,
            "n": used,
            "n_skipped": self.total - used,
        }


def score_options(model: LayeredModel, exit_loss: ExitLoss) -> tuple[dict[str, Any], str | None]:
    """Return the options of `LayerScores` for a model with a head, and why neural collapse is left out where it is."""
    head, depth = exit_loss.every.head, model.stack.depth
    classes = 0 if model.lens is None else model.lens.classes
    width = classes if head is None else head.in_features
    config: Any = getattr(model.module, "config", None)
    text = config.get_text_config() if hasattr(config, "get_text_config") else config
    language_model = exit_loss.shift or getattr(text, "vocab_size", None) == classes
    left_out = no_collapse(depth, classes, width, language_model)
    collapse = None if left_out else (classes, width)
    return dict(
        depth=depth, shift=exit_loss.shift, language_model=language_model, collapse=collapse
    ), left_out


def once(labels: Tensor, accelerator: Any) -> Tensor:
    """Return labels without those that only fill up the last batch of several processes: they were scored before.

    As in `Accelerator.gather_for_metrics`, the last batch has `remainder` samples over all
    processes in their order.
    """
    state = accelerator.gradient_state
    if accelerator.num_processes == 1 or not state.end_of_dataloader or state.remainder <= 0:
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
    heads, scores.heads = scores.heads, ()
    whole: LayerScores
    whole, *others = gather_object([scores])
    for other in others:
        whole.merge(other)
    whole.heads = heads
    return whole


def logged(rows: Sequence[Row], language_model: bool) -> dict[str, float]:
    """Return what a training log says of scores: flat names, those of single layers `NAME_layer_K`."""
    values = {}
    for row in rows:
        variant = (row["variant"] or "").removesuffix(ON_TRAIN)
        values[row["metric"], variant, row["layer"]] = row["value"]
    depth = max((layer for _, _, layer in values), default=0)
    score, metric = "accuracy", "layer_accuracy"
    if language_model:
        score = metric = "perplexity"
    by_layer = {score: metric, "cosine": "cosine_similarity", "agreement": "agreement"}
    names = {score: (metric, "", depth)}
    names |= {name: (name, "", depth) for name in ("saturation_layer", "nc1", "f1")}
    names["effective_depth"] = "effective_depth", depth_variant("last"), depth
    for name, metric in by_layer.items():
        for layer in range(1, depth + 1):
            names[f"{name}_layer_{layer}"] = metric, "", layer
    return {name: values[key] for name, key in names.items() if key in values}


def no_collapse(depth: int, classes: int, width: int, language_model: bool) -> str | None:
    """Return why neural collapse of such a model is not computed, None where it is."""
    size = 8 * (depth * width * (width + 2 * classes) + 3 * classes**2)
    if language_model:
        return "NC1 to NC3 are left out: a language model's classes are its tokens"
    if size > MOST_BYTES:
        most = f"at most {MOST_BYTES >> 20:,} are allowed"
        return f"NC1 to NC3 are left out: their sums take {size / 2**20:,.0f} MiB, and {most}"
    return None


def with_depths_of(learnt: Sequence[Row], rows: Sequence[Row]) -> list[Row]:
    """Return rows with effective depths by the accuracy on training data."""
    others = [row for row in rows if row["metric"] != "effective_depth"]
    depths = [row for row in learnt if row["metric"] == "effective_depth"]
    return [*others, *(row | {"variant": row["variant"] + ON_TRAIN} for row in depths)]


def depth_variant(relative_to: str) -> str:
    """Name an effective depth: as accurate as the last layer, or on all samples (definition 3.1)."""
    return f"relative_to={relative_to},epsilon={EPSILON:g}"


def _judged(rows: Tensor, head: Head, truth: Tensor) -> tuple[Tensor, Tensor, int]:
    """Return top prediction and negative log-likelihood of each row, logits in chunks, and the number of classes."""
    tops, losses = [], []
    size, start = 1, 0
    while start < len(rows):
        part, labels = rows[start : start + size], truth[start : start + size, None]
        logits = wide(head(part))
        if start == 0:
            check_classes(truth, logits.shape[-1])
        tops.append(logits.argmax(-1))
        losses.append((logits.logsumexp(-1, keepdim=True) - logits.gather(1, labels))[:, 0])
        start += size
        size = max(1, CHUNK // logits.shape[-1])  # the first row shows the number of classes
    return torch.cat(tops), torch.cat(losses), logits.shape[-1]
