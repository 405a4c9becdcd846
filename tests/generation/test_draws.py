"""What is drawn from the nucleus: the right tokens, as often as it says, by the seed and the prompt alone."""

import numpy as np
import pytest
import torch
from generation.talkers import loud, prompts, told
from models import zoo
from scipy.stats import chisquare

from layerscope.generation.sampling import nucleus


@pytest.mark.parametrize("top_p", [0.05, 0.5, 0.9, 1.0])
@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.0])
def test_the_nucleus_is_the_fewest_tokens_that_reach_the_mass(top_p, temperature):
    log_p = (
        torch.randn(6, 40, generator=torch.Generator().manual_seed(0)) * 3
    ).log_softmax(-1)
    found = nucleus(log_p, top_p, temperature).numpy()
    for row, mine in zip(log_p.double().numpy(), found, strict=True):
        p = np.exp(row / temperature)
        p /= p.sum()
        wanted, mass = np.zeros(40), 0.0
        for token in np.argsort(-p):
            if mass >= top_p:
                break
            wanted[token], mass = p[token], mass + p[token]
        np.testing.assert_allclose(mine, wanted / wanted.sum(), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("top_p, temperature", [(1.0, 1.0), (0.8, 1.5)])
@torch.no_grad()
def test_draws_come_as_often_as_the_nucleus_says(top_p, temperature):
    model, n = loud(zoo.llama()), 2000
    found = told(
        model,
        ["w7 w8 w9"] * n,
        max_new_tokens=1,
        top_p=top_p,
        temperature=temperature,
        batch_size=500,
    )
    logits = model(torch.tensor([[7, 8, 9]])).logits[0, -1]
    p = nucleus(logits.log_softmax(-1)[None], top_p, temperature)[0].numpy()
    counts = np.bincount([one.ids[0] for one in found], minlength=zoo.V)
    assert not counts[p == 0].any() and (top_p == 1) == p.all()
    expected = p * n
    assert (expected >= 5).sum() >= 5
    # rare ones are counted together
    group = np.where(expected >= 5, np.arange(zoo.V), zoo.V)
    drawn, wanted = (np.bincount(group, values) for values in (counts, expected))
    assert chisquare(drawn[wanted > 0], wanted[wanted > 0]).pvalue > 0.01


def test_draws_belong_to_the_seed_and_the_prompt_alone():
    model, texts = loud(zoo.gpt2()), prompts()
    first = told(model, texts, 2, top_p=0.9)
    assert [one.ids for one in told(model, texts, 2, top_p=0.9, batch_size=1)] == [
        one.ids for one in first
    ]
    assert told(model, texts[:2], 2, top_p=0.9)[1].ids == first[1].ids
    assert told(model, texts, 2, top_p=0.9, seed=1)[0].ids != first[0].ids
    assert len({one.ids for one in told(model, [texts[0]] * 3, top_p=1.0)}) == 3
    assert [one.ids for one in told(model, texts, top_p=1e-9)] == [
        one.ids for one in told(model, texts)
    ]
