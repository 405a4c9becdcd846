"""Rows of models that are not there: drawn, or alike, for calibrations."""

import math
from fractions import Fraction

import numpy as np
import torch

from layerscope.early_exit.options import Goal
from layerscope.early_exit.predictions import Recorded, sureness

ONE_PERCENT = Goal(max_disagreement=0.01)


def recorded(scores, predictions, labels=None, classes=2):
    return Recorded(
        classes,
        np.asarray(scores, dtype=np.float64),
        np.asarray(predictions, dtype=np.int64),
        None if labels is None else np.asarray(labels),
    )


def exact_tail(errors, n, risk):
    """P(Bin(n, risk) <= errors), summed without any rounding."""
    bad, of = Fraction(risk).as_integer_ratio()
    counts = range(errors + 1)
    ways = sum(math.comb(n, k) * bad**k * (of - bad) ** (n - k) for k in counts)
    return Fraction(ways, of**n)


def population(n, seed):
    """Rows of a model with five layers and three classes that sees its input through less and less noise."""
    draw = np.random.default_rng(seed)
    labels = draw.integers(3, size=n)
    seen = 6 * np.eye(3)[labels][:, None] + 1.5 * draw.normal(size=(n, 1, 3))
    logits = seen * np.linspace(0.4, 1, 5)[:, None] + np.linspace(1.6, 0, 5)[
        :, None
    ] * draw.normal(size=(n, 5, 3))
    scores = sureness(torch.from_numpy(logits)).numpy()
    return recorded(scores, logits.argmax(-1), labels, 3)


def constant(n, errors, score=0.9):
    """Rows that all leave at layer 1 at once; so many of them wrongly, by the full model and by the labels."""
    predictions = np.zeros((n, 2), dtype=np.int64)
    predictions[:errors, 0] = 1
    return recorded(np.full((n, 2), score), predictions, np.zeros(n))
