"""Which layer drafts and how much follows acceptance and cost; layers are compared again while a text is written."""

import itertools
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from generation import talkers
from generation.drafting import drafting, made
from models import zoo

from layerscope.generation import draft_scheduler
from layerscope.generation.draft_scheduler import (
    PRICE,
    PROGRESS,
    SURVEY_SHARE,
    DraftScheduler,
    RoundCosts,
)

PARTS = ("early", "bare", "late")


def paced(*layers, tokens=None):
    """Return the scheduler of 24 layers whose cost grows with their number, and little with that of tokens."""
    only = layers[0] if len(layers) == 1 else None
    scheduler = DraftScheduler(24, only, tokens, always=False)
    scheduler.layers = layers
    for part, blocks, n in itertools.product(PARTS, range(1, 25), range(1, 14)):
        for _ in range(3):
            scheduler.costs.add(part, blocks, n, cost_of(24, 0.0, part, blocks, n))
    return scheduler


def test_another_layer_drafts_as_acceptance_moves():
    """Layer 4 agrees at first, then layer 14 alone does: it is compared, found, and given up when 4 is good again."""
    scheduler, chosen = paced(4, 7, 14, 20), []
    right = [
        {4: 0.95, 7: 0.95, 14: 0.95, 20: 0.95},
        {4: 0.2, 7: 0.3, 14: 0.95, 20: 0.95},
    ]
    rng = np.random.default_rng(0)
    # comparing layers takes a share of what is left to write
    scheduler.progress["left"] = 1000
    for shares in (right[0], right[1], right[0]):
        for _ in range(150):
            layer, tokens = scheduler.next()
            if tokens > 1:
                good = int(np.minimum(rng.geometric(1 - shares[layer]) - 1, tokens - 1))
                scheduler.observe(layer, [True] * good + [False] * (good < tokens - 1))
                for other in scheduler.compared():
                    scheduler.observe(
                        other, (rng.random(good + 1) < shares[other]).tolist()
                    )
            scheduler.fade(1 if tokens == 1 else good + 1)
        chosen.append(layer)
    assert chosen[0] in (4, 7) and chosen[1] == 14 and chosen[2] in (4, 7)


def test_a_batch_waits_for_the_slowest_of_its_texts():
    """Half of the texts never agree: the mean gains, the rounds do not."""
    scheduler = paced(7, tokens=3)
    scheduler.observe(7, [True, False] * 200)
    scheduler.progress = np.array([(50, 10, 20)] * 4, PROGRESS)
    together = scheduler.best()[2]
    scheduler.progress = np.array([(50, 40, 40), (50, 0, 40)] * 2, PROGRESS)
    apart = scheduler.best()[2]
    scheduler.progress = np.array([(50, 40, 40), (5, 0, 40)] * 2, PROGRESS)
    assert apart < 0.65 * together < together < scheduler.best()[2]


@pytest.mark.parametrize("sample", [False, True])
def test_layers_are_compared_where_the_text_is_kept(monkeypatch, sample):
    """What comparing learns of a layer is what one forward of the whole text says."""
    model = made(zoo.llama, 0.5)
    seen = []
    monkeypatch.setattr(DraftScheduler, "compared", lambda self: [1])
    observe = DraftScheduler.observe

    def noted(self, layer, accepted):
        found = [*accepted]
        seen.append((layer, found))
        observe(self, layer, found)

    monkeypatch.setattr(DraftScheduler, "observe", noted)
    speculation = drafting(model, "auto")
    prompt = torch.tensor([[5, 6, 7, 8]])
    how = talkers.GREEDY | {"max_new_tokens": 30, "eos_token_id": 98}
    how |= {"do_sample": sample, "top_k": 0}
    monkeypatch.setattr(DraftScheduler, "next", lambda self: (2, 4))
    torch.manual_seed(0)
    text = model.generate(prompt, custom_generate=speculation, **how)
    wanted = model(text).logits[0].softmax(-1)
    state = model(text, output_hidden_states=True).hidden_states[1]
    early = model.lm_head(model.model.norm(state))[0].softmax(-1)
    every = (
        torch.minimum(wanted, early).sum(-1)
        if sample
        else (wanted.argmax(-1) == early.argmax(-1)).float()
    )
    ours = [value for layer, values in seen[2:] if layer == 1 for value in values]
    assert len(ours) >= 20
    assert ours == pytest.approx(every[4 : 4 + len(ours)].tolist(), abs=1e-3)


@pytest.mark.parametrize("tokens, trial", [(None, 1), (3, 3)])
def test_a_trial_now_and_then_where_drafts_do_not_pay(tokens, trial):
    scheduler = paced(6, tokens=tokens)
    scheduler.observe(6, [False] * 500)
    scheduler.progress["left"] = 500
    drafted = [scheduler.next()[1] - 1 for _ in range(98)]
    assert drafted == [0] * 32 + [trial] + [0] * 64 + [trial]
    scheduler.progress["left"] = 20  # too few to win back what a trial costs
    assert {scheduler.next()[1] for _ in range(300)} == {1}


def test_plain_decoding_is_timed_again_while_drafts_pay():
    """It was timed while the machine was busy; by itself it would never be timed again."""
    scheduler = paced(6, tokens=3)
    scheduler.observe(6, [True] * 50 + [False] * 50)
    scheduler.costs.seen["late", 24, 1].clear()
    for _ in range(3):
        scheduler.costs.add("late", 24, 1, 240.0)
    for _ in range(64):
        layer, tokens = scheduler.next()
        if tokens == 1:
            scheduler.costs.add("late", 24, 1, 24.0)
    assert scheduler.costs.plain == 24.0


def test_comparing_layers_takes_a_small_share_of_the_time():
    scheduler = DraftScheduler(24, None, None, always=False)
    scheduler.costs.add("late", 24, 1, 0.02)
    scheduler.progress["left"] = 64
    assert scheduler.compared()
    scheduler.surveyed = 0.03 * 64 * 0.02
    assert not scheduler.compared()


def cost_of(depth, head, part, blocks, tokens):
    """Return what a forward costs in blocks: a head where it ends in one, and little for each more token."""
    work = blocks + (head if part != "bare" else 0.0)
    return work * (1 + 0.02 * (tokens - 1))


def test_parts_without_timings_are_fitted_to_those_with_some():
    costs = RoundCosts(24, head=2.0)
    for part in (("late", 24, 1), ("late", 18, 4), ("early", 6, 1), ("bare", 6, 1)):
        costs.add(*part, cost_of(24, 2.0, *part))
    for part in (("late", 12, 2), ("early", 12, 1), ("bare", 12, 1)):
        assert costs.part(*part) == pytest.approx(cost_of(24, 2.0, *part))


def price_of(monkeypatch, depth, head, length, prompt):
    """Return what a text whose drafts are all wrong costs above plain decoding, as a share; no clock runs.

    Forwards are counted, each at its cost. Of the prompt's tokens the layers agree with the share
    `prompt`. The head reads eight states for what one costs, and at least once.
    """
    spent = 0.0
    clock = SimpleNamespace(perf_counter=lambda: spent)
    monkeypatch.setattr(draft_scheduler, "time", clock)
    scheduler = DraftScheduler(depth, None, None, always=False, head=head)
    scheduler.length = length - 1
    compared = len(scheduler.layers) + 1
    states = SURVEY_SHARE * 8 * length * (1 + depth / head)
    each = int(np.clip(states / compared, 1, 32))
    spent += max(1, compared * each / 8) * head
    scheduler.surveyed += spent
    for layer in scheduler.layers:
        scheduler.observe(
            layer, [True] * round(prompt * each) + [False] * round((1 - prompt) * each)
        )
    for written in range(1, length):
        scheduler.progress = np.array([(length - written, 0, 0)], PROGRESS)
        layer, tokens = scheduler.next()
        parts = [("late", depth, 1)]
        if tokens > 1:
            tokens = min(tokens, length - written)
            others = scheduler.compared()
            parts = [("early", layer, 1)] * (tokens - 1)
            parts += [("bare", layer, 1), ("late", depth - layer, tokens)]
            for other in others:
                scheduler.observe(other, [False])
            scheduler.surveyed += head * bool(others)
            spent += head * bool(others)
            scheduler.observe(layer, [False])
        for part in parts:
            spent += cost_of(depth, head, *part)
            scheduler.costs.add(*part, cost_of(depth, head, *part))
        scheduler.fade(1)
        if tokens > 1:
            scheduler.account(layer, tokens, 1)
    return spent / (length - 1) / cost_of(depth, head, "late", depth, 1) - 1


@pytest.mark.parametrize("prompt", [0.0, 0.9])
@pytest.mark.parametrize("depth, head", [(4, 5.4), (12, 3.3), (48, 0.5)])
@pytest.mark.parametrize("length", [64, 256])
def test_finding_out_that_drafts_do_not_pay_costs_little(
    monkeypatch, depth, head, length, prompt
):
    """At most 3 % of plain decoding, also where the prompt promised much: head and depth as of GPT-2 and larger."""
    assert 0 < price_of(monkeypatch, depth, head, length, prompt) <= PRICE == 0.03
