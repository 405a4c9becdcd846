"""The losses over exits: values and every gradient held to plain sums in float64."""

import math

import pytest
import torch
from torch import nn
from torch.nn.functional import cosine_similarity, cross_entropy, kl_div, linear
from typed import refused

from layerscope.training import (
    aligned_loss,
    exit_weights,
    loss as loss_module,
)
from layerscope.training.objectives import (
    Objective,
    classifiers_loss,
    linear_cka,
    mean_cosine,
    similarity_loss,
)

E, N, D, K = 3, 37, 8, 11
SHARES = [1 / 6, 2 / 6, 3 / 6]
EVERY = {"weights": "linear", "layers": (1, 2, 3)}


class Case:
    """States of three exits, labels of which some are ignored, a head for all and one for each."""

    def __init__(self, bias=True):
        torch.manual_seed(0)
        self.head, *heads = (nn.Linear(D, K, bias).double() for _ in range(E))
        self.heads = [*heads, self.head]
        self.states = [torch.randn(N, D).double().requires_grad_() for _ in range(E)]
        self.labels = torch.randint(0, K, (N,))
        self.labels[::5] = -100
        self.counts = self.labels != -100

    def rows(self):
        return [state[self.counts] for state in self.states]

    def loss(self, logits):
        return cross_entropy(logits, self.labels[self.counts])


def gradients(loss, leaves):
    return list(torch.autograd.grad(loss, leaves))


def same(one, two, leaves):
    """Compare two losses and their gradients."""
    assert one.item() == pytest.approx(two.item(), abs=1e-12)
    slopes = gradients(3 * one, leaves), gradients(3 * two, leaves)
    torch.testing.assert_close(*slopes, rtol=0, atol=1e-10)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("chunk", [5 * K, 1 << 22])
@pytest.mark.parametrize("is_linear", [True, False])
def test_the_aligned_loss_is_the_plain_sum(monkeypatch, bias, chunk, is_linear):
    monkeypatch.setattr(loss_module, "CHUNK", chunk)
    case, norm = Case(bias=bias), nn.LayerNorm(D, dtype=torch.float64)
    nn.init.normal_(norm.weight)
    head = case.head if is_linear else lambda rows: case.head(rows)
    wanted = sum(
        share * case.loss(case.head(norm(rows)))
        for share, rows in zip(SHARES, case.rows(), strict=True)
    )
    leaves = [*case.states, *case.head.parameters(), *norm.parameters()]
    normed = [norm(state) for state in case.states]
    same(aligned_loss(normed, case.labels, head), wanted, leaves)


def test_each_label_shifts_to_the_token_before_it():
    torch.manual_seed(1)
    states = torch.randn(E, 3, 7, D, dtype=torch.float64, requires_grad=True)
    tokens, head = torch.randint(0, K, (3, 7)), nn.Linear(D, K, dtype=torch.float64)
    tokens[0, 4:] = -100
    logits = [head(state[:, :-1]).flatten(0, 1) for state in states]
    losses = [cross_entropy(one, tokens[:, 1:].flatten()) for one in logits]
    wanted = sum(share * loss for share, loss in zip(SHARES, losses, strict=True))
    same(aligned_loss(states, tokens, head, shift=True), wanted, [states])


@pytest.mark.parametrize("similarity", [mean_cosine, linear_cka])
def test_a_regulariser_pulls_every_layer_to_the_last(similarity):
    case = Case()
    *others, last = case.rows()
    wanted = case.loss(case.head(last))
    for share, rows in zip(SHARES, others, strict=False):
        alike = cosine_similarity(rows, last).mean()
        if similarity is linear_cka:
            one, two = rows - rows.mean(0), last - last.mean(0)
            alike = (
                (one.T @ two).norm() ** 2 / (one.T @ one).norm() / (two.T @ two).norm()
            )
        wanted = wanted + 0.7 * share * (1 - alike)
    how = {"similarity": similarity, "beta": 0.7} | EVERY
    found = similarity_loss(case.states, case.labels, case.head, **how)
    same(found, wanted, [*case.states, *case.head.parameters()])


@pytest.mark.parametrize("distillation", [0.0, 0.3])
def test_a_head_for_each_layer_with_and_without_distillation(distillation):
    case = Case()
    logits = [head(rows) for head, rows in zip(case.heads, case.rows(), strict=True)]
    p = logits[-1].detach().softmax(-1)
    wanted = 0.0
    for share, one in zip(SHARES, logits, strict=True):
        # of the last exit to itself it is 0
        apart = kl_div(one.log_softmax(-1), p, reduction="batchmean")
        wanted = wanted + share * (case.loss(one) + distillation * apart)
    inputs, how = (case.states, case.labels), {"distillation": distillation}
    weights = nn.ModuleList(case.heads).parameters()
    found = classifiers_loss(*inputs, case.heads, **how, **EVERY)
    same(found, wanted, [*case.states, *weights])
    shared = classifiers_loss(*inputs, [case.head] * 3, **how, **EVERY)
    found = Objective(**how).loss(*inputs, case.head, (1, 2, 3))
    same(found, shared, [*case.states, *case.head.parameters()])
    with refused("3 exits and 2 heads"):
        classifiers_loss(*inputs, case.heads[:2], **how, **EVERY)


def test_one_row_alone_has_finite_gradients():
    case = Case()
    states, leaves = [state[1:2] for state in case.states], [*case.states]
    how = {"similarity": linear_cka, "beta": 1.0} | EVERY
    loss = similarity_loss(states, case.labels[1:2], case.head, **how)
    assert all(torch.isfinite(slope).all() for slope in gradients(loss, leaves))


def test_a_share_without_labels_adds_nothing():
    case = Case()
    ignored = torch.full_like(case.labels, -100)
    assert aligned_loss(case.states, ignored, case.head, items=7).item() == 0
    with refused("every label of this batch is ignored"):
        aligned_loss(case.states, ignored, case.head, items=0)


def test_weights_keep_the_true_depths_where_exits_are_few():
    assert exit_weights([3, 6]) == pytest.approx((1 / 3, 2 / 3))
    assert exit_weights(range(1, 13))[0] == pytest.approx(2 / (12 * 13))
    assert exit_weights([1, 2, 3], weights="uniform") == pytest.approx((1 / 3,) * 3)
    assert exit_weights([1, 2], weights=[1, 3]) == (0.25, 0.75)


@pytest.mark.parametrize(
    "change, line",
    [
        (
            {"labels": torch.full((N,), K)},
            "label 11 is outside the head's 11 classes, 0 to 10",
        ),
        (
            {"labels": torch.zeros(N - 1, dtype=torch.long)},
            "give one label for each state",
        ),
        ({"weights": "quadratic"}, "weights 'quadratic' does not exist"),
        ({"weights": [1, 2]}, "weights are 2 numbers for 3 exits"),
        ({"weights": [0, 0, 0]}, "not all 0"),
        ({"weights": [1, math.inf, -math.inf]}, "give each at least 0"),
        ({"layers": [1, 2]}, "name the depth of each exit"),
        ({"layers": [0, 1, 2]}, "give increasing layers from 1"),
        (
            {"states": [torch.zeros(N, width) for width in (D, 4, D)]},
            r"exit 1 has states of shape \(37, 4\) and the last",
        ),
    ],
)
def test_wrong_input_is_told(change, line):
    case = Case()
    inputs = {"states": case.states, "labels": case.labels, "head": case.head}
    with refused(line):
        aligned_loss(**inputs | change)


def test_no_more_than_a_chunk_of_logits_exists(monkeypatch):
    monkeypatch.setattr(loss_module, "CHUNK", 5 * K)
    sizes, case = [], Case()
    monkeypatch.setattr(
        nn.functional, "linear", lambda *a: sizes.append(len(a[0])) or linear(*a)
    )
    aligned_loss(case.states, case.labels, case.head).backward()
    assert max(sizes) == 5 and sum(sizes) == E * int(case.counts.sum())


@pytest.mark.parametrize("frozen", ["head", "states"])
def test_frozen_parts_get_no_gradient(frozen):
    case = Case()
    parts = {"head": [*case.head.parameters()], "states": case.states}
    for leaf in parts[frozen]:
        leaf.requires_grad_(False)
    aligned_loss(case.states, case.labels, case.head).backward()
    for name, leaves in parts.items():
        assert {leaf.grad is None for leaf in leaves} == {name == frozen}
