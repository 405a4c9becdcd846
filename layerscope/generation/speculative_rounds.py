"""Rounds of self-speculation: draft with the early blocks, verify with the others, keep what both agree on.

Each text has a pending token, which no block has read yet. A round in which layer 2 of 4 drafts
three tokens:

    pending                    the
    blocks 1, 2 and the head   the → food    food → was    was → bad    (bad is read without the head)
    blocks 3, 4 and the head   the → food    food → was    was → good   bad → .

The late blocks read the states of all four tokens at once. They agree with "food" and "was"; in
place of "bad" the model itself says "good", which is pending now, and the cache forgets "bad". One
pass through the late blocks wrote three tokens, and they are those of plain decoding, whatever was
drafted. Sampling accepts a draft token with a probability instead (see `speculative_sample`).
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from layerscope.generation.acceptance import (
    accepted_lengths,
    probabilities,
    refuse_nan,
    speculative_sample,
)
from layerscope.generation.draft_scheduler import PROGRESS, SURVEY_SHARE, DraftScheduler
from layerscope.generation.speculated import Speculated
from layerscope.generation.split_model import SURVEY_TOKENS, SplitModel

HEAD_BATCH_SPEEDUP = 8
"""How many times as fast the head reads many states at once as one after another."""
NO_LIMIT = 1 << 60
"""The length of texts where no criterion limits it."""


@dataclass
class SpeculativeTexts:
    """The texts of one batch while they are generated, in the rounds that a scheduler plans.

    `processors`, `criteria` and `streamer` are those of `model.generate`; `sample` is whether
    tokens are drawn.
    """

    split: SplitModel
    scheduler: DraftScheduler
    report: Speculated
    processors: Any
    criteria: Any
    sample: bool
    streamer: Any
    texts: list[Tensor] = field(init=False)
    """Each prompt with what has been written of its continuation."""
    unfinished: list[int] = field(init=False)
    """Which of the texts go on: the model's batch has a row for each of these."""

    def __post_init__(self) -> None:
        from transformers.generation.stopping_criteria import (
            EosTokenCriteria,
            MaxLengthCriteria,
        )

        self.ends = set[int]()
        """Tokens that end a text."""
        self.longest = NO_LIMIT
        """Length at which a text ends, its prompt included."""
        self.others = list[Any]()
        """Criteria that look at the text itself."""
        for each in self.criteria:
            if isinstance(each, EosTokenCriteria):
                self.ends.update(each.eos_token_id.view(-1).tolist())
            elif isinstance(each, MaxLengthCriteria):
                self.longest = min(self.longest, each.max_length)
            else:
                self.others.append(each)

    def generate(self, ids: Tensor, mask: Tensor, padded_ids: Tensor) -> list[Tensor]:
        """Return each prompt with its continuation."""
        split = self.split
        scheduler = self.scheduler
        last = ids[:, -1:]
        self.unfinished = [*range(len(ids))]
        self.texts = [*padded_ids]
        scheduler.progress = np.zeros(len(ids), PROGRESS)
        # the pass over the prompts writes the first new token
        scheduler.length = self.longest - ids.shape[1] - 1
        with split.open():
            # layers are compared at the prompts first, where there is something to choose
            split.recorded_states = {}
            if len(scheduler.layers) > 1 or not scheduler.always:
                split.recorded_layers = scheduler.layers
            split.start(mask)
            logits = split.prompts(ids)
            if split.recorded_states:
                split.recorded_states[split.depth] = [split.state]
                compared = mask[:, -self._survey_length(ids) :]
                self._compare(compared.bool())
            split.recorded_layers = ()
            scores = self._process(logits, last)
            accepted, following = self._accept(scores, last, [])
            pending = self._append(last, accepted, following)
            while self.unfinished:
                pending = self._round(pending)
        return self.texts

    def _survey_length(self, ids: Tensor) -> int:
        """Return at how many of the prompts' last tokens layers are compared: no more than the new tokens pay for."""
        split = self.split
        batch = len(ids)
        remaining = self.longest - ids.shape[1]
        # the work of a new token, in passes of the head
        token_work = 1 + split.depth / split.head_work
        states = SURVEY_SHARE * HEAD_BATCH_SPEEDUP * remaining * token_work
        per_text = states / batch / len(split.recorded_states)
        return int(min(max(per_text, 1), max(4, SURVEY_TOKENS // batch)))

    def _compare(
        self, real: Tensor, tokens: Tensor | None = None, scores: Tensor | None = None
    ) -> None:
        """Compare each recorded layer's predictions with the model's at the tokens where `real` [B, n].

        After `tokens` [B, n] the model has `scores`, and all are processed; prompts record its last
        layer too. How often they agree is reported to the scheduler.
        """
        started = time.perf_counter()
        length = real.shape[1]
        states = {
            layer: torch.cat(recorded, 1)[:, -length:].flatten(0, 1)
            for layer, recorded in self.split.recorded_states.items()
        }
        logits = self.split.read(states)
        if scores is None:
            scores = logits.pop(self.split.depth).view(*real.shape, -1)
        for layer, layer_logits in logits.items():
            layer_scores = layer_logits.view(*real.shape, -1)
            if tokens is not None:
                layer_scores = self._process(layer_scores, tokens)
            if self.sample:
                # a draft token is accepted with the probability that both distributions share
                common = torch.minimum(layer_scores.softmax(-1), scores.softmax(-1))
                agreement = common.sum(-1)
            else:
                same = layer_scores.argmax(-1) == scores.argmax(-1)
                agreement = same.float()
            self.scheduler.observe(layer, agreement[real].tolist())
        self.split.recorded_layers = ()
        self.split.recorded_states = {}
        self.scheduler.surveyed += time.perf_counter() - started

    def _round(self, pending: Tensor) -> Tensor:
        """Take the round that the scheduler plans; return the next token of each text that goes on, [B, 1]."""
        lengths = [len(self.texts[text]) for text in self.unfinished]
        remaining = [self.longest - length for length in lengths]
        self.scheduler.progress["left"] = remaining
        layer, planned = self.scheduler.next()
        # a text that is nearly full may be drafted beyond its end, but not beyond the model's
        # positions
        free_positions = self.split.context - max(lengths)
        most = max(min(remaining), min(max(remaining), free_positions))
        verified = min(planned, most)
        if verified > 1:
            return self._speculate(pending, layer, verified)
        return self._plain_step(pending)

    def _plain_step(self, pending: Tensor) -> Tensor:
        """Write one token of each text by all blocks."""
        began = time.perf_counter()
        self.report.plain += len(pending)
        following = self._verify(self.split.all(pending), pending, [])
        seconds = _clock(following) - began
        self.scheduler.costs.add("late", self.split.depth, 1, seconds)
        return following

    def _speculate(self, pending: Tensor, layer: int, verified: int) -> Tensor:
        """Draft tokens by a layer until `verified` wait for all blocks, the pending one first, and verify them."""
        split = self.split
        scheduler = self.scheduler
        report = self.report
        split.recorded_layers = scheduler.compared()
        report.layer = layer
        report.draft_tokens = verified - 1
        report.rounds += 1
        tokens_before = report.tokens
        # draft with the early blocks
        tokens, states, draft_probs = self._draft(pending, layer, verified)
        # verify all tokens at once with the late ones
        began = _clock(tokens)
        logits = split.late(tokens, layer, states)
        following = self._verify(logits, tokens, draft_probs)
        # book what the round cost
        seconds = _clock(following) - began
        scheduler.costs.add("late", split.depth - layer, verified, seconds)
        if not scheduler.always:
            written = (report.tokens - tokens_before) / len(pending)
            scheduler.account(layer, verified, written)
        return following

    def _draft(
        self, pending: Tensor, layer: int, verified: int
    ) -> tuple[Tensor, Tensor, list[Tensor]]:
        """Return the tokens to verify [B, n], their states [B, n, D], and what the drafted ones were drawn from."""
        began = time.perf_counter()
        tokens = [pending]
        states = list[Tensor]()
        draft_probs = list[Tensor]()
        for _ in range(verified - 1):
            logits = self.split.early(tokens[-1], layer)
            states.append(self.split.state)
            scores = self._process(logits[:, None], torch.cat(tokens, 1))
            scores = scores[:, 0]
            if self.sample:
                probs = probabilities(scores)
                draft_probs.append(probs)
                tokens.append(torch.multinomial(probs, 1))
            else:
                tokens.append(scores.argmax(-1, keepdim=True))
        drafted = _clock(tokens[-1])
        per_token = (drafted - began) / len(states)
        costs = self.scheduler.costs
        costs.add("early", layer, 1, per_token)
        # the last draft token is read too, for the late blocks; its head would predict nothing more
        states.append(self.split.early_states(tokens[-1], layer))
        costs.add("bare", layer, 1, _clock(states[-1]) - drafted)
        return torch.cat(tokens, 1), torch.cat(states, 1), draft_probs

    def _verify(
        self, logits: Tensor, tokens: Tensor, draft_probs: Sequence[Tensor]
    ) -> Tensor:
        """Write the draft tokens that all layers agree with and one of their own, and cut the rest back."""
        scores = self._process(logits, tokens)
        accepted, following = self._accept(scores, tokens, draft_probs)
        verified = tokens.shape[1]
        report = self.report
        scheduler = self.scheduler
        if verified > 1:
            drafted = verified - 1
            for row, number in enumerate(accepted.tolist()):
                # what was drafted after the first rejected token says nothing
                outcomes = [True] * number + [False] * (number < drafted)
                scheduler.observe(report.layer, outcomes)
                scheduler.progress["accepted"][row] += number
                scheduler.progress["seen"][row] += len(outcomes)
            report.drafted += drafted * len(accepted)
            report.accepted += int(accepted.sum())
        written = accepted + 1
        scheduler.fade(float(written.float().mean()))
        if self.split.recorded_states:
            columns = torch.arange(verified, device=written.device)
            self._compare(columns < written[:, None], tokens, scores)
        self.split.cut(written, verified)
        return self._append(tokens, accepted, following)

    def _accept(
        self, scores: Tensor, tokens: Tensor, draft_probs: Sequence[Tensor]
    ) -> tuple[Tensor, Tensor]:
        """Return how many draft tokens of each text stay, [B], and the token that follows them, [B, 1]."""
        if self.sample:
            return speculative_sample(probabilities(scores), tokens, draft_probs)
        best, targets = scores.max(-1)
        refuse_nan(best)
        accepted = accepted_lengths(targets[:, :-1] == tokens[:, 1:])
        return accepted, targets.gather(1, accepted[:, None])

    def _append(self, tokens: Tensor, accepted: Tensor, following: Tensor) -> Tensor:
        """Append what was accepted to each text, and go on with those that have not ended."""
        drafted = torch.cat([tokens[:, 1:], following], 1)
        written = drafted.scatter(1, accepted[:, None], following).tolist()
        rows = []
        for row, number in enumerate(accepted.tolist()):
            text = self.unfinished[row]
            if self._append_until_end(text, written[row][: number + 1]):
                rows.append(row)
        if len(rows) < len(self.unfinished):
            self.unfinished = [self.unfinished[row] for row in rows]
            index = torch.tensor(rows, dtype=torch.long, device=following.device)
            following = following[index]
            if self.unfinished:
                self.scheduler.progress = self.scheduler.progress[rows]
                self.split.select(index)
        return following

    def _append_until_end(self, text: int, tokens: Sequence[int]) -> bool:
        """Append tokens to a text up to its end, and return whether it goes on."""
        ids = self.texts[text]
        for token in tokens:
            ids = torch.cat([ids, ids.new_tensor([token])])
            self.report.tokens += 1
            if self.streamer is not None:
                self.streamer.put(ids[-1:].cpu())
            self.texts[text] = ids
            if token in self.ends or len(ids) >= self.longest:
                return False
            for criterion in self.others:
                if bool(criterion(ids[None], None).any()):
                    return False
        return True

    def _process(self, logits: Tensor, tokens: Tensor) -> Tensor:
        """Return the scores [B, n, V] that the model's logits processors make of the logits after tokens [B, m].

        The first token is the last one of each text, and the logits are those after the last n
        tokens. Each text is processed as it would be without drafts.
        """
        if not self.processors:
            return logits
        processed = torch.empty_like(logits)
        lengths = [len(self.texts[text]) for text in self.unfinished]
        for length in {*lengths}:
            rows = [row for row, each in enumerate(lengths) if each == length]
            texts = [self.unfinished[row] for row in rows]
            written = torch.stack([self.texts[text] for text in texts])
            for position in range(-logits.shape[1], 0):
                drafts = tokens[rows, 1 : tokens.shape[1] + position + 1]
                # some processors keep state by row, so each call has the whole batch; the rows of other
                # texts stay zeros, as their scores are not read
                ids = tokens.new_zeros(len(self.texts), length + drafts.shape[1])
                ids[texts] = torch.cat([written, drafts], 1)
                scores = logits.new_zeros(len(self.texts), logits.shape[2])
                scores[texts] = logits[rows, position]
                processed[rows, position] = self.processors(ids, scores)[texts]
        return processed


def _clock(tensor: Tensor) -> float:
    """Return the time at which a tensor has been computed."""
    if tensor.device.type != "cpu":
        torch.accelerator.synchronize(tensor.device)
    return time.perf_counter()
