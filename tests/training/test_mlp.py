"""Plain MLPs, with and without residual connections: trained, scored, left early, against passes written out."""

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from sklearn.datasets import load_digits
from torch import nn
from trainers import same
from typed import refused

import layerscope

DEPTH, WIDTH = 4, 48
ROWS, LABELS = load_digits(return_X_y=True)
DATA = (ROWS / 16).astype(np.float32), LABELS


class Residual(nn.Sequential):
    def forward(self, x):
        return x + super().forward(x)


def mlp(block=Residual, classes=10):
    torch.manual_seed(0)
    blocks = [block(nn.Linear(WIDTH, WIDTH), nn.ReLU()) for _ in range(DEPTH)]
    return nn.Sequential(nn.Linear(64, WIDTH), *blocks, nn.Linear(WIDTH, classes))


def digits(start, end):
    return tuple(part[start:end] for part in DATA)


@torch.no_grad()
def chances_of(module, rows):
    """The probabilities [L, N, K] at every layer, in float64."""
    first, *blocks, head = module.double()
    state, logits = first(torch.from_numpy(rows).double()), []
    for block in blocks:
        state = block(state)
        logits.append(head(state))
    return torch.stack(logits).softmax(-1).numpy()


def test_an_mlp_is_trained_profiled_and_left_early(tmp_path):
    module, held = mlp(), digits(600, 800)
    how = {"max_steps": 40, "learning_rate": 2e-3}
    out = layerscope.train(module, digits(0, 600), held, out=tmp_path / "out", **how)
    assert same(load_file(out / "model.safetensors"), module.state_dict())
    history = layerscope.open_run(out / "history")
    run = layerscope.profile(module, held, out=tmp_path / "run")
    leaving = {"threshold": 0.5, "min_speedup": 1e-3}
    report = layerscope.exits(module, held, out=tmp_path / "exits", **leaving)
    chances = chances_of(module, held[0])
    right = (chances.argmax(-1) == held[1]).mean(-1)
    assert right[-1] > 0.2 and history.depth == run.depth == report.depth == DEPTH
    assert history.metric("layer_accuracy").tolist() == pytest.approx(right.tolist())
    assert run.metric("layer_accuracy")[1:].tolist() == pytest.approx(right.tolist())
    sure = chances.max(-1) >= 0.5
    sure[-1] = True
    left = sure.argmax(0)
    leaving = np.bincount(left, minlength=DEPTH).tolist()
    assert report.layers["leaving"].tolist() == leaving
    early = chances[left, range(200)].argmax(-1)
    assert report.accuracy == pytest.approx((early == held[1]).mean())
    assert "no exit model is written" in " ".join(report.notes)
    assert not (tmp_path / "exits" / "model").exists()
    card = (out / "README.md").read_text()
    assert "load_model(model, " in card and "AutoModel" not in card


@pytest.mark.parametrize(
    "model, data, line",
    [
        (mlp(classes=4), DATA, "outside the head's 4 classes"),
        (mlp(), DATA[0], "has no labels, which classification learns from"),
        ([mlp()], DATA, "a list cannot be trained here"),
        (nn.Sequential(nn.Conv2d(1, 1, 3)), DATA, "a plain module is probed with data"),
    ],
)
def test_what_cannot_be_trained_is_refused(tmp_path, model, data, line):
    with refused(line):
        layerscope.train(model, data, out=tmp_path / "out", max_steps=2)
    assert not list(tmp_path.iterdir()), "nothing is left of a start that failed"
