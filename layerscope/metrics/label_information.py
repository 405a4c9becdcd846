from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from layerscope.core.errors import LayerscopeError
from layerscope.metrics.arrays import Array, Estimate, as_finite64
from layerscope.metrics.matrix_entropy import scaled_rows
from layerscope.metrics.metric import How, Metric, Needs
from layerscope.metrics.readings import ByLayer, FromReadings, Readings
from layerscope.metrics.spectrum import eigenvalues, entropy_of_spectrum, small_gram

OFTEN = 10
"""Next tokens that are seen less often than this are left out: a class of one says nothing."""


@dataclass(frozen=True)
class FromClasses(How):
    """A metric of pooled states and their labels."""

    needs: ClassVar[Needs] = "labels"
    compute: Callable[[Tensor, Any, int], Estimate]
    """Takes states `[N, D]`, labels `[N]` and a seed."""


class Information(NamedTuple):
    """What states and labels share, in nats: as estimated, and with labels drawn at random, as mean and deviation.

    >>> from layerscope.metrics import label_information
    >>> label_information(np.eye(4)[[0, 0, 1, 1]], [0, 0, 1, 1], draws=2)._fields
    ('value', 'chance', 'spread')
    """

    value: float
    chance: float
    spread: float


def label_information(
    states: Array,
    labels: Array,
    alpha: float = 1.0,
    rows: str = "unit",
    draws: int = 8,
    seed: int = 0,
) -> Information:
    """Return the matrix-based mutual information of states `[N, D]` and labels `[N]`, S(A) + S(B) − S(A ∘ B).

    A is the Gram of the states' rows (see `matrix_entropy`), B that of the labels, 1 where two are
    equal, each over its trace; A ∘ B is then block-diagonal, with a block for each label. The
    estimate is biased upwards where samples are few, so it is taken again with the labels in
    `draws` random orders: what exceeds that `chance` is information. What all states share hides
    the rest: far from the origin, all rows are nearly one (rows="centered" takes it away, and with
    it what tells two opposite labels apart). The value lies in 0 … min(S(A), S(B)) nats for alpha
    1.

    Raises `LayerscopeError` for fewer than two labels, and for missing ones.

    Source: Giraldo, Rao and Principe 2014, Measures of entropy from data using infinitely divisible
    kernels.

    >>> found = label_information(np.eye(4)[[0, 0, 1, 1]], [0, 0, 1, 1])
    >>> round(found.value, 4), found.chance < found.value  # ln 2: the states tell the two labels apart
    (0.6931, True)
    """
    matrix = scaled_rows(as_finite64(states, "states"), rows)
    if pd.isna(np.asarray(labels, dtype=object)).any():
        raise LayerscopeError("some labels are missing: leave these samples out")
    classes = np.unique(np.asarray(labels), return_inverse=True)[1]
    if matrix.ndim != 2 or classes.shape != matrix.shape[:1]:
        shapes = f"states {tuple(matrix.shape)} and labels {classes.shape}"
        raise LayerscopeError(f"{shapes}: give states [N, D] and a label for each")
    if draws < 2:
        raise LayerscopeError(f"draws is {draws}: give at least 2")
    sizes = np.bincount(classes)
    if len(sizes) < 2:
        raise LayerscopeError("all samples have one label: information about it needs two or more")
    shares = torch.from_numpy(sizes.astype(float))
    alone = entropy_of_spectrum(eigenvalues([small_gram(matrix)])[0], alpha) + entropy_of_spectrum(
        shares, alpha
    )
    rng = np.random.default_rng(seed)
    orders = (classes, *(rng.permutation(classes) for _ in range(draws)))
    value, *chances = (float(alone - _joint(matrix, order, alpha)) for order in orders)
    return Information(value, float(np.mean(chances)), float(np.std(chances, ddof=1)))


def _joint(matrix: Tensor, classes: np.ndarray, alpha: float) -> Tensor:
    """Return S(A ∘ B): its eigenvalues are those of each label's own Gram."""
    order = np.argsort(classes, kind="stable")
    parts = torch.split(matrix[torch.from_numpy(order)], np.bincount(classes).tolist())
    return entropy_of_spectrum(torch.cat(eigenvalues([small_gram(part) for part in parts])), alpha)


def _above_chance(states: Array, labels: Array, seed: int = 0) -> Estimate:
    information = label_information(states, labels, seed=seed)
    return Estimate(
        information.value - information.chance, information.spread, len(np.asarray(labels))
    )


def _about_next(readings: Readings) -> ByLayer:
    """Yield the information that token states hold about the next token, among tokens that occur often enough."""
    if readings.states is None or readings.following is None:
        return
    tokens = readings.following.numpy()
    kept = np.bincount(tokens)[tokens] >= OFTEN
    if len(np.unique(tokens[kept])) > 1:
        for layer, states in enumerate(readings.states):
            yield layer, _above_chance(states[torch.from_numpy(kept)], tokens[kept])


LABEL_INFORMATION = Metric(
    label_information,
    FromClasses(_above_chance),
    unit="nats",
    reading="nats above labels at random",
    formula="S(A) + S(B) − S(A ∘ B) less its mean over labels in 8 random orders; A the Gram of the pooled states at "
    "unit length, B that of the labels, each over its trace",
    meaning="Matrix-based mutual information of a layer's pooled states and your labels, beyond what labels in random "
    "order have; its error is their spread. At most the entropy of the labels.",
    direction="High: samples of a label point the same way, and those of others elsewhere. Where it peaks before the "
    "last layer, later ones trade it for something else.",
)
NEXT_TOKEN_INFORMATION = Metric(
    label_information,
    FromReadings(_about_next, language_model=True, states=True),
    name="next_token_information",
    unit="nats",
    reading="nats above next tokens at random",
    formula="S(A) + S(B) − S(A ∘ B) less its mean over next tokens in 8 random orders; A the Gram of token states at "
    "unit length, B 1 where two next tokens are equal, each over its trace",
    meaning="Matrix-based mutual information of a layer's states at up to 4,096 token positions and the tokens that "
    f"follow them, of those that follow {OFTEN} positions or more, beyond what next tokens in random order have; its "
    "error is their spread.",
    direction="High: positions before one token point the same way. A ridge before the last layer is a hypothesis of "
    "where general knowledge peaks; where it falls from layer 0 on, the token that is read tells most of the next.",
    source="Chang, Deng and Chen 2025, The Generalization Ridge; Giraldo, Rao and Principe 2014",
)
