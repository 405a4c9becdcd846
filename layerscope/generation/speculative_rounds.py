"""Rounds of self-speculation: draft with the early blocks, verify with the others, keep what both agree on.

Each text has a pending token, which no block has read yet. A round in which layer 2 of 4 drafts
three tokens:

    pending                    the
    blocks 1, 2 and the head   the → food    food → was    was → bad    (bad is read without the head)
    blocks 3, 4 and the head   the → food    food → was    was → good   bad → .

The late blocks read the states of all four tokens at once. They agree with "food" and "was"; in
place of "bad" the model itself says "good", which is pending now, and the cache forgets "bad". One
pass through the late blocks wrote three tokens, and they are those of plain decoding, whatever was
drafted. Sampling accepts a draft token with a probability instead (see `sampled`).
"""

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from layerscope.generation.acceptance import agreed, law_of, refuse_nan, sampled
from layerscope.generation.draft_scheduler import SURVEYS, DraftScheduler
from layerscope.generation.split_model import SURVEY, SplitModel

COUNTS = ("rounds", "drafted", "accepted", "tokens", "plain", "seconds")


@dataclass
class Speculated:
    """What a call drafted: `accepted` of `drafted` tokens in `rounds`, `tokens` new in all.

    `layer` and `draft_tokens` are those of the last round, 0 tokens where plain decoding was
    faster.

    >>> from layerscope.generation import Speculated
    >>> print(Speculated(layer=4, draft_tokens=3, rounds=10, drafted=30, accepted=24, tokens=34))
    drafts by layer 4: 24 of 30 draft tokens accepted (80%)
    """

    layer: int = 0
    draft_tokens: int = 0
    rounds: int = 0
    drafted: int = 0
    accepted: int = 0
    tokens: int = 0
    plain: int = 0
    seconds: float = 0.0

    @property
    def acceptance(self) -> float:
        """Share of drafted tokens that were accepted, NaN where none was drafted."""
        if self.drafted:
            return self.accepted / self.drafted
        return math.nan

    def __add__(self, later: "Speculated") -> "Speculated":
        """Return the counts of two calls together, with what else the later one says."""
        counts = {name: getattr(self, name) + getattr(later, name) for name in COUNTS}
        return replace(later, **counts)

    def __str__(self) -> str:
        if 2 * self.plain > self.tokens:
            return f"drafts do not pay here: {self.plain} of {self.tokens} tokens were decoded plainly"
        accepted = f"{self.accepted} of {self.drafted} draft tokens accepted"
        return f"drafts by layer {self.layer}: {accepted} ({self.acceptance:.0%})"


@dataclass
class SpeculativeTexts:
    """The texts of one batch while they are generated, in the rounds that a scheduler plans.

    `processors`, `criteria`, `config` and `streamer` are those of `model.generate`.
    """

    split: SplitModel
    scheduler: DraftScheduler
    report: Speculated
    processors: Any
    criteria: Any
    config: Any
    streamer: Any

    def __post_init__(self) -> None:
        from transformers.generation.stopping_criteria import (
            EosTokenCriteria,
            MaxLengthCriteria,
        )

        self.sample = self.config.do_sample
        self.ends = set[int]()
        self.longest = 1 << 60
        self.others = list[Any]()
        """Criteria that look at the text itself."""
        for each in self.criteria:
            if isinstance(each, EosTokenCriteria):
                self.ends.update(each.eos_token_id.view(-1).tolist())
            elif isinstance(each, MaxLengthCriteria):
                self.longest = min(self.longest, each.max_length)
            else:
                self.others.append(each)

    def generate(self, ids: Tensor, mask: Tensor, whole: Tensor) -> list[Tensor]:
        """Return each prompt with its continuation."""
        split = self.split
        scheduler = self.scheduler
        last = ids[:, -1:]
        self.left = [*range(len(ids))]
        self.texts = [*whole]
        scheduler.texts = np.zeros((len(ids), 3))
        # the prompts write the first
        scheduler.length += self.longest - ids.shape[1] - 1
        with split.open():
            split.kept = {}
            if len(scheduler.layers) > 1 or not scheduler.always:
                split.keep = scheduler.layers
            split.start(mask)
            logits = split.prompts(ids)
            if split.kept:
                split.kept[split.depth] = [split.state]
                compared = mask[:, -self._surveyed(ids) :]
                self._compare(compared.bool())
            split.keep = ()
            scores = self._processed(logits, last)
            good, following = self._accepted(scores, last, [])
            pending = self._written(last, good, following)
            while self.left:
                pending = self._round(pending)
        return self.texts

    def _surveyed(self, ids: Tensor) -> int:
        """Return at how many of the prompts' last tokens layers are compared: no more than the new tokens pay for.

        The head is eight times as fast on many states at once as on one.
        """
        split = self.split
        rows = len(ids)
        new = self.longest - ids.shape[1]
        states = SURVEYS * 8 * new * (1 + split.depth / split.head_work)
        each = states / rows / len(split.kept)
        return int(min(max(each, 1), max(4, SURVEY // rows)))

    def _compare(
        self, real: Tensor, tokens: Tensor | None = None, scores: Tensor | None = None
    ) -> None:
        """Learn how often each layer whose states were kept would agree with the model's scores, where `real` [B, n].

        After `tokens` [B, n] the model has `scores`, and all are processed; prompts keep its last
        layer too.
        """
        started = time.perf_counter()
        length = real.shape[1]
        states = {
            layer: torch.cat(kept, 1)[:, -length:].flatten(0, 1)
            for layer, kept in self.split.kept.items()
        }
        logits = self.split.read(states)
        if scores is None:
            scores = logits.pop(self.split.depth).view(*real.shape, -1)
        for layer, of_layer in logits.items():
            drafting = of_layer.view(*real.shape, -1)
            if tokens is not None:
                drafting = self._processed(drafting, tokens)
            self._observe(layer, drafting, scores, real)
        self.split.keep = ()
        self.split.kept = {}
        self.scheduler.surveyed += time.perf_counter() - started

    def _observe(
        self, layer: int, drafting: Tensor, scores: Tensor, real: Tensor
    ) -> None:
        """Count where a layer's scores [B, n, V] agree with the model's."""
        if self.sample:
            common = torch.minimum(drafting.softmax(-1), scores.softmax(-1))
            agreement = common.sum(-1)
        else:
            same = drafting.argmax(-1) == scores.argmax(-1)
            agreement = same.float()
        self.scheduler.observe(layer, agreement[real].tolist())

    def _round(self, pending: Tensor) -> Tensor:
        """Draft and verify; return the next token of each text that goes on, [B, 1]."""
        split = self.split
        scheduler = self.scheduler
        report = self.report
        lengths = [len(self.texts[row]) for row in self.left]
        scheduler.texts[:, 0] = [self.longest - length for length in lengths]
        layer, new = scheduler.next()
        # a text that is nearly full may be drafted beyond its end, but not beyond the model's
        # positions
        most = max(
            self.longest - max(lengths),
            min(self.longest - min(lengths), split.context - max(lengths)),
        )
        new = max(1, min(new, most))
        begun = time.perf_counter()
        written = report.tokens
        if new > 1:
            split.keep = scheduler.compared()
            report.layer = layer
            report.draft_tokens = new - 1
            report.rounds = report.rounds + 1
            tokens, states, laws = self._drafted(pending, layer, new)
            begun = _clock(tokens)
            logits = split.late(tokens, layer, states)
            following = self._kept(logits, tokens, laws)
        else:
            layer = 0
            tokens = pending
            report.plain += len(self.left)
            following = self._kept(split.all(tokens), tokens, [])
        blocks = split.depth - layer
        seconds = _clock(following) - begun
        scheduler.costs.add("late", blocks, tokens.shape[1], seconds)
        if layer and not scheduler.always:
            scheduler.account(layer, new, (report.tokens - written) / len(lengths))
        return following

    def _drafted(
        self, pending: Tensor, layer: int, new: int
    ) -> tuple[Tensor, Tensor, list[Tensor]]:
        """Draft until `new` tokens [B, n] wait, the pending one first.

        Return them, their states [B, n, D], and the laws that the drafted ones were drawn from.
        """
        begun = time.perf_counter()
        drawn = [pending]
        states = list[Tensor]()
        laws = list[Tensor]()
        for _ in range(new - 1):
            logits = self.split.early(drawn[-1], layer, head=True)
            assert logits is not None
            states.append(self.split.state)
            scores = self._processed(logits[:, None], torch.cat(drawn, 1))
            scores = scores[:, 0]
            if self.sample:
                law = law_of(scores)
                laws.append(law)
                drawn.append(torch.multinomial(law, 1))
            else:
                drawn.append(scores.argmax(-1, keepdim=True))
        headed = _clock(drawn[-1])
        each = (headed - begun) / len(states)
        costs = self.scheduler.costs
        costs.add("early", layer, 1, each)
        self.split.early(drawn[-1], layer, head=False)
        states.append(self.split.state)
        costs.add("bare", layer, 1, _clock(states[-1]) - headed)
        return torch.cat(drawn, 1), torch.cat(states, 1), laws

    def _kept(self, logits: Tensor, tokens: Tensor, laws: Sequence[Tensor]) -> Tensor:
        """Take the draft tokens that all layers agree with and one of their own, and cut the rest back."""
        scores = self._processed(logits, tokens)
        good, following = self._accepted(scores, tokens, laws)
        new = tokens.shape[1]
        report = self.report
        scheduler = self.scheduler
        if new > 1:
            for i, number in enumerate(good.tolist()):
                accepted = [True] * number + [False] * (number < new - 1)
                scheduler.observe(report.layer, accepted)
                scheduler.texts[i, 1:] += number, len(accepted)
            report.drafted += (new - 1) * len(good)
            report.accepted += int(good.sum())
        kept = good + 1
        scheduler.fade(float(kept.float().mean()))
        if self.split.kept:
            columns = torch.arange(new, device=kept.device)
            self._compare(columns < kept[:, None], tokens, scores)
        self.split.cut(kept, new)
        return self._written(tokens, good, following)

    def _accepted(
        self, scores: Tensor, tokens: Tensor, laws: Sequence[Tensor]
    ) -> tuple[Tensor, Tensor]:
        """Return how many draft tokens of each text stay, [B], and the token that follows them, [B, 1]."""
        if self.sample:
            return sampled(law_of(scores), tokens, laws)
        best, targets = scores.max(-1)
        refuse_nan(best)
        good = agreed(targets[:, :-1] == tokens[:, 1:])
        return good, targets.gather(1, good[:, None])

    def _written(self, tokens: Tensor, good: Tensor, following: Tensor) -> Tensor:
        """Append what was accepted to each text, and go on with those that have not ended."""
        drafted = torch.cat([tokens[:, 1:], following], 1)
        fresh = drafted.scatter(1, good[:, None], following).tolist()
        going = []
        for i, kept in enumerate(good.tolist()):
            if self._extended(self.left[i], fresh[i][: kept + 1]):
                going.append(i)
        if len(going) < len(self.left):
            self.left = [self.left[i] for i in going]
            rows = torch.tensor(going, dtype=torch.long, device=following.device)
            following = following[rows]
            if self.left:
                self.scheduler.texts = self.scheduler.texts[going]
                self.split.select(rows)
        return following

    def _extended(self, row: int, fresh: Sequence[int]) -> bool:
        """Append tokens to a text up to its end, and return whether it goes on."""
        text = self.texts[row]
        for token in fresh:
            text = torch.cat([text, text.new_tensor([token])])
            self.report.tokens += 1
            if self.streamer is not None:
                self.streamer.put(text[-1:].cpu())
            self.texts[row] = text
            if token in self.ends or len(text) >= self.longest:
                return False
            for criterion in self.others:
                if bool(criterion(text[None], None).any()):
                    return False
        return True

    def _processed(self, logits: Tensor, tokens: Tensor) -> Tensor:
        """Return the scores [B, n, V] that the model's logits processors make of the logits after tokens [B, m].

        The first token is the last one of each text, and the logits are those after the last n
        tokens. Each text is processed as it would be without drafts.
        """
        if not self.processors:
            return logits
        processed = torch.empty_like(logits)
        lengths = [len(self.texts[row]) for row in self.left]
        for length in {*lengths}:
            rows = [i for i, each in enumerate(lengths) if each == length]
            places = [self.left[i] for i in rows]
            texts = torch.stack([self.texts[place] for place in places])
            for at in range(-logits.shape[1], 0):
                drafts = tokens[rows, 1 : tokens.shape[1] + at + 1]
                # a processor sees the whole batch, as some keep what is theirs by row; other rows
                # are as good as any
                ids = tokens.new_zeros(len(self.texts), length + drafts.shape[1])
                ids[places] = torch.cat([texts, drafts], 1)
                scores = logits.new_zeros(len(self.texts), logits.shape[2])
                scores[places] = logits[rows, at]
                processed[rows, at] = self.processors(ids, scores)[places]
        return processed


def _clock(tensor: Tensor) -> float:
    """Return the time at which a tensor has been computed."""
    if tensor.device.type != "cpu":
        torch.accelerator.synchronize(tensor.device)
    return time.perf_counter()
