"""The model that is given is left as it was, and probed once."""

import copy
import gc
import pickle
import weakref
from typing import Any

import pytest
import torch
from generation.talkers import TOKENIZER, loud, prompts, told
from models import zoo

from layerscope import LayerscopeError
from layerscope.generation import decoder as opening, generate, score
from layerscope.generation.decoder import MEMORY


def state(model: Any) -> tuple[Any, ...]:
    modules = list(model.modules())
    hooks = [
        (dict(m._forward_hooks), dict(m._forward_pre_hooks), "forward" in vars(m)) for m in modules
    ]
    told = model.config.to_dict(), model.generation_config.to_dict(), [m.training for m in modules]
    return (
        *map(copy.deepcopy, told),
        hooks,
        {name: weight.clone() for name, weight in model.state_dict().items()},
    )


def unchanged(before: tuple[Any, ...], after: tuple[Any, ...]) -> None:
    assert before[:-1] == after[:-1]
    torch.testing.assert_close(after[-1], before[-1], rtol=0, atol=0, equal_nan=True)


class Stop(Exception):
    """What comes from outside, in the middle of the work."""


@pytest.mark.parametrize("call", ["full depth", "cut", "score"])
def test_the_model_is_left_as_it_was_whatever_happens(call: str) -> None:
    model = loud(zoo.llama()).train()
    model.model.layers[0].eval()
    calls, last = 0, 10**9

    def count(*_: object) -> None:
        nonlocal calls
        calls += 1
        if calls == last:
            raise Stop

    def work() -> None:
        model.__dict__.pop(MEMORY, None)  # what an earlier call found out: every one is to probe
        if call == "score":
            score(model, prompts(), processor=TOKENIZER, progress=False)
        else:
            told(model, prompts(), None if call == "full depth" else 1)

    model.model.embed_tokens.register_forward_pre_hook(count)
    before = state(model)
    work()
    unchanged(before, state(model))
    for point in (calls, calls // 2):
        last, calls = point, 0
        with pytest.raises((Stop, LayerscopeError)):  # the probe for a head tells it as its own
            work()
        assert calls >= last
        unchanged(before, state(model))


def test_a_model_that_stays_is_probed_once_and_one_that_changes_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model, probed, find = zoo.llama(), [], opening.find_layers
    monkeypatch.setattr(
        opening, "find_layers", lambda *given, **how: probed.append(1) or find(*given, **how)
    )

    def ids(model: Any, layer: int | None = None) -> tuple[int, ...]:
        made = generate(
            model, "w1 w2 w3", layers=layer, processor=TOKENIZER, max_new_tokens=6, progress=False
        )
        return made.texts["ids"][0]

    first = ids(model), ids(model, 2)
    assert (ids(model), ids(model, 2)) == first and len(probed) == 1
    with torch.no_grad():
        model.lm_head.weight.copy_(model.lm_head.weight.flip(0))
    fresh = zoo.llama()
    fresh.load_state_dict(model.state_dict())
    assert (ids(model), ids(model, 2)) == (ids(fresh), ids(fresh, 2)) != first
    model.generation_config.eos_token_id = ids(model, 2)[0]
    assert len(ids(model, 2)) == 1, "what ends a text is read again"
    there = len(probed)
    assert ids(copy.deepcopy(model), 2) == ids(model, 2) and len(probed) == there + 1
    assert b"layerscope." not in pickle.dumps(model), "it loads where this package is not"
    gone = weakref.ref(model)
    del model
    gc.collect()
    assert gone() is None
