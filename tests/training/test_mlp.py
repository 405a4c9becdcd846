"""Plain MLPs, with and without residual connections: trained, scored, left early, against passes written out."""

from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from sklearn.datasets import load_digits
from tiny import one_thread
from torch import nn

import layerscope
from layerscope import LayerscopeError

__all__ = ["one_thread"]
DEPTH, WIDTH = 4, 48


class Residual(nn.Sequential):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + super().forward(x)


def mlp(block: type[nn.Sequential], classes: int = 10) -> nn.Sequential:
    torch.manual_seed(0)
    blocks = [block(nn.Linear(WIDTH, WIDTH), nn.ReLU()) for _ in range(DEPTH)]
    return nn.Sequential(nn.Linear(64, WIDTH), *blocks, nn.Linear(WIDTH, classes))


def digits() -> tuple[np.ndarray, np.ndarray]:
    rows, labels = load_digits(return_X_y=True)
    return (rows / 16).astype(np.float32), labels


def by_hand(module: nn.Sequential, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The states [L, N, D] and the probabilities [L, N, K] of every layer, in float64."""
    states, state = [], module[0].double()(torch.from_numpy(rows).double())
    for block in module[1:-1]:
        state = block.double()(state)
        states.append(state)
    chances = module[-1].double()(torch.stack(states)).softmax(-1)
    return torch.stack(states).detach().numpy(), chances.detach().numpy()


@pytest.mark.parametrize("block", [Residual, nn.Sequential])
def test_an_mlp_is_trained_profiled_and_left_early(tmp_path: Path, block: type[nn.Sequential]):
    (rows, labels), module = digits(), mlp(block)
    learnt, held = (rows[:600], labels[:600]), (rows[600:800], labels[600:800])
    out = layerscope.train(
        module,
        learnt,
        held,
        out=tmp_path / "out",
        max_steps=40,
        learning_rate=2e-3,
        objective="aligned",
        progress=False,
    )
    saved = load_file(out / "model.safetensors")
    assert all(torch.equal(saved[name], weight) for name, weight in module.state_dict().items()), (
        "trained in place"
    )
    history = layerscope.open_run(out / "history")
    run = layerscope.profile(module, held, out=tmp_path / "run", progress=False)
    report = layerscope.exits(
        module, held, threshold=0.5, min_speedup=1e-3, out=tmp_path / "exits", progress=False
    )
    states, chances = by_hand(module, held[0])
    right = (chances.argmax(-1) == held[1]).mean(-1)
    assert right[-1] > 0.2 and history.depth == run.depth == report.depth == DEPTH
    assert history.metric("layer_accuracy").tolist() == pytest.approx(right.tolist())
    assert run.metric("layer_accuracy")[1:].tolist() == pytest.approx(right.tolist())
    moved = states - states.mean(1, keepdims=True)
    unit = moved / np.linalg.norm(moved, axis=-1, keepdims=True)
    cosines = (unit * unit[-1]).sum(-1).mean(-1)
    assert history.metric("cosine_similarity")[DEPTH].tolist() == pytest.approx(
        cosines.tolist(), abs=1e-5
    )
    sure = np.vstack([chances.max(-1)[:-1] >= 0.5, np.ones((1, 200), bool)])
    left = sure.argmax(0)
    assert report.layers["leaving"].tolist() == np.bincount(left, minlength=DEPTH).tolist()
    assert report.accuracy == pytest.approx(
        (chances[left, range(200)].argmax(-1) == held[1]).mean()
    )
    assert (
        "no exit model is written" in " ".join(report.notes)
        and not (tmp_path / "exits" / "model").exists()
    )
    card = (out / "README.md").read_text()
    assert "load_model(model, " in card and "AutoModel" not in card


def test_an_mlp_resumes_where_it_was_killed(tmp_path: Path):
    (rows, labels), given = (
        digits(),
        {"max_steps": 12, "eval_every": 4, "progress": False, "learning_rate": 1e-3},
    )
    learnt, held = (rows[:300], labels[:300]), (rows[300:400], labels[300:400])
    whole, again = mlp(Residual), mlp(Residual)
    layerscope.train(whole, learnt, held, out=tmp_path / "whole", **given)

    class Killed(Exception):
        pass

    def stop(*_: object) -> None:
        raise Killed

    watched = mlp(Residual)
    seen: list[int] = []
    watched[0].register_forward_hook(lambda *_: seen.append(1) if watched.training else None)
    watched[1].register_forward_hook(
        lambda *_: stop() if len(seen) > 9 and watched.training else None
    )
    with pytest.raises(Killed):
        layerscope.train(watched, learnt, held, out=tmp_path / "killed", **given)
    layerscope.train(again, learnt, held, out=tmp_path / "killed", **given)
    for name, weight in whole.state_dict().items():
        assert torch.equal(again.state_dict()[name], weight), name


def test_what_cannot_be_trained_is_refused(tmp_path: Path):
    rows, labels = digits()
    with pytest.raises(LayerscopeError, match="outside the head's 4 classes"):
        layerscope.train(
            mlp(Residual, 4), (rows, labels), out=tmp_path / "a", max_steps=2, progress=False
        )
    with pytest.raises(LayerscopeError, match="has no labels, which classification learns from"):
        layerscope.train(mlp(Residual), rows, out=tmp_path / "b", progress=False)
    with pytest.raises(LayerscopeError, match="a str|a list cannot be trained here"):
        layerscope.train([mlp(Residual)], (rows, labels), out=tmp_path / "c", progress=False)
    with pytest.raises(LayerscopeError, match="a plain module is probed with data"):
        layerscope.train(
            nn.Sequential(nn.Conv2d(1, 1, 3)), (rows, labels), out=tmp_path / "d", progress=False
        )
    assert not list(tmp_path.iterdir()), "nothing is left of a start that failed"
