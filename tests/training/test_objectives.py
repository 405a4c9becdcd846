"""Each objective is its own loss, with its own settings, in its own steps."""

from typing import Any

import pytest
import torch
from torch import nn

from layerscope.training import Objective, aligned_loss
from layerscope.training.objectives import classifiers_loss, linear_cka, mean_cosine, similarity_loss

LAYERS, WEIGHTS = [2, 3, 7], [0.2, 0.5, 0.3]


def losses(weights: Any, layers: Any) -> dict[str, tuple[Objective, float]]:
    """Every objective, and its loss by a direct call."""
    torch.manual_seed(0)
    states, labels = list(torch.randn(3, 9, 6, dtype=torch.float64)), torch.randint(0, 4, (9,))
    head, *heads = (nn.Linear(6, 4, dtype=torch.float64) for _ in range(3))
    more = {"weights": weights, "layers": layers}
    wanted = {
        Objective("aligned", weights=weights): aligned_loss(states, labels, head, **more),
        Objective("cosine", weights=weights, beta=0.3): similarity_loss(states, labels, head, mean_cosine, 0.3, **more),
        Objective("cka", weights=weights, beta=2.0): similarity_loss(states, labels, head, linear_cka, 2.0, **more),
        Objective("classifiers", weights=weights, distillation=0.4, temperature=3.0): classifiers_loss(
            states, labels, [*heads, head], distillation=0.4, temperature=3.0, **more
        ),
    }
    return {
        objective.name: (objective.loss(states, labels, head, layers, nn.ModuleList(heads)).item(), value.item())
        for objective, value in wanted.items()
    }


@pytest.mark.parametrize("weights", ["linear", tuple(WEIGHTS)])
def test_an_objective_hands_on_all_its_settings(weights: Any):
    found = losses(weights, LAYERS)
    for name, (one, two) in found.items():
        assert one == pytest.approx(two, rel=1e-12), name
    assert len({round(value, 6) for _, value in found.values()}) == 4
    if weights == "linear":  # the depths count
        assert all(found[name][0] != pytest.approx(other[0]) for name, other in losses(weights, [1, 2, 3]).items())


def test_schedules_count_optimiser_steps_from_one():
    steps = range(1, 6)
    assert [Objective(schedule="alternate").counts_in(step) for step in steps] == [False, True, False, True, False]
    assert all(Objective().counts_in(step) for step in steps)
    assert not any(Objective("standard").counts_in(step) for step in steps)
