"""Mixes of layers: what several layers know together. All that is learned is learned inside the folds that judge it."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from layerscope.core.errors import LayerscopeError
from layerscope.core.margin import error_of
from layerscope.metrics.arrays import unit_rows
from layerscope.probes.linear import linear_probe, linearly_judged, thinned
from layerscope.probes.scores import (
    Bools,
    ProbeScore,
    score_of,
    stratified,
    usable_classes,
)

FOLDS = 5
LAST = (2, 4)
"""How many last layers each mean is taken over."""
ONE_LAYER, SCALAR = "one layer", "scalar mix"
SAMPLES = 512
"""At most about this many samples learn the weights, which are few numbers."""
STRENGTH, SCALE = 0.1, 6.0
"""Where learning begins: the ridge classifier's strength, and what its predictions are multiplied with to be logits."""
STEPS, RATE = 50, 0.2
Weights = dict[int, float]
Read = Callable[[Weights, bool], tuple[Any, ...]]
"""Returns the states `[N, D]` of a mix, and their labels.

False for states before whatever a model has after its pooling, True for what a truncated model
yields."""


@dataclass(frozen=True)
class MixScore:
    """The score of a mix, and its `gain` over the best single layer with the standard error, paired over samples.

    Both the mix and the layer are chosen in the folds that do not judge them. `weights` are those
    learned on all samples, by layer, that a model may be made with.
    """

    score: ProbeScore
    gain: float
    gain_error: float
    weights: Weights


def fixed_mixes(layers: Sequence[int], depth: int) -> dict[str, Weights]:
    """Return the mixes of equal weights whose layers are all there: of the last ones, of the first and the last."""
    layers_of = {f"last {k}": (*range(depth - k + 1, depth + 1),) for k in LAST}
    layers_of["first+last"] = 1, depth
    mixes: dict[str, Weights] = {}
    for name, of in layers_of.items():
        weights = dict.fromkeys(of, 1 / len(of))
        there = 0 < of[0] < depth and {*of} <= {*layers}
        if there and weights not in mixes.values():
            mixes[name] = weights
    return mixes


def mix_names(layers: Sequence[int], depth: int) -> list[str]:
    """Return the names of the mixes of these layers, those that are learned first and last."""
    return [ONE_LAYER, *fixed_mixes(layers, depth), SCALAR]


def as_text(weights: Weights) -> str:
    """Return weights as `truncate` takes them: of 3 and 6 `3=0.4,6=0.6`, of equal ones `3,6`."""
    if len(set(weights.values())) == 1:
        return ",".join(map(str, weights))
    return ",".join(f"{layer}={weight:.6g}" for layer, weight in weights.items())


def linear_mixes(
    read: Read,
    layers: Sequence[int],
    depth: int,
    scored: Mapping[int, ProbeScore],
    seed: int = 0,
    share: Callable[..., Iterator[Any]] = map,
) -> Iterator[tuple[str, MixScore]]:
    """Yield mixes by name, each judged by the classifier of `linear_probe`.

    They are the fixed ones and `scalar mix`, softmax weights of all layers. `one layer` is their
    rival, the layer whose probe has the lowest log-loss over the other folds. The weights are those
    of the lowest leave-one-out log-loss of a ridge classifier on at most 512 samples of the other
    folds, states of every layer scaled to equal size first. Layer 0 may be in a mix and is no
    single layer to choose. `scored` are scores of layers that were judged before; `share` maps as
    `map` does, in several processes. Raises `LayerscopeError` for layers of unlike width.

    Source: Peters et al. 2018, Deep contextualized word representations, for the scalar mix (a
    probe of unit rows does
    not see its scale); Bertinetto et al. 2019, Meta-learning with differentiable closed-form
    solvers, for the ridge.

    >>> from layerscope.probes.mixes import linear_mixes
    >>> bits, ones = np.random.default_rng(0).integers(0, 2, (2, 200)), np.ones(200)
    >>> layers = {1: np.stack([bits[0], 0 * ones, ones], 1), 2: np.stack([0 * ones, bits[1], ones], 1)}
    >>> read = lambda weights, finished: (sum(w * layers[i] for i, w in weights.items()), 2 * bits[0] + bits[1])
    >>> dict(linear_mixes(read, [1, 2], 2, {}))["scalar mix"].score.mean  # each layer knows one of two bits
    1.0
    """
    data = _Data(read, layers, seed)
    alone = {}
    for layer in sorted({*layers} - {0}):
        score = scored.get(layer)
        if score is None or not score.losses:
            score = data.probe({layer: 1.0})
        alone[layer] = score
    losses = np.array([score.losses for score in alone.values()])
    rights = np.array([score.right for score in alone.values()])
    chosen = losses.argmin(0)[data.fold]
    rival = rights[chosen, np.arange(len(data.fold))]

    mixes = fixed_mixes(layers, depth)

    def judged(name: str) -> MixScore:
        if name == ONE_LAYER:
            best = list(alone)[int(losses.mean(1).argmin())]
            return MixScore(data.score(rival), math.nan, math.nan, {best: 1.0})
        if name == SCALAR:
            right = np.zeros(len(data.fold), dtype=bool)
            for number in range(FOLDS):
                states = data.mixed(data.learned(data.fold != number))
                rows = unit_rows(states.double()).numpy()
                hits, *_ = linearly_judged(
                    rows, data.classes, data.fold, seed, only=(number,)
                )
                right |= hits
            score = data.score(right)
            weights = data.learned(data.fold >= 0)
        else:
            weights = mixes[name]
            score = data.probe(weights)
        apart = np.asarray(score.right, dtype=np.float64) - rival
        return MixScore(score, float(apart.mean()), error_of(apart), weights)

    names = mix_names(layers, depth)
    yield from zip(names, share(judged, names), strict=True)


class _Data:
    """The items that are judged, and of few of them the states of every layer.

    `sample` is `[layers, few, D]`.
    """

    def __init__(self, read: Read, layers: Sequence[int], seed: int) -> None:
        self.read = read
        self.layers = tuple(layers)
        self.seed = seed
        _, labels = read({self.layers[0]: 1.0}, False)
        self.kept, self.classes, self.skipped = usable_classes(
            labels, len(labels), FOLDS, least=3
        )
        self.fold = stratified(self.classes, FOLDS, seed)
        self.few = thinned(self.classes, self.fold, seed, SAMPLES)
        sample = list[Tensor]()
        for layer in self.layers:
            rows = self.mixed({layer: 1.0}, finished=False).float()
            if sample and rows.shape[1] != sample[0].shape[1]:
                raise LayerscopeError(
                    f"layer {layer} has the width {rows.shape[1]} and layer {self.layers[0]} {sample[0].shape[1]}: mix "
                    "layers of one width"
                )
            sample.append(rows[self.few])
        self.sample = torch.stack(sample)

    def mixed(self, weights: Weights, finished: bool = True) -> Tensor:
        """Return the states of a mix `[n, D]`."""
        states = torch.as_tensor(self.read(weights, finished)[0])
        return states[torch.from_numpy(self.kept)]

    def probe(self, weights: Weights) -> ProbeScore:
        """Return the score of a mix that nothing is learned for, as of a layer."""
        states, labels = self.read(weights, True)
        return linear_probe(states, labels, folds=FOLDS, seed=self.seed)

    def score(self, right: Bools) -> ProbeScore:
        """Return the score of items, each `right` or not in its fold."""
        return score_of(right, self.fold, self.skipped)

    def learned(self, train: Bools) -> Weights:
        """Return the weights of layers, of sum 1, by the items marked in `train` `[n]`."""
        inside = train[self.few]
        states = self.sample[:, torch.from_numpy(inside)]
        classes = torch.from_numpy(self.classes[self.few][inside])
        size = states.square().sum(2).mean(1).sqrt()
        divisor = size.clamp_min(1e-30)
        targets = nn.functional.one_hot(classes).float()
        mixed = _scalar(states / divisor[:, None, None], targets)
        weights = torch.where(size > 0, mixed / divisor, 0).double()
        shares = (weights / weights.sum()).tolist()
        pairs = zip(self.layers, shares, strict=True)
        return {layer: weight for layer, weight in pairs if weight}


def _left_out(states: Tensor, targets: Tensor, strength: Tensor | float) -> Tensor:
    """Return what a ridge classifier of states `[n, D]`, read as the linear probe reads them, predicts `[n, C]`.

    Each sample is predicted by all others; `targets` `[n, C]` are 1 at its class.
    """
    rows = nn.functional.normalize(states, dim=1)
    rows = rows - rows.mean(0)
    rows = rows / rows.std(0).clamp_min(1e-5)
    n = len(rows)
    gram = rows @ rows.T / rows.shape[1]
    inverse = torch.linalg.inv(gram + strength * torch.eye(n))
    left = inverse.diagonal() - 1 / (n * strength)
    centred = targets - targets.mean(0)
    missed: Tensor = inverse @ centred / left[:, None]
    return targets - missed


def _scalar(states: Tensor, targets: Tensor) -> Tensor:
    """Return softmax weights of all layers `[layers]`, learned with the ridge's strength and its scale."""
    logits = torch.zeros(len(states), requires_grad=True)
    ridge = torch.tensor([STRENGTH, SCALE]).log().requires_grad_()
    optimiser = torch.optim.Adam([logits, ridge], lr=RATE)
    for _ in range(STEPS):
        optimiser.zero_grad()
        strength, scale = ridge.exp()
        mixed = torch.tensordot(logits.softmax(0), states, 1)
        predicted = _left_out(mixed, targets, strength)
        loss = nn.functional.cross_entropy(scale * predicted, targets)
        torch.autograd.backward(loss)
        optimiser.step()
    return logits.detach().softmax(0)
