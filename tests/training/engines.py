"""Trainings that one process and several must agree on; as a script (of each process) it writes their losses."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import tiny
import torch
import transformers as hf
from torch import nn
from torch.distributed.fsdp import fully_shard

from layerscope.training.exit_loss import ExitLoss
from layerscope.training.exits import Exits
from layerscope.training.objectives import Objective
from layerscope.training.trainer import AlignedTrainer, layered_model

STEPS, BATCH = 6, 8
RUNS = {
    "tokens, always": (tiny.gpt2, Objective("aligned", "always")),
    "tokens, alternate": (tiny.gpt2, Objective("aligned", "alternate")),
    "classes, always": (tiny.classifier, Objective("aligned", "always")),
    "classes, alternate": (tiny.classifier, Objective("aligned", "alternate")),
    "classes, a head for each layer": (tiny.classifier, Objective("classifiers", "alternate")),
}


def still(model: nn.Module) -> nn.Module:
    """Take dropout out: processes draw from generators of their own."""
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0
    return model


def rows(kind: str, n: int = STEPS * BATCH) -> list[dict[str, Any]]:
    """Rows of which the first four, one rank's first batch, ignore every label, and others uneven numbers of them."""
    ids = torch.randint(
        4, tiny.COMMON["vocab_size"], (n, 10), generator=torch.Generator().manual_seed(0)
    )
    found = []
    for i, row in enumerate(ids):
        labels = row.clone() if kind.startswith("tokens") else torch.tensor(i % 3)
        if kind.startswith("tokens"):
            labels[: 10 if i < 4 else i * 3 % 9] = -100
        found.append({"input_ids": row, "attention_mask": torch.ones_like(row), "labels": labels})
    return found


def train(name: str, folder: Path, batch: int, **options: Any) -> tuple[list[float], nn.Module]:
    """Return the loss of each step, and the model."""
    make, objective = RUNS[name]
    model = still(make())
    options = {
        "optim": "sgd",
        "learning_rate": 0.1,
        "use_cpu": True,
        "max_grad_norm": 1.0,
    } | options
    args = hf.TrainingArguments(
        str(folder),
        max_steps=STEPS,
        per_device_train_batch_size=batch,
        logging_steps=1,
        report_to="none",
        disable_tqdm=True,
        save_strategy="no",
        train_sampling_strategy="sequential",
        lr_scheduler_type="constant",
        **options,
    )
    trainer = AlignedTrainer(
        model,
        objective=objective,
        args=args,
        train_dataset=rows(name),
        processing_class=tiny.tokenizer(special=make is tiny.classifier),
        data_collator=hf.default_data_collator,
    )
    trainer.train()
    return [entry["loss"] for entry in trainer.state.log_history if "loss" in entry], trainer.model


def step(shard: Any, part: slice = slice(None)) -> tuple[torch.Tensor, nn.Module]:
    """Return the loss of a share of a batch, by exits of a model that `shard` wraps after they are attached."""
    model = still(tiny.gpt2()).train()
    layered = layered_model(model, tiny.tokenizer(special=False), None)
    probe = layered.encoder.batch(["w1 w2 w3", "w4"])
    loss = ExitLoss(Exits(layered, probe), Objective(), probe)
    loss.on = tuple(range(len(loss.exits.layers)))
    batch = {
        key: torch.stack([row[key] for row in rows("tokens")[4:12]]) for key in rows("tokens", 1)[0]
    }
    items = (batch["labels"][:, 1:] != -100).sum()
    return shard(model)(
        **{key: value[part] for key, value in batch.items()}, num_items_in_batch=items
    ).loss, model


def sharded_step() -> dict[str, list[float]]:
    """Return the gradients of one batch whose halves two processes hold, of weights that they share (FSDP)."""
    rank, mesh = torch.distributed.get_rank(), torch.distributed.init_device_mesh("cpu", (2,))

    def shard(model: nn.Module) -> nn.Module:
        for block in model.transformer.h:
            fully_shard(block, mesh=mesh)
        return fully_shard(model, mesh=mesh)

    loss, model = step(shard, slice(4 * rank, 4 * rank + 4))
    (2 * loss).backward()  # the mean over processes is a sum of shares
    return {
        key: value.grad.full_tensor().tolist()
        for key, value in model.named_parameters()
        if value.numel() < 5000
    }


if __name__ == "__main__":
    out, options = Path(sys.argv[1]), json.loads(sys.argv[2])
    runs = {name: train(name, out, BATCH // 2, **options) for name in RUNS}
    sharded = sharded_step()
    if torch.distributed.get_rank() == 0:
        weights = {
            name: {k: v.tolist() for k, v in model.state_dict().items() if v.numel() < 5000}
            for name, (_, model) in runs.items()
        }
        found = {
            "losses": {name: losses for name, (losses, _) in runs.items()},
            "weights": weights,
            "sharded": sharded,
        }
        (out / "found.json").write_text(json.dumps(found))
