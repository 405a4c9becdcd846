"""What self-speculation would gain: drafts of every layer replayed on texts that the model wrote, at measured costs."""

import time
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.stats import trim_mean
from torch import Tensor

from layerscope.core.errors import LayerscopeError, count
from layerscope.generation.draft_scheduler import MOST, Pace
from layerscope.generation.speculation import SelfSpeculation
from layerscope.logit_lens.translators import Translators
from layerscope.models import LayeredModel
from layerscope.models.encode import TextEncoder

SIZES = (2, 3, 5, 9)
"""Tokens of the rounds that are timed."""
THRESHOLDS = (0.0, 0.2, 0.4, 0.6, 0.8, 0.9, 0.95)
"""Thresholds among which one is chosen; 0 is none."""
UNSURE = 1e-9
"""A threshold that every draft token passes."""
ENOUGH = 12
"""Timings of each layer and size."""
PASSES = 8
"""Most times that texts are written for the timings."""


class Reading(NamedTuple):
    """What layers 1 … L − 1 say after each of a text's n new tokens but the last, both [L − 1, n − 1].

    `right`: whether a layer's likeliest token is the one that the model wrote next; `sure`: its
    probability.
    """

    right: NDArray[np.bool_]
    sure: NDArray[np.float64]


class Setting(NamedTuple):
    """Which layer drafts, how many tokens at most, and how probable a layer's likeliest token must be to go on."""

    layer: int
    tokens: int
    threshold: float = 0.0


@dataclass
class Rounds:
    """In how many rounds a batch is written: by the number of tokens verified, and those that a threshold `stopped`.

    What was drafted, accepted and verified is summed over its texts.
    """

    sizes: Counter[int] = field(default_factory=Counter)
    stopped: int = 0
    drafted: int = 0
    accepted: int = 0
    verified: int = 0


@torch.inference_mode()
def read(
    model: LayeredModel, prompt: Sequence[int], new: Sequence[int], lens: Translators | None = None
) -> Reading:
    """Return what each layer says along a text that the model wrote, through translators if there are some."""
    assert model.lens is not None and isinstance(model.encoder, TextEncoder)
    inputs = model.encoder.batch_ids([[*prompt, *new[:-1]]]).to(model.device)
    states, tokens, sure = list[Tensor](), list[Tensor](), list[Tensor]()

    def keep(layer: int, site: str, found: Tensor) -> None:
        if site == "raw" and layer:
            own = found[0, len(prompt) :]
            states.append(own if lens is None else lens.translated(layer, own))

    model.run(inputs, keep, until=model.stack.depth - 1)
    for logits in model.lens.token_logits(torch.cat(states), inputs):
        top = logits.softmax(-1).max(-1)
        tokens.append(top.indices)
        sure.append(top.values)
    shape, wanted = (len(states), len(new) - 1), torch.tensor(new[1:], device=model.device)
    right = torch.cat(tokens).view(shape) == wanted
    return Reading(right.cpu().numpy(), torch.cat(sure).view(shape).double().cpu().numpy())


def replay(batch: Sequence[Reading], setting: Setting, most: int) -> Rounds:
    """Return the rounds in which a batch would be written with a setting, up to `most` new tokens a text."""
    layer, found = setting.layer - 1, Rounds()
    right, sure = [text.right[layer] for text in batch], [text.sure[layer] for text in batch]
    at = [0] * len(batch)  # the new token that is read next
    left = [i for i, own in enumerate(right) if len(own)]
    while left:
        drafts = max(0, min(setting.tokens, max(most - 2 - at[i] for i in left)))
        if drafts and setting.threshold:
            ahead = [np.resize(sure[i][at[i] :], drafts) for i in left]
            sure_of = int((np.mean(ahead, 0) >= setting.threshold).cumprod().sum())
            found.stopped, drafts = found.stopped + (sure_of < drafts), sure_of
        found.sizes[drafts + 1] += 1
        for i in left:
            good = int(right[i][at[i] : at[i] + drafts].cumprod().sum())
            found.accepted += good
            at[i] += good + 1
        found.drafted, found.verified = (
            found.drafted + drafts * len(left),
            found.verified + len(left),
        )
        left = [i for i in left if at[i] < len(right[i])]
    return found


@dataclass(frozen=True)
class Clocked:
    """Seconds of reading a batch of prompts, and of rounds by layer and size.

    With a threshold to `ask` how probable a draft token is takes time too, and to `stop` there.
    """

    prompts: float
    rounds: Mapping[tuple[int, int], float]
    ask: float
    stop: float

    def __call__(self, layer: int, size: int) -> float:
        """Return the seconds of a round, between timed sizes in proportion."""
        sizes = sorted(n for k, n in self.rounds if k == layer)
        known = [self.rounds[layer, n] for n in sizes]
        if size <= sizes[-1]:
            return float(np.interp(size, sizes, known))
        return known[-1] + (size - sizes[-1]) * (known[-1] - known[-2]) / (sizes[-1] - sizes[-2])

    def seconds(self, found: Rounds, setting: Setting) -> float:
        """Return the seconds of a batch, its prompts included."""
        ask = self.ask if setting.threshold else 0.0
        rounds = sum(
            n * (self(setting.layer, size) + ask * (size - 1)) for size, n in found.sizes.items()
        )
        return self.prompts + rounds + self.stop * found.stopped


class Timed(Pace):
    """Has every layer draft every number of tokens in turns, and takes the time from one round to the next."""

    def __init__(self, depth: int, layers: Sequence[int], sizes: Sequence[int]) -> None:
        super().__init__(depth, None, None, always=True)
        self.hits, self.steps = ({each: [1.0, 2.0] for each in layers} for _ in range(2))
        self.layers = [layers[0]]  # one is read at prompts
        self.turns = [*product(layers, sizes)]
        self.seconds = defaultdict[tuple[int, int], list[float]](list)
        self.prompts, self.count, self.began, self.running = list[float](), 0, 0.0, False

    def begin(self) -> None:
        """Say that prompts are read now."""
        self.began, self.running = time.perf_counter(), False

    def next(self) -> tuple[int, int]:
        """Return the next layer and number of tokens."""
        now = time.perf_counter()
        (
            self.seconds[self.turns[self.count % len(self.turns)]] if self.running else self.prompts
        ).append(now - self.began)
        self.count += self.running
        self.began, self.running = now, True
        return self.turns[self.count % len(self.turns)]

    def means(self) -> dict[tuple[int, int], float]:
        """Return the mean seconds of each turn without the slowest and fastest tenth."""
        return {turn: float(trim_mean(seconds, 0.1)) for turn, seconds in self.seconds.items()}

    @property
    def fewest(self) -> int:
        """The least number of timings of any turn."""
        return min(len(self.seconds[turn]) for turn in self.turns)


class Timing(SelfSpeculation):
    """Writes texts by the rounds of a `Timed`."""

    def __init__(
        self, module: Any, timed: Timed, threshold: float | None, lens: Translators | None
    ) -> None:
        self.timed = timed
        super().__init__(module, threshold=threshold, lens=lens)

    def _pace(self) -> Pace:
        self.timed.begin()
        return self.timed


def clocked(
    model: LayeredModel,
    layers: Sequence[int],
    write: Callable[[SelfSpeculation], object],
    most: int,
    lens: Translators | None = None,
) -> Clocked:
    """Return what rounds cost; `write` writes all batches of prompts by self-speculation, up to `most` new tokens."""
    depth = model.stack.depth

    def timed(layers: Sequence[int], sizes: Sequence[int], threshold: float | None = None) -> Timed:
        found = Timed(depth, layers, sizes)
        for _ in range(PASSES):
            write(Timing(model.module, found, threshold, lens))
            if found.fewest >= ENOUGH:
                break
        return found

    sizes = [1, *(n for n in SIZES if n <= min(most - 1, MOST))]
    every = timed(layers, sizes)
    if not every.fewest:
        raise LayerscopeError(
            f"the texts are too short to time drafts of {count(len(layers), 'layer')}: try more `samples`, or more "
            "`max_new_tokens`"
        )
    rounds = every.means()
    first = layers[0]
    asked = timed([first], sizes[1:], UNSURE).means()
    ask = float(np.median([(asked[first, n] - rounds[first, n]) / (n - 1) for n in sizes[1:]]))
    stop = timed([first], [2], 1.0).means()[first, 2] - rounds[first, 1]
    return Clocked(float(np.mean(every.prompts)), rounds, max(0.0, ask), max(0.0, stop))


def best(
    texts: Sequence[Sequence[Reading]],
    layer: int,
    cost: Clocked,
    most: int,
    tokens: int | None,
    threshold: float | None,
) -> tuple[Setting, float]:
    """Return the fastest setting of a layer for batches of texts, and its seconds for all of them.

    Numbers of draft tokens and thresholds are tried where none is given.
    """
    numbers = range(1, MOST) if tokens is None else [tokens]
    settings = (
        Setting(layer, *each)
        for each in product(numbers, THRESHOLDS if threshold is None else [threshold])
    )

    def seconds(setting: Setting) -> float:
        return sum(cost.seconds(replay(batch, setting, most), setting) for batch in texts)

    found = min(settings, key=seconds)
    return found, seconds(found)
