"""Scores of given texts at every depth against the truncated models."""

import numpy as np
import pytest
import torch
from generation.talkers import prompts, score
from models import zoo
from torch import nn


@torch.no_grad()
def test_scores_are_those_of_the_truncated_models(cuts):
    texts = prompts((7, 2, 30, 12))
    found = score(cuts[zoo.L], texts)
    assert found.layers == (1, 2, 3) and found.tokens == 6 + 1 + 29 + 11
    every = {1: [], 2: [], 3: []}
    assert np.bincount(found.texts).tolist() == [6, 1, 29, 11]
    by_text = (np.split(each, (6, 7, 36), 1) for each in (found.nll, found.correct))
    for text, nll, correct in zip(texts, *by_text, strict=True):
        ids = torch.tensor([[int(word[1:]) for word in text.split()]])
        for place, layer in enumerate(found.layers):
            logits = cuts[layer](ids, use_cache=False).logits[0, :-1]
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
    assert found.accuracy.tolist() == found.correct.mean(1).tolist()
    assert len(set(found.perplexity)) == 3
