"""Engines around the trainer: two processes, mixed precision, adapters, checkpointed activations."""

import json
from pathlib import Path

import engines
import peft
import pytest
import torch
from engines import BATCH, RUNS, STEPS, rows, step, train
from torch.testing import assert_close
from transformers import default_data_collator

NEAR = 1e-5


@pytest.fixture(scope="module")
def two_processes(forks, tmp_path_factory):
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


@pytest.mark.parametrize("name", RUNS)
def test_two_processes_train_as_one_with_twice_the_batch(two_processes, tmp_path, name):
    losses, model = train(name, tmp_path, BATCH)
    assert len(losses) == STEPS
    assert two_processes["losses"][name] == pytest.approx(losses, rel=NEAR)
    weights = model.state_dict()
    for key, found in two_processes["weights"][name].items():
        assert_close(torch.tensor(found), weights[key], rtol=0, atol=NEAR, msg=key)


def test_weights_in_shards_get_the_gradients_of_whole_ones(two_processes):
    loss, model = step(lambda model: model)
    loss.backward()
    assert len(two_processes["sharded"]) > 30
    for key, found in two_processes["sharded"].items():
        slope = model.get_parameter(key).grad
        assert_close(torch.tensor(found), slope, rtol=1e-5, atol=1e-6, msg=key)


MIXED = 0.02
"""Relative distance of a loss in bfloat16 to float32; a product keeps 8 bits."""


@pytest.mark.parametrize(
    "name, options, near",
    [
        ("classes, always", {"bf16": True}, MIXED),
        ("tokens, alternate", {"gradient_checkpointing": True}, 1e-6),
    ],
)
def test_mixed_precision_and_checkpointed_activations_change_little(
    tmp_path, name, options, near
):
    plain, _ = train(name, tmp_path, BATCH)
    losses, model = train(name, tmp_path, BATCH, **options)
    assert losses == pytest.approx(plain, rel=near)
    assert (losses != plain) == ("bf16" in options)
    assert {p.dtype for p in model.parameters()} == {torch.float32}


def adapted(model, task, targets):
    config = peft.LoraConfig(r=2, lora_alpha=4, target_modules=targets, task_type=task)
    return peft.get_peft_model(model, config)


ADAPTERS = {
    "classes": ("classes, always", "SEQ_CLS", ["query", "value"]),
    "an adapted head": ("tokens, alternate", "CAUSAL_LM", ["c_attn", "lm_head"]),
}


@pytest.mark.parametrize("kind", ADAPTERS)
def test_an_adapter_trains_at_every_layer(tmp_path, kind, monkeypatch):
    name, task, targets = ADAPTERS[kind]
    make, objective = RUNS[name]
    wrapped = adapted(make(), task, targets)
    monkeypatch.setitem(RUNS, name, (lambda: wrapped, objective))
    before = {key: value.clone() for key, value in wrapped.named_parameters()}
    _, model = train(name, tmp_path, BATCH, learning_rate=0.5)
    assert model is wrapped
    frozen = [key for key, value in model.named_parameters() if not value.requires_grad]
    assert len(frozen) > 30
    assert all(torch.equal(model.get_parameter(key), before[key]) for key in frozen)
    adapters = [key for key in before if "lora_B" in key]
    assert len(adapters) >= 3
    assert all(model.get_parameter(key).any() for key in adapters)
    model.save_pretrained(tmp_path / "adapter")
    again = peft.PeftModel.from_pretrained(make(), tmp_path / "adapter").eval()
    batch = default_data_collator(rows(name, 4))
    batch.pop("labels")
    assert_close(again(**batch).logits, model.eval()(**batch).logits)
