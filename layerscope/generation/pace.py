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
    """Seconds of the parts of a round: those timed of late, or else h + b · blocks + w · head + c · work · (n − 1).

    A part is "early" (one token through the first blocks and the head), "bare" (the same without the head) or "late"
    (n tokens through the blocks that follow, and all that ends a round); plain decoding is "late" with all blocks.
    `head` is the work of the head, in blocks.
    """

    head: float = 1.0
    seen: dict[tuple[str, int, float], deque[float]] = field(
        default_factory=lambda: defaultdict(lambda: deque(maxlen=RECENT))
    )
    fit: np.ndarray | None = None

    def add(self, part: str, blocks: int, tokens: int, seconds: float) -> None:
        """Add a timing."""
        self.seen[part, blocks, tokens].append(seconds)
        self.fit = None

    def __call__(self, part: str, blocks: int, tokens: float = 1) -> float:
        """Return the seconds of a part of a round, as measured or else as fitted to the medians of all timings."""
        if len(own := self.seen.get((part, blocks, tokens), ())) > 2:
            return float(np.median(own))
        if self.fit is None:
            from scipy.optimize import nnls

            rows, times = [self._features(*key) for key in self.seen], [np.median(own) for own in self.seen.values()]
            self.fit = nnls(np.array(rows), np.array(times))[0]
        return float(self._features(part, blocks, tokens) @ self.fit)

    def _features(self, part: str, blocks: int, tokens: float) -> np.ndarray:
        head = float(part != "bare")
        return np.array([1.0, blocks, head, (blocks + self.head * head) * (tokens - 1)])


class Pace:
    """Chooses the layer that drafts and how many tokens are verified at once, 1 for plain decoding.

    A fixed `layer` or number of `tokens` is kept to; `always` forbids to fall back to plain decoding. `hits` holds by
    layer how many draft tokens were accepted and how many were seen, `steps` how many times drafting went on after a
    step and how many times it could.
    """

    def __init__(self, depth: int, layer: int | None, tokens: int | None, *, always: bool, head: float = 1.0) -> None:
        self.depth, self.tokens, self.always = depth, tokens, always
        layers = np.unique(np.linspace(1, depth - 1, min(8, depth - 1)).round().astype(int)).tolist()
        self.layers: list[int] = layers if layer is None else [layer]
        self.hits = {each: [0.5 * PRIOR, PRIOR] for each in self.layers}
        self.steps = {each: [PRIOR, PRIOR] for each in self.layers}
        self.costs, self.plain = Costs(head), 0

    def observe(self, layer: int, accepted: Iterable[bool], sure: Iterable[bool] = ()) -> None:
        """Count draft tokens of a layer that the model agreed with, and steps after which it was sure enough."""
        for tally, found in ((self.hits[layer], [*accepted]), (self.steps[layer], [*sure])):
            tally[:] = tally[0] + sum(found), tally[1] + len(found)

    def fade(self, tokens: float) -> None:
        """Let all that was observed count less, as the texts have grown by some tokens."""
        for tally in (*self.hits.values(), *self.steps.values()):
            left = max(FADE**tokens, min(1.0, PRIOR / tally[1]))
            tally[:] = tally[0] * left, tally[1] * left

    def acceptance(self, layer: int) -> float:
        """Return the share of a layer's draft tokens that are accepted."""
        return min(self.hits[layer][0] / self.hits[layer][1], 0.999)

    def speedup(self, layer: int, tokens: int) -> float:
        """Return the expected speed of rounds of `tokens` at most, over that of plain decoding."""
        sure = self.steps[layer][0] / self.steps[layer][1]
        whole = sure ** (tokens - 1)  # the chance that drafting is not stopped
        steps, gained = _geometric(sure, tokens), _geometric(sure * self.acceptance(layer), tokens)
        early = (steps - whole) * self.costs("early", layer) + whole * self.costs("bare", layer)
        return gained * self.costs("late", self.depth) / (early + self.costs("late", self.depth - layer, steps))

    def best(self) -> tuple[int, int, float]:
        """Return the best layer and number of tokens, and how much faster than plain decoding they are expected."""
        numbers: Sequence[int] = range(2, MOST + 1) if self.tokens is None else [self.tokens + 1]
        return max(((k, n, self.speedup(k, n)) for k in self.layers for n in numbers), key=lambda found: found[2])

    def next(self) -> tuple[int, int]:
        """Return the layer and the number of tokens of the next round."""
        if self.always and len(self.layers) == 1 and self.tokens is not None:
            return self.layers[0], self.tokens + 1
        if len(self.costs.seen) < 2:  # plain steps are timed first, then one round
            timed = len(self.costs.seen.get(("late", self.depth, 1), ()))
            first = max(self.layers, key=lambda k: self.acceptance(k) - k / self.depth)
            return first, 1 if timed < 3 and not self.always else (self.tokens or 3) + 1
        layer, tokens, speedup = self.best()
        if speedup > 1 or self.always:
            self.plain = 0
            return layer, tokens
        self.plain += 1
        return layer, (self.tokens or 1) + 1 if self.plain % RECENT == 0 else 1


def _geometric(rate: float, terms: int) -> float:
    """Return 1 + rate + … + rate^(terms − 1)."""
    return float(terms) if rate == 1 else (1 - rate**terms) / (1 - rate)
