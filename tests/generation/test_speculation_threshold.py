"""Drafting that stops where the drafting layer is unsure: the same text, and the same law of samples."""

from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import transformers as hf
from generation import talkers
from generation.test_speculation import DRAFTED, FAMILIES, LAYER, QUIET, made, prompts
from models import zoo
from scipy import stats

from layerscope import LayerscopeError
from layerscope.generation import SelfSpeculation, generate
from layerscope.generation.draft_scheduler import DraftScheduler
from layerscope.generation.speculative_rounds import Speculated, SpeculativeTexts

SHARP = [hf.TemperatureLogitsWarper(0.2)]
"""Makes the random models sure of some tokens, which they seldom are."""


@pytest.mark.parametrize("make", FAMILIES, ids=talkers.name_of)
def test_the_text_is_that_of_generate(make: Any) -> None:
    model = made(make)
    options = prompts(3) | talkers.GREEDY | {"max_new_tokens": 16, "logits_processor": SHARP}
    wanted = model.generate(**options)
    speculation = SelfSpeculation(model, LAYER, 2 * DRAFTED, 0.5, fall_back=False)
    assert torch.equal(model.generate(**options, custom_generate=speculation), wanted)
    assert speculation.scheduler.steps[LAYER][1] > 4, "never asked"


def test_nothing_is_drafted_by_a_layer_that_is_never_sure() -> None:
    model = made(zoo.llama)
    options = prompts(2) | talkers.GREEDY
    speculation = SelfSpeculation(model, LAYER, DRAFTED, 1.0, fall_back=False)
    assert torch.equal(
        model.generate(**options, custom_generate=speculation), model.generate(**options)
    )
    assert speculation.report.rounds > 9 and speculation.report.drafted == 0


class Tables:
    """Stands for the split of a model whose next token depends on the last one alone."""

    recurrent, depth, context, entering, state = (
        False,
        4,
        1 << 60,
        torch.empty(0),
        torch.zeros(1, 1, 1),
    )
    cut = select = start = staticmethod(lambda *_: None)
    open = staticmethod(nullcontext)
    read = staticmethod(lambda states: states)

    def __init__(self, size: int) -> None:
        seeded = torch.Generator().manual_seed(2)
        self.own, noise = (torch.randn(size, size, generator=seeded) for _ in range(2))
        self.draft = 1.5 * self.own + 0.7 * noise
        self.kept, self.keep = {}, ()

    def prompts(self, ids: torch.Tensor) -> torch.Tensor:
        return self.own[ids[:, -1:]]

    def early(self, tokens: torch.Tensor, _: int, *, head: bool) -> torch.Tensor | None:
        return self.draft[tokens[:, 0]] if head else None

    def late(self, tokens: torch.Tensor, *_: Any) -> torch.Tensor:
        return self.own[tokens]

    all = late


def unlucky(self: SpeculativeTexts, *args: Any) -> Any:
    """Draft, and leave the last token out where it was an unlikely one."""
    tokens, states, laws = drafted(self, *args)
    if laws and laws[-1][0, tokens[0, -1]] < 0.71:
        return tokens[:, :-1], states[:, :-1], laws[:-1]
    return tokens, states, laws


drafted = SpeculativeTexts._drafted


@pytest.mark.parametrize("right", [True, False])
def test_samples_follow_the_model(monkeypatch: pytest.MonkeyPatch, right: bool) -> None:
    """One text at a time, so that its own law stops it; and where the drawn token does, the law is another."""
    size, draws, tables = 4, 3000, Tables(4)
    if not right:
        monkeypatch.setattr(SpeculativeTexts, "_drafted", unlucky)
    ids, config = torch.tensor([[0]]), SimpleNamespace(do_sample=True)
    criteria = [hf.generation.MaxLengthCriteria(5)]
    counts, report = torch.zeros(size, size, dtype=torch.float64), Speculated()
    how = {"threshold": 0.71 if right else None, "scored": False, "first": 0, "batch": 1}
    torch.manual_seed(0)
    for _ in range(draws):
        scheduler = DraftScheduler(4, 1, 2, always=True)
        texts = SpeculativeTexts(tables, scheduler, report, [], criteria, config, None, **how)
        found = texts.generate(ids, torch.ones_like(ids), ids)[0]
        counts[found[2], found[3]] += 1
    if right:
        assert 0.5 * report.rounds < report.drafted < 1.5 * report.rounds, (
            "drafting is now stopped, now not"
        )
        assert 0.2 < report.acceptance < 0.95
    law = tables.own.double().softmax(-1)
    expected = draws * (law[0] @ law)[:, None] * law
    statistic = float(((counts - expected) ** 2 / expected).sum())
    p = float(stats.chi2.sf(statistic, size * size - 1))
    assert (p > 0.01) == right, p


@pytest.mark.parametrize("threshold", [-0.1, 1.5, float("nan")])
def test_a_threshold_is_a_probability(threshold: float) -> None:
    with pytest.raises(LayerscopeError, match="threshold is .*: give a number from 0 to 1"):
        SelfSpeculation(zoo.llama(), 1, 2, threshold)


def test_the_verb_takes_a_threshold() -> None:
    model, texts = made(zoo.llama), talkers.prompts()
    plain = generate(model, texts, max_new_tokens=12, **QUIET)
    drafted = generate(model, texts, max_new_tokens=12, draft_layer=2, draft_threshold=0.5, **QUIET)
    assert drafted.texts["ids"].tolist() == plain.texts["ids"].tolist()
    with pytest.raises(LayerscopeError, match="`draft_threshold` needs a layer that drafts"):
        generate(model, texts, draft_threshold=0.5, **QUIET)
    with pytest.raises(LayerscopeError, match="draft_threshold"):
        generate(model, texts, draft_layer=2, draft_threshold=2, **QUIET)
