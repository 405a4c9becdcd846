"""The rivals of the aligned loss, held to their formulas."""

import pytest
import torch
from torch import nn

from layerscope import LayerscopeError
from layerscope.metrics import cka
from layerscope.training.objectives import (
    classifiers_loss,
    linear_cka,
    mean_cosine,
    similarity_loss,
)

E, N, D, K = 3, 12, 6, 5


def case() -> tuple[list[torch.Tensor], torch.Tensor, nn.Linear]:
    torch.manual_seed(0)
    states = [torch.randn(N, D, dtype=torch.float64, requires_grad=True) for _ in range(E)]
    return states, torch.randint(0, K, (N,)), nn.Linear(D, K, dtype=torch.float64)


@pytest.mark.parametrize("width", [4, 40])
def test_cka_is_the_biased_one_with_gradients(width: int):
    torch.manual_seed(0)
    one, two = (torch.randn(20, width, dtype=torch.float64, requires_grad=True) for _ in range(2))
    found = linear_cka(one, two + one)
    assert found.item() == pytest.approx(cka(one.detach(), (two + one).detach(), debiased=False))
    assert torch.autograd.gradcheck(
        linear_cka, (one[:6, :4].detach().requires_grad_(), two[:6, :4].detach())
    )


def test_a_regulariser_pulls_every_layer_to_the_last():
    states, labels, head = case()
    wanted = nn.functional.cross_entropy(head(states[2]), labels)
    for layer, state in enumerate(states[:2], start=1):
        wanted = wanted + 0.7 * (layer / 6) * (
            1 - nn.functional.cosine_similarity(state, states[2]).mean()
        )
    found = similarity_loss(states, labels, head, mean_cosine, beta=0.7)
    assert found.item() == pytest.approx(wanted.item())
    for one, two in zip(
        torch.autograd.grad(found, states), torch.autograd.grad(wanted, states), strict=True
    ):
        torch.testing.assert_close(one, two)


def test_a_head_for_each_layer_with_and_without_distillation():
    states, labels, _ = case()
    heads = [nn.Linear(D, K, dtype=torch.float64) for _ in range(E)]
    logits = [head(state) for head, state in zip(heads, states, strict=True)]
    plain = sum(
        layer / 6 * nn.functional.cross_entropy(one, labels)
        for layer, one in enumerate(logits, start=1)
    )
    assert classifiers_loss(states, labels, heads).item() == pytest.approx(plain.item())
    p = (logits[2].detach() / 2).softmax(-1)
    for layer, one in enumerate(logits[:2], start=1):
        apart = (p * (p.log() - (one / 2).log_softmax(-1))).sum(-1).mean()
        plain = plain + layer / 6 * 0.3 * 4 * apart
    found = classifiers_loss(states, labels, heads, distillation=0.3, temperature=2.0)
    assert found.item() == pytest.approx(plain.item())
    assert (torch.autograd.grad(found, states[2], retain_graph=True)[0] != 0).any()
    with pytest.raises(LayerscopeError, match="3 exits and 2 heads"):
        classifiers_loss(states, labels, heads[:2])


@pytest.mark.parametrize("similarity", [mean_cosine, linear_cka])
def test_one_row_and_no_row_have_finite_gradients(similarity):
    states, labels, head = case()
    leaves = [*states, *head.parameters()]
    one = similarity_loss([s[:1] for s in states], labels[:1], head, similarity)
    assert all(torch.isfinite(g).all() for g in torch.autograd.grad(one, leaves))
    none = torch.full_like(labels, -100)
    for loss in (
        similarity_loss(states, none, head, similarity, items=torch.tensor(5)),
        classifiers_loss(states, none, [head] * E, distillation=0.5, items=5),
    ):
        assert loss.item() == 0
        found = [g for g in torch.autograd.grad(loss, leaves, allow_unused=True) if g is not None]
        assert found and all((g == 0).all() for g in found)


def test_shares_of_the_rivals_add_up_over_processes():
    states, labels, head = case()
    parts = [slice(0, 3), slice(3, N)]
    whole = similarity_loss(states, labels, head, mean_cosine, beta=0.7)
    halves = [
        similarity_loss([s[p] for s in states], labels[p], head, mean_cosine, beta=0.7, items=N)
        for p in parts
    ]
    assert sum(halves).item() == pytest.approx(whole.item())
    heads = [nn.Linear(D, K, dtype=torch.float64) for _ in range(E)]
    whole = classifiers_loss(states, labels, heads, distillation=0.3)
    halves = [
        classifiers_loss([s[p] for s in states], labels[p], heads, distillation=0.3, items=N)
        for p in parts
    ]
    assert sum(halves).item() == pytest.approx(whole.item())
