"""The model that is given is left as it was."""

import copy

import pytest
import torch
from generation.talkers import loud, prompts, score, told
from models import zoo

from layerscope import LayerscopeError


def state(model):
    modules = list(model.modules())
    hooks = [
        (dict(m._forward_hooks), dict(m._forward_pre_hooks), "forward" in vars(m))
        for m in modules
    ]
    told = (
        model.config.to_dict(),
        model.generation_config.to_dict(),
        [m.training for m in modules],
    )
    return (
        *map(copy.deepcopy, told),
        hooks,
        {name: weight.clone() for name, weight in model.state_dict().items()},
    )


def unchanged(before, after):
    assert before[:-1] == after[:-1]
    torch.testing.assert_close(after[-1], before[-1], rtol=0, atol=0, equal_nan=True)


class Stop(Exception):
    """What comes from outside, in the middle of the work."""


@pytest.mark.parametrize("call", ["full depth", "cut", "score"])
def test_the_model_is_left_as_it_was_whatever_happens(call):
    model = loud(zoo.llama()).train()
    model.model.layers[0].eval()
    calls, last = 0, 10**9

    def count(*_):
        nonlocal calls
        calls += 1
        if calls == last:
            raise Stop

    def work():
        if call == "score":
            score(model, prompts())
        else:
            told(model, prompts(), None if call == "full depth" else 1)

    model.model.embed_tokens.register_forward_pre_hook(count)
    before = state(model)
    work()
    unchanged(before, state(model))
    for point in (calls, calls // 2):
        last, calls = point, 0
        # the probe for a head tells it as its own
        with pytest.raises((Stop, LayerscopeError)):
            work()
        assert calls >= last
        unchanged(before, state(model))
