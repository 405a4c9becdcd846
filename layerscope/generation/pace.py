"""How far to draft, and at which layer: acceptance and cost as they are measured while a text is generated."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

MOST = 12
"""Most tokens that are verified at once."""
RECENT = 32
"""Timings of a kind, and rounds of plain decoding before another try."""
FADE = 0.98
"""What an observed draft token counts after each later one."""
PRIOR = 4.0
"""Weight in tokens of what was known before the first draft."""


@dataclass
class Costs:
    """Seconds of a forward as h + b · blocks + (g + c · blocks)(n − 1) for n tokens, fitted to medians of timings."""

    seen: dict[tuple[int, int], deque[float]] = field(default_factory=lambda: defaultdict(lambda: deque(maxlen=RECENT)))
    fit: np.ndarray | None = None

    def add(self, blocks: int, tokens: int, seconds: float) -> None:
        """Add a timing."""
        self.seen[blocks, tokens].append(seconds)
        self.fit = None

    def __call__(self, blocks: int, tokens: int) -> float:
        """Return the seconds of a forward, as measured or else as fitted."""
        if len(own := self.seen.get((blocks, tokens), ())) > 2:
            return float(np.median(own))
        if self.fit is None:
            from scipy.optimize import nnls

            keys = np.array([*self.seen], dtype=float)
            self.fit = nnls(
                _features(keys[:, 0], keys[:, 1]), np.array([np.median(own) for own in self.seen.values()])
            )[0]
        return float(_features(np.array([blocks]), np.array([tokens]))[0] @ self.fit)


def _features(blocks: np.ndarray, tokens: np.ndarray) -> np.ndarray:
    more = tokens - 1.0
    return np.stack([np.ones_like(more), blocks, more, blocks * more], 1)


class Pace:
    """Chooses the layer that drafts and how many tokens are verified at once, 1 for plain decoding.

    A fixed `layer` or number of `tokens` is kept to; `always` forbids to fall back to plain decoding.
    """

    def __init__(self, depth: int, layer: int | None, tokens: int | None, *, always: bool) -> None:
        self.depth, self.tokens, self.always = depth, tokens, always
        layers = np.unique(np.linspace(1, depth - 1, min(8, depth - 1)).round().astype(int)).tolist()
        self.layers: list[int] = layers if layer is None else [layer]
        self.hits = {each: [0.5 * PRIOR, PRIOR] for each in self.layers}
        self.costs, self.plain = Costs(), 0

    def observe(self, layer: int, accepted: Iterable[bool]) -> None:
        """Count draft tokens of a layer that the model agreed with, in order."""
        tally = self.hits[layer]
        for good in accepted:
            tally[:] = tally[0] * FADE + good, tally[1] * FADE + 1

    def acceptance(self, layer: int) -> float:
        """Return the share of a layer's draft tokens that are accepted."""
        return min(self.hits[layer][0] / self.hits[layer][1], 0.999)

    def speedup(self, layer: int, tokens: int) -> float:
        """Return the expected speed of rounds of `tokens`, over that of plain decoding."""
        rate = self.acceptance(layer)
        gained = (1 - rate**tokens) / (1 - rate)
        spent = tokens * self.costs(layer, 1) + self.costs(self.depth - layer, tokens)
        return gained * self.costs(self.depth, 1) / spent

    def best(self) -> tuple[int, int, float]:
        """Return the best layer and number of tokens, and how much faster than plain decoding they are expected."""
        numbers: Sequence[int] = range(2, MOST + 1) if self.tokens is None else [self.tokens + 1]
        return max(((k, n, self.speedup(k, n)) for k in self.layers for n in numbers), key=lambda found: found[2])

    def next(self) -> tuple[int, int]:
        """Return the layer and the number of tokens of the next round."""
        if self.always and len(self.layers) == 1 and self.tokens is not None:
            return self.layers[0], self.tokens + 1
        if len(self.costs.seen) < 2:  # plain steps are timed first, then one round
            timed = len(self.costs.seen.get((self.depth, 1), ()))
            first = max(self.layers, key=lambda k: self.acceptance(k) - k / self.depth)
            return first, 1 if timed < 3 and not self.always else (self.tokens or 3) + 1
        layer, tokens, speedup = self.best()
        if speedup > 1 or self.always:
            self.plain = 0
            return layer, tokens
        self.plain += 1
        return layer, (self.tokens or 1) + 1 if self.plain % RECENT == 0 else 1
