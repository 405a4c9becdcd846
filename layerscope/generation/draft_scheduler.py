"""How far to draft, and at which layer: acceptance and cost as they are measured while a text is generated."""

import math
import time
from collections import defaultdict, deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import median

import numpy as np

MOST = 12
"""Most tokens that are verified at once."""
RECENT = 32
"""Timings of a kind, and steps of plain decoding before another try, or rounds before plain decoding is timed again."""
AGAIN = 8
"""Steps of plain decoding after which it is asked again whether drafts would pay; asking takes half a millisecond."""
PATIENCE = 4
"""How many times as long the wait for another try may become, where one after the other does not pay."""
FADE = 0.98
"""What an observed draft token counts after each later one."""
PRIOR = 4.0
"""Weight in tokens of what was known before the first draft."""
STAY = 1.03
"""How much faster another layer must promise to be."""
COMPARED = 3
"""Layers that are compared at once with the whole model, those that least is known of."""
SURVEY_SHARE = 0.015
"""Share of the time of a text that comparing layers may take."""
PRICE = 0.03
"""Share of the time of plain decoding that may be lost to comparing layers and to drafts that do not pay.

The first round costs up to one token of plain decoding, and is made also where a short text does
not have that much to lose.
"""
PROGRESS = np.dtype([("left", float), ("accepted", float), ("seen", float)])
"""Of a text: the tokens left to write, and its own draft tokens, those accepted and those seen."""


@dataclass
class RoundCosts:
    """Seconds of the parts of a round: those timed of late, or else h + b · blocks + w · head + c · work · (n − 1).

    A round of `drafts` tokens runs the first blocks and the head once for each ("early"), the first
    blocks alone for the last one ("bare"), and the blocks that follow on all its n tokens, with all
    that ends a round ("late"). Plain decoding is "late" with all blocks.
    `head` is the work of the head, in blocks.
    """

    depth: int
    head: float
    seen: dict[tuple[str, int, float], deque[float]] = field(
        default_factory=lambda: defaultdict(lambda: deque(maxlen=RECENT))
    )
    medians: dict[tuple[str, int, float], float] = field(default_factory=dict)
    fit: np.ndarray | None = None

    def add(self, part: str, blocks: int, tokens: int, seconds: float) -> None:
        """Add a timing."""
        recent = self.seen[part, blocks, tokens]
        recent.append(seconds)
        self.medians[part, blocks, tokens] = median(recent)
        self.fit = None

    def part(self, part: str, blocks: int, tokens: float = 1) -> float:
        """Return the seconds of a part of a round, as measured or else as fitted to the medians of all timings."""
        if len(self.seen.get((part, blocks, tokens), ())) > 2:
            return self.medians[part, blocks, tokens]
        if self.fit is None:
            from scipy.optimize import nnls

            rows = [self._features(*key) for key in self.medians]
            seconds = [*self.medians.values()]
            self.fit, _ = nnls(np.array(rows), np.array(seconds))
        return float(self._features(part, blocks, tokens) @ self.fit)

    @property
    def plain(self) -> float:
        """The seconds of one token by plain decoding."""
        return self.part("late", self.depth)

    def rounds(self, layer: int, tokens: np.ndarray) -> np.ndarray:
        """Return the seconds that a round takes, for each number of tokens that it verifies."""
        drafting = (tokens - 1) * self.part("early", layer)
        bare = self.part("bare", layer)
        blocks = self.depth - layer
        late = [self.part("late", blocks, each) for each in tokens.tolist()]
        return np.asarray(drafting + bare + late)

    def _features(self, part: str, blocks: int, tokens: float) -> np.ndarray:
        """Return what the seconds of a part are made of: a start, blocks, the head, and the work of further tokens."""
        head = float(part != "bare")
        work = blocks + self.head * head
        return np.array([1.0, blocks, head, work * (tokens - 1)])


class DraftScheduler:
    """Chooses the layer that drafts and how many tokens are verified at once, 1 for plain decoding.

    A fixed `layer` or number of `tokens` is kept to; `always` forbids to fall back to plain
    decoding. `hits` holds by layer how many draft tokens were accepted and how many were seen.
    `progress` has a row for each text, as a batch takes as many rounds as the slowest of its texts.
    `length` is the number of tokens that the texts may have, one after another, and `lost` the
    seconds that drafting cost beyond plain decoding: what may be lost is their `allowance`.
    """

    def __init__(
        self,
        depth: int,
        layer: int | None,
        tokens: int | None,
        *,
        always: bool,
        head: float = 1.0,
    ) -> None:
        self.depth = depth
        self.tokens = tokens
        self.always = always
        spread = np.linspace(1, depth - 1, min(8, depth - 1))
        self.layers: list[int] = np.unique(spread.round().astype(int)).tolist()
        if layer is not None:
            self.layers = [layer]
        self.hits = {each: [0.5 * PRIOR, PRIOR] for each in self.layers}
        self.costs = RoundCosts(depth, head)
        self.plain = 0
        self.drafts = 0
        self.draft_layer = 0
        self.rounds = 0
        self.wait = RECENT
        self.began = time.perf_counter()
        self.surveyed = 0.0
        """When the texts were begun, and the seconds in which layers were compared since."""
        self.progress = np.array([(1, 0, 0)], PROGRESS)
        self.length = math.inf
        self.lost = 0.0

    def observe(self, layer: int, accepted: Sequence[float]) -> None:
        """Count draft tokens of a layer that the model agreed with."""
        tally = self.hits[layer]
        tally[0] += sum(accepted)
        tally[1] += len(accepted)

    def fade(self, tokens: float) -> None:
        """Let all that was observed count less, as the texts have grown by some tokens."""
        self.progress["accepted"] *= FADE**tokens
        self.progress["seen"] *= FADE**tokens
        for tally in self.hits.values():
            left = max(FADE**tokens, min(1.0, PRIOR / tally[1]))
            tally[0] *= left
            tally[1] *= left

    def acceptance(self, layer: int) -> float:
        """Return the share of a layer's draft tokens that are accepted."""
        accepted, seen = self.hits[layer]
        return min(accepted / seen, 0.999)

    def _rounds(self, layer: int, tokens: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the expected speed of rounds over that of plain decoding, and the seconds that each takes."""
        left = self.progress["left"]
        accepted = self.progress["accepted"]
        seen = self.progress["seen"]
        # a text has the layer's rate, moved by how far it departs from the mean of all texts
        mean_rate = accepted.sum() / max(1.0, seen.sum())
        departure = (accepted - mean_rate * seen) / (seen + 2 * PRIOR)
        rates = np.clip(self.acceptance(layer) + departure, 0.0, 0.999)
        # 1 + rate + … + rate^(n − 1) tokens stay of n
        powers = rates[:, None] ** np.arange(tokens.max())
        staying = np.cumsum(powers, -1)[:, tokens - 1]
        rounds = (left[:, None] / staying).max(0)
        gained = left.max() / rounds
        seconds = self.costs.rounds(layer, tokens)
        return np.asarray(gained * self.costs.plain / seconds), seconds

    @property
    def allowance(self) -> float:
        """The seconds that may still be lost to finding out whether drafts pay; what drafts gain adds to them."""
        return PRICE * self.length * self.costs.plain - self.surveyed - self.lost

    def account(self, layer: int, tokens: int, written: float) -> None:
        """Add to what is lost a round in which `tokens` were verified, and `written` stayed.

        The round counts as its runs of blocks at the costs of each, whatever this one took by the
        clock.
        """
        seconds = self.costs.rounds(layer, np.array([tokens]))[0]
        self.lost += float(seconds) - written * self.costs.plain

    def best(self) -> tuple[int, int, float]:
        """Return the best layer and number of tokens, and how much faster than plain decoding they are expected.

        Rounds whose loss, were no draft accepted, is more than the `allowance` are 0 times as fast.
        """
        numbers = np.arange(2, MOST + 1)
        if self.tokens is not None:
            numbers = np.array([self.tokens + 1])
        rounds = np.array([self._rounds(layer, numbers) for layer in self.layers])
        speeds = rounds[:, 0]
        seconds = rounds[:, 1]
        if not self.always:
            speeds = speeds * (seconds - self.costs.plain <= self.allowance)
        stay = np.where(np.array(self.layers) == self.draft_layer, STAY, 1.0)
        best = (speeds * stay[:, None]).argmax()
        row, column = np.unravel_index(best, speeds.shape)
        speed = float(speeds[row, column])
        return self.layers[row], int(numbers[column]), speed

    def compared(self) -> list[int]:
        """Return the layers to compare with the whole model in this round: some now and then, and at every trial."""
        self.drafts += 1
        between = self.drafts > 4 and self.drafts % 8 and not self.plain
        if len(self.layers) < 2 or between:
            return []
        plain = 0.0
        if self.costs.seen:
            plain = self.costs.plain
        spent = time.perf_counter() - self.began
        expected = spent + self.progress["left"].max() * plain
        # the head, once
        reading = plain * self.costs.head / (self.depth + self.costs.head)
        if self.surveyed + reading > SURVEY_SHARE * expected:
            return []
        others = [each for each in self.layers if each != self.draft_layer]
        return sorted(others, key=lambda each: self.hits[each][1])[:COMPARED]

    def next(self) -> tuple[int, int]:
        """Return the layer and the number of tokens of the next round."""
        if self.always and len(self.layers) == 1 and self.tokens is not None:
            return self.layers[0], self.tokens + 1
        trial = (self.tokens or 1) + 1
        # plain steps are timed first, then one round of the layer that promises most
        if len(self.costs.seen) < 2:
            timed = self.costs.seen.get(("late", self.depth, 1), ())
            self.draft_layer = max(
                self.layers, key=lambda k: self.acceptance(k) - k / self.depth
            )
            if len(timed) < 3 and not self.always:
                return self.draft_layer, 1
            return self.draft_layer, trial
        # plain decoding goes on for some steps, as asking costs time, too
        if self.plain % AGAIN:
            self.plain += 1
            return self.draft_layer, 1
        layer, tokens, speedup = self.best()
        self.draft_layer = layer
        if self.always:
            return layer, tokens
        if speedup > 1:
            self.plain = 0
            self.wait = RECENT
            self.rounds += 1
            # what plain decoding costs may have been timed while the machine was busy: again after
            # 4, 8, 16, 32, 64 …
            if self.rounds % RECENT == 0 or self.rounds in (4, 8, 16):
                return layer, 1
            return layer, tokens
        # drafts do not pay: a trial now and then, where the text can win back what it costs
        _, seconds = self._rounds(layer, np.array([trial]))
        loss = seconds[0] - self.costs.plain
        is_early = self.plain < self.wait or self.progress["left"].max() < RECENT
        if is_early or loss > self.allowance:
            self.plain += 1
            return layer, 1
        self.wait = min(2 * self.wait, PATIENCE * RECENT)
        self.plain = 0
        return layer, trial
