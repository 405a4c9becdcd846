"""Translators recover a rotation that was planted between the layers."""

import tiny
import torch
from safetensors.torch import load_file
from test_translators import WEIGHTS, tuned
from torch import nn


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


def test_a_planted_rotation_is_recovered(tmp_path):
    model, turn = rotated()
    reading = tuned(model, tmp_path / "new", steps=150, blocks="model.layers")
    first, second = reading.tuned.to_dict(orient="records")
    # what the first block reads needs no translation: the second gives it again
    assert first["kl_plain"] < 1e-6
    assert second["kl_plain"] > 2.0 and second["kl_tuned"] < 0.1
    whole = torch.eye(32) + load_file(tmp_path / "new" / WEIGHTS)["1.weight"]
    flat = whole.flatten(), turn.T.flatten()
    assert torch.nn.functional.cosine_similarity(*flat, 0) > 0.7
