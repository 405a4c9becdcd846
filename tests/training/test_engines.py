"""Engines around the trainer: two processes, mixed precision, adapters, checkpointed activations."""

import json
import math
from pathlib import Path
from typing import Any

import engines
import peft
import pytest
import tiny
import torch
from commands import Forks
from tiny import one_thread
from torch import nn

from layerscope.training import aligned_loss
from layerscope.training.exit_loss import ExitLoss
from layerscope.training.exits import Exits
from layerscope.training.objectives import Objective, linear_cka, mean_cosine, similarity_loss
from layerscope.training.trainer import layered_model

__all__ = ["one_thread"]
TOLERANCE = 1e-5


@pytest.fixture(scope="module")
def two_processes(forks: Forks, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What two real processes find, each with half a batch, where DDP is told that no weight goes unused."""
    folder = tmp_path_factory.mktemp("two")
    options = json.dumps({"ddp_find_unused_parameters": False})
    script = f"import runpy\nrunpy.run_path({engines.__file__!r}, run_name='__main__')"
    ends = [running.wait(300) for running in forks.together(folder, options, script=script)]
    assert [ended.status for ended in ends] == [0, 0], ends[0].err[-2000:]
    return json.loads((folder / "found.json").read_text())


@pytest.mark.parametrize("name", engines.RUNS)
def test_two_processes_train_as_one_with_twice_the_batch(
    two_processes: dict[str, Any], tmp_path: Path, name: str
):
    losses, model = engines.train(name, tmp_path, engines.BATCH)
    assert (
        two_processes["losses"][name] == pytest.approx(losses, rel=TOLERANCE)
        and len(losses) == engines.STEPS
    )
    weights = model.state_dict()
    for key, found in two_processes["weights"][name].items():
        torch.testing.assert_close(
            torch.tensor(found), weights[key], rtol=0, atol=TOLERANCE, msg=key
        )


def test_weights_in_shards_get_the_gradients_of_whole_ones(two_processes: dict[str, Any]):
    loss, model = engines.step(lambda model: model)
    loss.backward()
    assert len(two_processes["sharded"]) > 30
    for key, found in two_processes["sharded"].items():
        torch.testing.assert_close(
            torch.tensor(found), model.get_parameter(key).grad, rtol=1e-5, atol=1e-6, msg=key
        )


MIXED = 0.02
"""Relative distance of a loss in bfloat16 to float32; a product keeps 8 bits."""


@pytest.mark.parametrize("name", ["tokens, always", "classes, alternate"])
@pytest.mark.parametrize("pure", [False, True], ids=["autocast", "pure"])
def test_bfloat16_trains_near_to_float32(
    tmp_path: Path, name: str, pure: bool, monkeypatch: pytest.MonkeyPatch
):
    wide, _ = engines.train(name, tmp_path, engines.BATCH)
    make, objective = engines.RUNS[name]
    if pure:
        monkeypatch.setitem(engines.RUNS, name, (lambda: make().bfloat16(), objective))
    losses, model = engines.train(name, tmp_path, engines.BATCH, bf16=not pure)
    assert losses == pytest.approx(wide, rel=MIXED) and losses != wide
    assert {p.dtype for p in model.parameters()} == {torch.bfloat16 if pure else torch.float32}


def test_logits_that_overflow_in_half_precision_stay_finite():
    states = [torch.full((4, 8), 60.0, dtype=torch.float16, requires_grad=True) for _ in range(2)]
    head = nn.Linear(8, 5, dtype=torch.float16)
    nn.init.constant_(head.weight, 60.0)  # logits of 28,800: their exponentials and sums do not fit
    labels = torch.arange(4)
    for reader in (head, lambda x: head(x)):
        loss = aligned_loss(states, labels, reader)
        assert loss.dtype == torch.float32 and loss.item() == pytest.approx(math.log(5), abs=0.1)
        assert all(torch.isfinite(g).all() for g in torch.autograd.grad(loss, states))
    far = [s.detach() * torch.tensor([1.0, -1.0, 1.0, -1.0])[:, None].half() for s in states]
    for similarity in (mean_cosine, linear_cka):
        assert torch.isfinite(similarity_loss(far, labels, head, similarity))


def adapted(model: nn.Module, task: str, targets: Any) -> Any:
    config = peft.LoraConfig(r=2, lora_alpha=4, target_modules=targets, task_type=task)
    return peft.get_peft_model(model, config)


@pytest.mark.parametrize(
    ("name", "task", "targets"),
    [
        ("classes, always", "SEQ_CLS", ["query", "value"]),
        ("tokens, always", "CAUSAL_LM", ["c_attn"]),
        ("tokens, alternate", "CAUSAL_LM", ["c_attn", "lm_head"]),
    ],
    ids=["classes", "tokens", "an adapted head"],
)
def test_an_adapter_trains_at_every_layer(
    tmp_path: Path, name: str, task: str, targets: Any, monkeypatch
):
    make, objective = engines.RUNS[name]
    plain, wrapped = make(), []
    monkeypatch.setitem(
        engines.RUNS,
        name,
        (lambda: wrapped.append(adapted(make(), task, targets)) or wrapped[0], objective),
    )
    _, model = engines.train(name, tmp_path, engines.BATCH, learning_rate=0.5)
    assert model is wrapped[0]
    frozen = {
        key.replace("base_model.model.", "")
        .replace("base_layer.", "")
        .replace("original_module.", ""): value
        for key, value in model.named_parameters()
        if not value.requires_grad
    }
    assert (
        all(torch.equal(value, plain.get_parameter(key)) for key, value in frozen.items())
        and len(frozen) > 30
    )
    moved = [
        key
        for key, value in model.named_parameters()
        if "lora_B" in key and bool((value != 0).any())
    ]
    assert len(moved) == len([key for key, _ in model.named_parameters() if "lora_B" in key]) >= 3
    model.save_pretrained(tmp_path / "adapter")
    again = peft.PeftModel.from_pretrained(make(), tmp_path / "adapter").eval()
    batch = {
        key: torch.stack([row[key] for row in engines.rows(name, 4)])
        for key in ("input_ids", "attention_mask")
    }
    torch.testing.assert_close(again(**batch).logits, model.eval()(**batch).logits)


def test_exits_reach_the_adapters_of_every_layer_as_a_plain_sum_does(tmp_path: Path):
    model = engines.still(adapted(tiny.gpt2(), "CAUSAL_LM", ["c_attn", "lm_head"])).train()
    for key, value in model.named_parameters():
        if "lora_B" in key:
            nn.init.normal_(value, std=0.1)
    rows = engines.rows("tokens", 12)[4:]
    batch = {key: torch.stack([row[key] for row in rows]) for key in rows[0]}
    base = model.get_base_model()
    states: list[torch.Tensor] = []
    handles = [
        block.register_forward_hook(
            lambda _, __, out: states.append(out[0] if isinstance(out, tuple) else out)
        )
        for block in base.transformer.h
    ]
    base(batch["input_ids"])
    for handle in handles:
        handle.remove()
    wanted = sum(
        layer
        / 6
        * nn.functional.cross_entropy(
            base.lm_head(base.transformer.ln_f(state))[:, :-1].flatten(0, 1),
            batch["labels"][:, 1:].flatten(),
        )
        for layer, state in enumerate(states, start=1)
    )
    named = {key: value for key, value in model.named_parameters() if value.requires_grad}
    grads = torch.autograd.grad(wanted, list(named.values()))
    layered = layered_model(model, tiny.tokenizer(special=False), None)
    probe = layered.encoder.batch(["w1 w2 w3", "w4"])
    loss = ExitLoss(Exits(layered, probe), Objective(), probe)
    assert loss.exits.head is None  # the adapter of the head adds to it
    loss.on = tuple(range(len(loss.exits.layers)))
    found = torch.autograd.grad(model(**batch).loss, list(named.values()))
    for key, one, two in zip(named, found, grads, strict=True):
        torch.testing.assert_close(one, two, rtol=1e-4, atol=1e-6, msg=key)


@pytest.mark.parametrize("name", ["tokens, alternate", "classes, alternate"])
def test_checkpointed_activations_change_nothing(tmp_path: Path, name: str):
    plain, _ = engines.train(name, tmp_path, engines.BATCH)
    kept, _ = engines.train(name, tmp_path, engines.BATCH, gradient_checkpointing=True)
    assert kept == pytest.approx(plain, rel=1e-6)


def test_accumulated_steps_of_the_last_layer_are_one_batch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    for name in ("classes", "tokens"):
        monkeypatch.setitem(
            engines.RUNS, name, (engines.RUNS[f"{name}, always"][0], Objective("standard"))
        )
        whole, one = engines.train(name, tmp_path, engines.BATCH)
        parts, two = engines.train(
            name, tmp_path, engines.BATCH // 4, gradient_accumulation_steps=4
        )
        assert parts == pytest.approx(whole, rel=1e-5)
        for key, value in one.state_dict().items():
            torch.testing.assert_close(two.state_dict()[key], value, rtol=0, atol=1e-5, msg=key)
