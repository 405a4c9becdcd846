"""Translators recover a rotation that was planted between the layers, and a wrong trainer does not."""

import pytest
import tiny
import torch
from safetensors.torch import load_file
from test_translators import WEIGHTS, tuned
from torch import nn

from layerscope.logit_lens import translators


class Turned(nn.Module):
    """A block that gives its input in another basis."""

    def __init__(self, turn):
        super().__init__()
        self.turn = nn.Parameter(turn)

    def forward(self, hidden_states, *args, **kwargs):
        return hidden_states @ self.turn.T


def rotated():
    """Return a Llama whose first block turns the basis and whose second one turns it back, and the rotation."""
    model = tiny.llama()
    turn = torch.linalg.qr(
        torch.randn(32, 32, generator=torch.Generator().manual_seed(5))
    )[0]
    model.model.layers = nn.ModuleList([Turned(turn), Turned(turn.T)])
    with torch.no_grad():
        model.lm_head.weight.copy_(model.model.embed_tokens.weight * 3)
        model.model.norm.weight.fill_(1.0)
    model.config.num_hidden_layers = 2
    return model, turn


def recovered(model, turn, folder):
    reading = tuned(model, folder, steps=150, blocks="model.layers")
    first, second = reading.tuned.to_dict(orient="records")
    # what the first block reads needs no translation: the second gives it again
    assert first["kl_plain"] < 1e-6 and first["agreement_plain"] == 1.0
    assert second["agreement_plain"] < 0.2 and second["kl_plain"] > 2.0
    whole = torch.eye(32) + load_file(folder / WEIGHTS)["1.weight"]
    likeness = torch.nn.functional.cosine_similarity(
        whole.flatten(), turn.T.flatten(), 0
    )
    return (
        second["agreement_tuned"] > 0.95 and second["kl_tuned"] < 0.1 and likeness > 0.7
    )


def test_a_planted_rotation_is_recovered(tmp_path):
    assert recovered(*rotated(), tmp_path / "new")


@pytest.mark.parametrize(
    "wrong",
    [
        lambda target, predicted: -(target.exp() * (target - predicted)).sum(-1),
        lambda target, predicted: (
            target.flip(0).exp() * (target.flip(0) - predicted)
        ).sum(-1),
    ],
    ids=["away", "of-another-token"],
)
def test_a_wrong_trainer_does_not_recover_it(tmp_path, monkeypatch, wrong):
    right, training = translators._divergence, translators._backward

    def trains(*args):
        with monkeypatch.context() as patch:
            patch.setattr(translators, "_divergence", wrong)
            return training(*args)

    monkeypatch.setattr(translators, "_backward", trains)
    assert translators._divergence is right and not recovered(
        *rotated(), tmp_path / "new"
    )
