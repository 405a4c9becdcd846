"""The theorems of Layer by Layer on effective rank and on InfoNCE, where both of their sides are known.

Theorem 1 compares two ranks of one spectrum: of singular values σ, and of their squares, which are
the eigenvalues of the Gram matrix. Squares are the more unequal, and so have the lower entropy:

    σ          shares of σ     exp of their entropy     shares of σ²     exp of their entropy
    2, 1       2/3, 1/3        1.89                     4/5, 1/5         1.65

Theorem 3 needs a mutual information that is known: symbols that both views show without loss.
"""

import math

import numpy as np
import numpy.typing as npt

from layerscope import metrics
from layerscope_papers import drawing
from layerscope_papers.assets import Assets
from layerscope_papers.intervals import exact, mean
from layerscope_papers.recipe import ANYWHERE, Evidence, Number, recipe

TRIALS = 200
N, BATCHES, WIDTH, NARROW = 256, 40, 64, 16
SYMBOLS = (2, 4, 8, 16, 32, 64)


@recipe("L-thm1", scales=ANYWHERE)
def effective_rank(assets: Assets) -> Evidence:
    """Compare both for matrices of many shapes and spectra.

    A theorem is false where one matrix contradicts it, and this one is judged at the matrix that
    contradicts it most: as printed (an upper bound of the effective rank) and in reverse (a lower
    one). Spectra fall as powers from 0, where all directions are alike, to 2.
    """
    draws = np.random.default_rng(0)
    ratios = []
    for _ in range(TRIALS):
        rows, columns = draws.integers(2, 40, size=2)
        ranks = np.arange(1, columns + 1)
        spectrum = ranks ** -draws.uniform(0, 2)
        states = draws.normal(size=(rows, columns)) * spectrum
        ratios.append(_rank(states) - _entropy(states))
    title = "log(effective rank) − S1, mean over matrices"
    return Evidence(
        {"printed": exact(max(ratios)), "reverse": exact(min(ratios))},
        [Number(title, float(np.mean(ratios)))],
        notes=[
            "Effective rank is exp of the entropy of the singular values; S₁ is the entropy of their squares."
        ],
    )


def _rank(states: np.ndarray) -> float:
    return math.log(float(metrics.effective_rank(states)))


def _entropy(states: np.ndarray) -> float:
    return float(metrics.matrix_entropy(states, rows="raw"))


@recipe("L-thm3", scales=ANYWHERE)
def shared_information(assets: Assets) -> Evidence:
    """Draw symbols whose information is known; take the bound over batches of their states, and the states' entropy.

    - bound: log N − InfoNCE less the information, for the number of symbols where it comes closest;
    - entropy: the information less the matrix-based entropy of states, at most. States are axes, one
      for each symbol, or random directions, which are not at right angles.
    """
    draws = np.random.default_rng(0)
    gaps = []
    beyond = []
    bounds_by_count = {}
    for count in SYMBOLS:
        batches = [draws.integers(count, size=N) for _ in range(BATCHES)]
        bounds = np.array([bound(symbols) for symbols in batches])
        gaps.append(bounds - math.log(count))
        bounds_by_count[f"{count} symbols"] = mean(list(bounds))
        directions = draws.normal(size=(count, NARROW))
        for states in (np.eye(WIDTH), directions):
            beyond += [
                information(symbols) - _entropy(states[symbols]) for symbols in batches
            ]
    most = max(gaps, key=lambda gap: float(gap.mean()))
    plot = drawing.bars("log N − InfoNCE", "nats", bounds_by_count)
    return Evidence(
        {"bound": mean(list(most)), "entropy": exact(max(beyond))},
        [
            Number.of(f"log N − InfoNCE, {name}", bound)
            for name, bound in bounds_by_count.items()
        ],
        [plot],
        [
            "The bound holds for Shannon's entropy; S₁ is as large only where different symbols have orthogonal states."
        ],
    )


def information(symbols: npt.NDArray[np.int64]) -> float:
    """Return the entropy of symbols in nats, which is what a representation that tells them apart shares with them."""
    shares = np.bincount(symbols) / len(symbols)
    shares = shares[shares > 0]
    return float(-(shares * np.log(shares)).sum())


def bound(symbols: npt.NDArray[np.int64]) -> float:
    """Return log N − InfoNCE of views that both are their sample's symbol: I(X; Z) = H(Z) = log of their number.

    The views agree without loss, so that nothing but the bound itself keeps it below.
    """
    states = np.eye(WIDTH)[symbols]
    return float(metrics.infonce_bound(states, states))
