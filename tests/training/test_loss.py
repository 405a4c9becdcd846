"""The loss of many exits: its value and every gradient held to the plain sum in float64."""

from collections.abc import Callable

import pytest
import torch
from torch import nn

from layerscope import LayerscopeError
from layerscope.training import aligned_loss, exit_weights, loss as loss_module

E, N, D, K = 4, 37, 8, 11


def case(
    dtype: torch.dtype = torch.float64, bias: bool = True
) -> tuple[list[torch.Tensor], torch.Tensor, nn.Linear]:
    torch.manual_seed(0)
    head = nn.Linear(D, K, bias=bias, dtype=dtype)
    states = [torch.randn(N, D, dtype=dtype, requires_grad=True) for _ in range(E)]
    labels = torch.randint(0, K, (N,))
    labels[::5] = -100
    return states, labels, head


def plain(
    states: list[torch.Tensor],
    labels: torch.Tensor,
    head: Callable,
    norm: Callable,
    shares: list[float],
):
    loss = nn.CrossEntropyLoss(ignore_index=-100)
    return sum(
        share * loss(head(norm(state)), labels) for share, state in zip(shares, states, strict=True)
    )


def gradients(loss: torch.Tensor, leaves: list[torch.Tensor]) -> list[torch.Tensor]:
    return list(torch.autograd.grad(loss, leaves))


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("chunk", [K, 5 * K, 1 << 22])
@pytest.mark.parametrize("linear", [True, False])
def test_value_and_gradients_are_those_of_the_plain_sum(monkeypatch, bias, chunk, linear):
    monkeypatch.setattr(loss_module, "CHUNK", chunk)
    states, labels, head = case(bias=bias)
    norm = nn.LayerNorm(D, dtype=torch.float64)
    nn.init.normal_(norm.weight)
    leaves = [*states, *head.parameters(), *norm.parameters()]
    shares = [2 * layer / (E * (E + 1)) for layer in range(1, E + 1)]
    wanted = plain(states, labels, head, norm, shares)
    found = aligned_loss(states, labels, head if linear else (lambda h: head(h)), norm)
    assert found.item() == pytest.approx(wanted.item(), abs=1e-12)
    for one, two in zip(gradients(3 * found, leaves), gradients(3 * wanted, leaves), strict=True):
        assert torch.allclose(one, two, rtol=0, atol=1e-10)


def test_no_more_than_a_chunk_of_logits_exists(monkeypatch):
    monkeypatch.setattr(loss_module, "CHUNK", 5 * K)
    sizes, own = [], nn.functional.linear
    monkeypatch.setattr(nn.functional, "linear", lambda *a: sizes.append(len(a[0])) or own(*a))
    states, labels, head = case()
    aligned_loss(states, labels, head).backward()
    assert max(sizes) == 5 and sum(sizes) == E * int((labels != -100).sum())


def test_each_label_shifts_to_the_token_before_it():
    torch.manual_seed(1)
    states = torch.randn(E, 3, 7, D, dtype=torch.float64, requires_grad=True)
    tokens = torch.randint(0, K, (3, 7))
    tokens[0, 4:] = -100
    head = nn.Linear(D, K, dtype=torch.float64)
    wanted = sum(
        share
        * nn.functional.cross_entropy(head(state[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())
        for share, state in zip(exit_weights(range(1, E + 1)), states, strict=True)
    )
    found = aligned_loss(states, tokens, head, shift=True)
    assert found.item() == pytest.approx(wanted.item(), abs=1e-12)
    assert torch.allclose(
        *gradients(found, [states]), *gradients(wanted, [states]), rtol=0, atol=1e-10
    )


def test_uneven_shares_of_two_processes_add_up_to_one():
    states, labels, head = case()
    whole = aligned_loss(states, labels, head)
    items = int((labels != -100).sum())
    halves = [
        aligned_loss([s[part] for s in states], labels[part], head, items=items)
        for part in (slice(0, 9), slice(9, N))
    ]
    assert sum(halves).item() == pytest.approx(whole.item(), abs=1e-12)


@pytest.mark.parametrize("linear", [True, False])
def test_a_share_without_labels_adds_nothing(linear: bool):
    states, labels, head = case()
    leaves = [*states, *head.parameters()]
    empty = aligned_loss(
        states, torch.full_like(labels, -100), head if linear else (lambda h: head(h)), items=7
    )
    assert empty.item() == 0 and all((g == 0).all() for g in gradients(empty, leaves))
    with pytest.raises(LayerscopeError, match="every label of this batch is ignored"):
        aligned_loss(states, torch.full_like(labels, -100), head, items=0)


def test_half_precision_is_as_near_as_its_products():
    states, labels, head = case(torch.float32)
    exact = gradients(aligned_loss([s.double() for s in states], labels, head.double()), states)
    head = head.float()
    with torch.autocast("cpu", torch.bfloat16):
        loss = aligned_loss(states, labels, head)
    assert loss.dtype == torch.float32
    for one, two in zip(gradients(loss, states), exact, strict=True):
        assert one.dtype == torch.float32 and (one - two).norm() < 1e-2 * two.norm()
    half = [s.detach().bfloat16().requires_grad_() for s in states]
    loss = aligned_loss(half, labels, head.bfloat16())
    for one, two in zip(gradients(loss, half), exact, strict=True):
        assert one.dtype == torch.bfloat16 and (one.float() - two).norm() < 2e-2 * two.norm()


def test_weights_keep_the_true_depths_where_exits_are_few():
    assert exit_weights([3, 6]) == pytest.approx((1 / 3, 2 / 3))
    assert exit_weights(range(1, 13))[0] == pytest.approx(2 / (12 * 13))
    assert exit_weights([1, 2, 3], weights="uniform") == pytest.approx((1 / 3,) * 3)
    assert exit_weights([1, 2], weights=[1, 3]) == (0.25, 0.75)
    states, labels, head = case()
    assert aligned_loss(states[:2], labels, head, layers=[3, 6]).item() == pytest.approx(
        aligned_loss(states[:2], labels, head, weights=[1, 2]).item()
    )


def test_frozen_parts_get_no_gradient():
    states, labels, head = case()
    head.requires_grad_(False)
    aligned_loss(states, labels, head).backward()
    assert head.weight.grad is None and states[0].grad is not None
    frozen = [s.detach() for s in states]
    head.requires_grad_(True)
    aligned_loss(frozen, labels, head).backward()
    assert head.weight.grad is not None
    with torch.no_grad():
        assert not aligned_loss(frozen, labels, head).requires_grad


@pytest.mark.parametrize(
    ("change", "line"),
    [
        ({"labels": torch.full((N,), -100)}, "every label of this batch is ignored"),
        ({"labels": torch.full((N,), K)}, "label 11 is outside the head's 11 classes, 0 to 10"),
        ({"labels": torch.full((N,), -3)}, "label -3 is outside the head's 11 classes"),
        ({"labels": torch.zeros(N - 1, dtype=torch.long)}, "give one label for each state"),
        ({"weights": "quadratic"}, "weights 'quadratic' does not exist"),
        ({"weights": [1, 2]}, "weights are 2 numbers for 4 exits: give one for each exit"),
        ({"weights": [0, 0, 0, 0]}, "not all 0"),
        ({"layers": [1, 2]}, "name the depth of each exit"),
        ({"layers": [0, 1, 2, 3]}, "give increasing layers from 1"),
    ],
)
def test_wrong_input_is_told(change, line):
    states, labels, head = case()
    with pytest.raises(LayerscopeError, match=line):
        aligned_loss(states, change.pop("labels", labels), head, **change)


def test_exits_of_several_widths_are_told():
    states, labels, head = case()
    with pytest.raises(
        LayerscopeError, match=r"exit 1 has states of shape \(37, 4\) and the last one \(37, 8\)"
    ):
        aligned_loss([states[0], states[1][:, :4], states[3]], labels, head)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_exponentials_and_sums_of_half_precision_are_taken_in_float32(dtype: torch.dtype):
    states, labels, head = case(dtype)
    wanted = sum(
        share * nn.functional.cross_entropy(head(state).float(), labels, ignore_index=-100)
        for share, state in zip(exit_weights(range(1, E + 1)), states, strict=True)
    )
    assert aligned_loss(states, labels, head).item() == pytest.approx(wanted.item(), rel=1e-6)
