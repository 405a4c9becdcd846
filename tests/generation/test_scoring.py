"""Scores of given texts at every depth against the truncated models."""

import numpy as np
import pytest
import torch
from generation.talkers import loud, prompts, score, told
from models import zoo
from models.tokenizer import words
from torch import nn


@torch.no_grad()
def test_scores_are_those_of_the_truncated_models(family):
    texts = prompts((7, 2, 30, 12))
    found = score(family.model, texts)
    assert found.layers == (1, 2, 3) and found.tokens == 6 + 1 + 29 + 11
    every = {1: [], 2: [], 3: []}
    for text, nll, correct in zip(texts, found.nll, found.correct, strict=True):
        ids = torch.tensor([[int(word[1:]) for word in text.split()]])
        for place, layer in enumerate(found.layers):
            logits = family.cuts[layer](ids, use_cache=False).logits[0, :-1]
            wanted = nn.functional.cross_entropy(logits, ids[0, 1:], reduction="none")
            torch.testing.assert_close(
                torch.from_numpy(nll[place]).float(), wanted, rtol=1e-5, atol=1e-5
            )
            assert correct[place].tolist() == (logits.argmax(-1) == ids[0, 1:]).tolist()
            every[layer].append(wanted)
    for place, layer in enumerate(found.layers):
        assert found.perplexity[place] == pytest.approx(
            float(torch.cat(every[layer]).mean().exp()), rel=1e-4
        )
    assert len(set(found.perplexity)) == 3


def test_what_a_model_says_itself_its_score_puts_first():
    model = loud(zoo.llama())
    known = [
        one
        for one in told(model, prompts(), 2, max_new_tokens=9)
        if all(3 <= token < 90 for token in one.ids)
    ]
    texts = [f"{one.prompt} {words(list(one.ids))}" for one in known]
    found = score(model, texts, (2, 3))
    new = [len(one.ids) for one in known]
    assert sum(new) > 18
    hits = [correct[:, -n:] for correct, n in zip(found.correct, new, strict=True)]
    assert all(own[0].all() for own in hits) and not all(own[1].all() for own in hits)
    every = np.concatenate(found.correct, 1)
    assert (
        found.accuracy.tolist() == every.mean(1).tolist()
        and every.shape[1] == found.tokens
    )
