"""Each objective is its own loss, with its own settings, in its own steps."""

import math
from typing import Any

import pytest
import torch
from torch import nn

from layerscope import LayerscopeError
from layerscope.training import Objective, aligned_loss, exit_weights
from layerscope.training.objectives import (
    classifiers_loss,
    linear_cka,
    mean_cosine,
    similarity_loss,
)

LAYERS, WEIGHTS = [2, 3, 7], [0.2, 0.5, 0.3]


def losses(weights: Any, layers: Any) -> dict[str, tuple[Objective, float]]:
    """Every objective, and its loss by a direct call."""
    torch.manual_seed(0)
    states, labels = list(torch.randn(3, 9, 6, dtype=torch.float64)), torch.randint(0, 4, (9,))
    head, *heads = (nn.Linear(6, 4, dtype=torch.float64) for _ in range(3))
    more = {"weights": weights, "layers": layers}
    wanted = {
        Objective("aligned", weights=weights): aligned_loss(states, labels, head, **more),
        Objective("cosine", weights=weights, beta=0.3): similarity_loss(
            states, labels, head, mean_cosine, 0.3, **more
        ),
        Objective("cka", weights=weights, beta=2.0): similarity_loss(
            states, labels, head, linear_cka, 2.0, **more
        ),
        Objective(
            "classifiers", weights=weights, distillation=0.4, temperature=3.0
        ): classifiers_loss(
            states, labels, [*heads, head], distillation=0.4, temperature=3.0, **more
        ),
    }
    return {
        objective.name: (
            objective.loss(states, labels, head, layers, nn.ModuleList(heads)).item(),
            value.item(),
        )
        for objective, value in wanted.items()
    }


@pytest.mark.parametrize("weights", ["linear", tuple(WEIGHTS)])
def test_an_objective_hands_on_all_its_settings(weights: Any):
    found = losses(weights, LAYERS)
    for name, (one, two) in found.items():
        assert one == pytest.approx(two, rel=1e-12), name
    assert len({round(value, 6) for _, value in found.values()}) == 4
    if weights == "linear":  # the depths count
        assert all(
            found[name][0] != pytest.approx(other[0])
            for name, other in losses(weights, [1, 2, 3]).items()
        )


def trained(
    steps: int, exits: int = 3, name: Any = "aligned", **options: Any
) -> list[tuple[int, ...]]:
    return [
        Objective(name, **options).trained_in(step, steps, exits) for step in range(1, steps + 1)
    ]


def test_schedules_count_optimiser_steps_from_one():
    every = (0, 1, 2)
    assert trained(5, schedule="alternate") == [(), every, (), every, ()]
    assert trained(3) == [every] * 3
    assert trained(3, name="standard") == [()] * 3
    with pytest.raises(LayerscopeError, match="the objective 'standard' trains one exit"):
        trained(3, name="standard", schedule="rotating")


def test_rotating_trains_every_exit_once_in_its_rotation_and_the_last_always():
    assert trained(4, 5, schedule="rotating", rotation=2) == [(0, 2, 4), (1, 3, 4)] * 2
    assert trained(4, 4, schedule="rotating") == [(0, 3), (1, 3), (2, 3), (0, 3)]
    assert trained(2, 1, schedule="rotating") == [(0,)] * 2
    for exits, rotation in ((8, 3), (5, 7), (6, 5)):
        found = trained(rotation, exits, schedule="rotating", rotation=rotation)
        assert all(sum(i in step for step in found) == 1 for i in range(exits - 1))
        assert max(map(len, found)) <= math.ceil(exits / rotation) + 1 and all(
            step[-1] == exits - 1 for step in found
        )


def test_gradual_adds_an_exit_from_the_last_down_until_half_of_the_steps():
    assert trained(8, 4, schedule="gradual") == [
        (3,),
        (2, 3),
        (1, 2, 3),
        *[(0, 1, 2, 3)] * 5,
    ]
    found = trained(100, 5, schedule="gradual")
    assert [found.index(tuple(range(first, 5))) for first in (4, 3, 2, 1, 0)] == [0, 10, 20, 30, 40]


@pytest.mark.parametrize("depth", [1, 2, 3, 12])
@pytest.mark.parametrize("scale", [0.2, 1.0])
def test_weights_of_layerskip_are_those_of_its_equations(depth: int, scale: float):
    def e(layer: int) -> float:  # section 4.1.2, layers from 0
        return (
            scale * sum(range(layer + 1))
            if layer < depth - 1
            else depth - 1 + scale * sum(range(depth - 1))
        )

    plain = [e(layer) for layer in range(depth)] if depth > 1 else [1.0]
    found = exit_weights(range(1, depth + 1), weights="layerskip", beta=scale)
    assert found == pytest.approx([one / sum(plain) for one in plain], rel=1e-12)
    if depth == 12:
        kept = [3, 7, 11]
        torch.manual_seed(0)
        states, labels = list(torch.randn(3, 9, 6, dtype=torch.float64)), torch.randint(0, 4, (9,))
        head = nn.Linear(6, 4, dtype=torch.float64)
        losses = [nn.functional.cross_entropy(head(state), labels).item() for state in states]
        wanted = sum(plain[i] * loss for i, loss in zip(kept, losses, strict=True)) / sum(
            plain[i] for i in kept
        )
        objective = Objective(weights="layerskip", beta=scale)
        loss = objective.loss(states, labels, head, range(1, 13), trained=kept)
        assert loss.item() == pytest.approx(wanted, rel=1e-12)


def test_layers_drop_out_as_the_equations_say():
    steps, depth = 50, 7
    for step in (1, 20, 50):
        d = [math.exp(layer * math.log(2) / (depth - 1)) - 1 for layer in range(depth)]
        s = math.exp((step - 1) * math.log(2) / (steps - 1)) - 1
        fine, new = (
            Objective(layer_dropout=0.2, from_scratch=new).dropped_in(step, steps, depth)
            for new in (False, True)
        )
        assert fine == pytest.approx([0.2 * rate for rate in d]) and new == pytest.approx(
            [s * rate for rate in fine]
        )
    assert Objective(layer_dropout=0.2).dropped_in(1, 1, 1) == (0.0,)
    with pytest.raises(
        LayerscopeError,
        match="'always' has no rotation: leave it out, or try `schedule='rotating'`",
    ):
        Objective(rotation=2)
