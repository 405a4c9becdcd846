"""What self-speculation would gain: drafts of every layer replayed on texts that the model wrote, at measured costs."""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import product
from operator import itemgetter
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from layerscope.generation.draft_scheduler import MOST, DraftScheduler, RoundCosts
from layerscope.generation.speculation import SelfSpeculation
from layerscope.logit_lens.translators import Translators
from layerscope.models import LayeredModel
from layerscope.models.encode import TextEncoder

THRESHOLDS = (0.0, 0.2, 0.4, 0.6, 0.8, 0.9, 0.95)
"""Thresholds among which one is chosen; 0 is none."""
PLAIN = (1, False)
"""The round of plain decoding."""
UNSURE = 1e-9
"""A threshold that every draft token passes."""
ENOUGH = 12
"""Timings of each layer and number of tokens."""
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
class Replay:
    """The rounds in which a batch would be written, and what was drafted, accepted and verified of its texts.

    `rounds` counts them by how many tokens were verified, and whether the layer was too unsure to
    draft another one; a round of one token without that is plain decoding.
    """

    rounds: Counter[tuple[int, bool]] = field(default_factory=Counter)
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

    def keep(layer: int, site: str, batch: Tensor) -> None:
        if site == "raw" and layer:
            state = batch[0, len(prompt) :]
            states.append(state if lens is None else lens.translated(layer, state))

    model.run(inputs, keep, until=model.stack.depth - 1)
    for logits in model.lens.token_logits(torch.cat(states), inputs):
        top = logits.softmax(-1).max(-1)
        tokens.append(top.indices)
        sure.append(top.values)
    shape, wanted = (len(states), len(new) - 1), torch.tensor(new[1:], device=model.device)
    right = torch.cat(tokens).view(shape) == wanted
    return Reading(right.cpu().numpy(), torch.cat(sure).view(shape).double().cpu().numpy())


def replay(batch: Sequence[Reading], setting: Setting, most: int) -> Replay:
    """Return the rounds in which a batch would be written with a setting, up to `most` new tokens a text."""
    layer, result = setting.layer - 1, Replay()
    right, sure = [text.right[layer] for text in batch], [text.sure[layer] for text in batch]
    at = [0] * len(batch)  # the new token that is read next
    left = [i for i, agreed in enumerate(right) if len(agreed)]
    while left:
        drafts = max(0, min(setting.tokens, max(most - 2 - at[i] for i in left)))
        stopped = False
        if drafts and setting.threshold:
            ahead = np.mean([np.resize(sure[i][at[i] :], drafts) for i in left], 0)
            sure_of = int((ahead >= setting.threshold).cumprod().sum())
            drafts, stopped = sure_of, sure_of < drafts
        result.rounds[drafts + 1, stopped] += 1
        for i in left:
            good = int(right[i][at[i] : at[i] + drafts].cumprod().sum())
            result.accepted += good
            at[i] += good + 1
        result.drafted += drafts * len(left)
        result.verified += len(left)
        left = [i for i in left if at[i] < len(right[i])]
    return result


@dataclass(frozen=True)
class DraftCosts:
    """Seconds of rounds, and of asking with a threshold how probable a draft token is."""

    rounds: RoundCosts
    ask: float

    def seconds(self, replayed: Replay, setting: Setting) -> float:
        """Return the seconds of all rounds of a batch."""
        counts = {key: n for key, n in replayed.rounds.items() if key != PLAIN}
        seconds = replayed.rounds[PLAIN] * self.rounds.plain
        if counts:
            tokens, stopped = np.array([*counts]).T
            headed = tokens - 1 + stopped
            each = self.rounds.rounds(setting.layer, headed, 1 - stopped, tokens)
            asking = self.ask * headed if setting.threshold else 0.0
            seconds += float(np.dot([*counts.values()], each + asking))
        return seconds


class TimedRounds(DraftScheduler):
    """Has each layer draft each number of tokens in turns, so that all parts of rounds are timed."""

    def __init__(self, depth: int, layers: Sequence[int], numbers: Sequence[int]) -> None:
        super().__init__(depth, None, None, always=True)
        self.layers = list(layers)
        self.hits, self.steps = ({each: [1.0, 2.0] for each in layers} for _ in range(2))
        self.turns = [(0, 1), *product(layers, numbers)]
        self.count = 0

    def next(self) -> tuple[int, int]:
        """Return the next layer and number of tokens."""
        self.count += 1
        return self.turns[self.count % len(self.turns)]

    def compared(self) -> list[int]:
        """Compare no layers."""
        return []


class TimedSpeculation(SelfSpeculation):
    """Writes texts by the rounds of one scheduler, whose timings go on from text to text."""

    def __init__(
        self,
        module: Any,
        scheduler: DraftScheduler,
        threshold: float | None,
        lens: Translators | None,
    ) -> None:
        self.timed = scheduler
        super().__init__(module, threshold=threshold, lens=lens)

    def _new_scheduler(self) -> DraftScheduler:
        return self.timed


def timed_rounds(
    model: LayeredModel,
    layers: Sequence[int],
    write: Callable[[SelfSpeculation], object],
    lens: Translators | None = None,
) -> DraftCosts:
    """Return what rounds of these layers cost; `write` writes all batches of prompts by self-speculation."""

    def timed(layers: Sequence[int], numbers: Sequence[int], threshold: float | None) -> RoundCosts:
        scheduler = TimedRounds(model.stack.depth, layers, numbers)
        for _ in range(PASSES):
            write(TimedSpeculation(model.module, scheduler, threshold, lens))
            if scheduler.count >= ENOUGH * len(scheduler.turns):
                break
        return scheduler.costs

    costs, first = timed(layers, range(2, MOST + 1), None), layers[0]
    ask = timed([first], [5], UNSURE).part("early", first) - costs.part("early", first)
    return DraftCosts(costs, max(0.0, ask))


def best(
    texts: Sequence[Sequence[Reading]], settings: Iterable[Setting], costs: DraftCosts, most: int
) -> tuple[Setting, float]:
    """Return the setting that writes batches of texts fastest, and the seconds of its rounds for all."""

    def seconds(setting: Setting) -> float:
        return sum(costs.seconds(replay(batch, setting, most), setting) for batch in texts)

    return min(((setting, seconds(setting)) for setting in settings), key=itemgetter(1))
