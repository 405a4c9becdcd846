"""Self-speculation that is interrupted or fails: one line, and the model is left as it was."""

import pytest
import torch
import transformers as hf
from generation import talkers
from generation.drafting import QUIET, drafting, made, prompts, same_text
from models import zoo
from typed import refused
from unchanged import state_of

from layerscope.generation import generate

OPTIONS = talkers.GREEDY | {"max_new_tokens": 16}


class Breaks(hf.TextStreamer):
    """Raises at the fifth token."""

    def __init__(self, error):
        super().__init__(talkers.TOKENIZER)
        self.error, self.left = error, 5

    def put(self, value):
        self.left -= 1
        if not self.left:
            raise self.error


@pytest.mark.parametrize("error", [KeyboardInterrupt, OSError])
def test_the_model_is_as_it_was_after_a_streamer_that_raises(error):
    model = made(zoo.llama)
    options, before = prompts(1) | OPTIONS, state_of(model)
    speculation = drafting(model)
    with pytest.raises(error):
        model.generate(**options, custom_generate=speculation, streamer=Breaks(error))
    assert state_of(model) == before
    same_text(model, speculation, **options)


@pytest.mark.parametrize("sample", [False, True])
@pytest.mark.parametrize("where", ["prompt", "later"])
def test_logits_that_are_nan(sample, where):
    model, options = made(zoo.llama), OPTIONS | {"do_sample": sample}
    calls = []

    def spoiled(_, __, output):
        calls.append(1)
        healthy = 0 if where == "prompt" else 6
        return output if len(calls) <= healthy else output * torch.nan

    model.lm_head.register_forward_hook(spoiled)
    speculation = drafting(model)
    with refused("gives NaN: check its weights"):
        model.generate(**prompts(1), **options, custom_generate=speculation)


def test_nothing_is_written_where_the_model_gives_nan(tmp_path):
    model = made(zoo.llama)
    with torch.no_grad():
        model.model.norm.weight.fill_(torch.nan)
    with refused("NaN"):
        generate(model, talkers.prompts(), draft_layer=2, out=tmp_path / "out", **QUIET)
    assert not any(tmp_path.rglob("*.json"))


def test_lengths_that_differ_much_and_the_last_position_of_a_model():
    """Texts fill a GPT-2 of learned positions to the last, one of them from a prompt of a single token."""
    model = made(zoo.gpt2)
    room = model.config.n_positions
    seeded = torch.Generator().manual_seed(0)
    ids = torch.randint(3, zoo.V, (2, room - 12), generator=seeded)
    mask = torch.ones_like(ids)
    mask[1, :-1] = 0
    options = OPTIONS | {"max_new_tokens": 12, "eos_token_id": None}
    options |= {"input_ids": ids, "attention_mask": mask}
    same_text(model, drafting(model, tokens=11), **options)
