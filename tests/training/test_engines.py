"""Engines around the trainer: two processes, mixed precision, adapters, checkpointed activations."""

import json
import math
from pathlib import Path
from typing import Any

import engines
import peft
import pytest
import torch
from commands import Forks
from tiny import one_thread
from torch import nn
from torch.testing import assert_close

from layerscope.training import aligned_loss
from layerscope.training.objectives import linear_cka, mean_cosine, similarity_loss

__all__ = ["one_thread"]
NEAR = 1e-5


@pytest.fixture(scope="module")
def two_processes(
    forks: Forks, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Any]:
    """What two real processes find, each with half a batch, where DDP is told that no weight goes unused."""
    folder = tmp_path_factory.mktemp("two")
    options = json.dumps({"ddp_find_unused_parameters": False})
    here = str(Path(engines.__file__).parent)
    script = f"import runpy, sys\nsys.path.append({here!r})\nrunpy.run_path({engines.__file__!r}, run_name='__main__')"
    ends = [
        running.wait(300) for running in forks.together(folder, options, script=script)
    ]
    assert [ended.status for ended in ends] == [0, 0], ends[0].err[-2000:]
    return json.loads((folder / "found.json").read_text())


@pytest.mark.parametrize("name", engines.RUNS)
def test_two_processes_train_as_one_with_twice_the_batch(
    two_processes, tmp_path, name: str
):
    losses, model = engines.train(name, tmp_path, engines.BATCH)
    assert len(losses) == engines.STEPS
    assert two_processes["losses"][name] == pytest.approx(losses, rel=NEAR)
    weights = model.state_dict()
    for key, found in two_processes["weights"][name].items():
        assert_close(torch.tensor(found), weights[key], rtol=0, atol=NEAR, msg=key)


def test_weights_in_shards_get_the_gradients_of_whole_ones(
    two_processes: dict[str, Any],
):
    loss, model = engines.step(lambda model: model)
    loss.backward()
    assert len(two_processes["sharded"]) > 30
    for key, found in two_processes["sharded"].items():
        slope = model.get_parameter(key).grad
        assert_close(torch.tensor(found), slope, rtol=1e-5, atol=1e-6, msg=key)


MIXED = 0.02
"""Relative distance of a loss in bfloat16 to float32; a product keeps 8 bits."""


@pytest.mark.parametrize("name", ["tokens, always", "classes, alternate"])
@pytest.mark.parametrize("pure", [False, True], ids=["autocast", "pure"])
def test_bfloat16_trains_near_to_float32(
    tmp_path: Path, name: str, pure: bool, monkeypatch
):
    wide, _ = engines.train(name, tmp_path, engines.BATCH)
    make, objective = engines.RUNS[name]
    if pure:
        monkeypatch.setitem(engines.RUNS, name, (lambda: make().bfloat16(), objective))
    losses, model = engines.train(name, tmp_path, engines.BATCH, bf16=not pure)
    assert losses == pytest.approx(wide, rel=MIXED) and losses != wide
    assert {p.dtype for p in model.parameters()} == {
        torch.bfloat16 if pure else torch.float32
    }


def test_logits_that_overflow_in_half_precision_stay_finite():
    states = [
        torch.full((4, 8), 60.0, dtype=torch.float16, requires_grad=True)
        for _ in range(2)
    ]
    head = nn.Linear(8, 5, dtype=torch.float16)
    # logits of 28,800: their exponentials and sums do not fit
    nn.init.constant_(head.weight, 60.0)
    labels = torch.arange(4)
    for reader in (head, lambda x: head(x)):
        loss = aligned_loss(states, labels, reader)
        assert loss.dtype == torch.float32 and loss.item() == pytest.approx(
            math.log(5), abs=0.1
        )
        assert all(
            torch.isfinite(slope).all() for slope in torch.autograd.grad(loss, states)
        )
    far = [
        s.detach() * torch.tensor([1.0, -1.0, 1.0, -1.0])[:, None].half()
        for s in states
    ]
    for similarity in (mean_cosine, linear_cka):
        assert torch.isfinite(similarity_loss(far, labels, head, similarity))


def adapted(model: nn.Module, task: str, targets: list[str]) -> Any:
    config = peft.LoraConfig(r=2, lora_alpha=4, target_modules=targets, task_type=task)
    return peft.get_peft_model(model, config)


ADAPTERS = {
    "classes": ("classes, always", "SEQ_CLS", ["query", "value"]),
    "tokens": ("tokens, always", "CAUSAL_LM", ["c_attn"]),
    "an adapted head": ("tokens, alternate", "CAUSAL_LM", ["c_attn", "lm_head"]),
}


@pytest.mark.parametrize("kind", ADAPTERS)
def test_an_adapter_trains_at_every_layer(tmp_path: Path, kind: str, monkeypatch):
    name, task, targets = ADAPTERS[kind]
    make, objective = engines.RUNS[name]
    wrapped = adapted(make(), task, targets)
    monkeypatch.setitem(engines.RUNS, name, (lambda: wrapped, objective))
    before = {key: value.clone() for key, value in wrapped.named_parameters()}
    _, model = engines.train(name, tmp_path, engines.BATCH, learning_rate=0.5)
    assert model is wrapped
    frozen = [key for key, value in model.named_parameters() if not value.requires_grad]
    assert len(frozen) > 30
    assert all(torch.equal(model.get_parameter(key), before[key]) for key in frozen)
    adapters = [key for key in before if "lora_B" in key]
    assert len(adapters) >= 3 and all(
        model.get_parameter(key).any() for key in adapters
    )
    model.save_pretrained(tmp_path / "adapter")
    again = peft.PeftModel.from_pretrained(make(), tmp_path / "adapter").eval()
    batch = engines.batch_of(engines.rows(name, 4))
    batch.pop("labels")
    assert_close(again(**batch).logits, model.eval()(**batch).logits)


@pytest.mark.parametrize("name", ["tokens, alternate", "classes, alternate"])
def test_checkpointed_activations_change_nothing(tmp_path: Path, name: str):
    plain, _ = engines.train(name, tmp_path, engines.BATCH)
    kept, _ = engines.train(name, tmp_path, engines.BATCH, gradient_checkpointing=True)
    assert kept == pytest.approx(plain, rel=1e-6)
