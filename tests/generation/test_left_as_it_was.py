"""The model that is given is left as it was."""

import pytest
from generation.talkers import loud, prompts, score, told
from models import zoo
from unchanged import state_of

from layerscope import LayerscopeError


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
    before = state_of(model)
    work()
    assert state_of(model) == before
    for point in (calls, calls // 2):
        last, calls = point, 0
        # the probe for a head tells it as its own
        with pytest.raises((Stop, LayerscopeError)):
            work()
        assert calls >= last
        assert state_of(model) == before
