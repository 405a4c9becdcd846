"""Trainings that one process and several must agree on; as a script (of each process) it writes their losses."""

import json
import sys
from pathlib import Path

import tiny
import torch
from torch.distributed.fsdp import fully_shard
from trainers import classes, losses, still, tokens, trainer
from transformers import default_data_collator

from layerscope.training.exit_loss import ExitLoss
from layerscope.training.exits import Exits
from layerscope.training.objectives import Objective
from layerscope.training.trainer import layered_model

STEPS, BATCH = 6, 8
RUNS = {
    "tokens, alternate": (tiny.gpt2, Objective("aligned", "alternate")),
    "classes, always": (tiny.classifier, Objective("aligned", "always")),
    "classes, a head for each layer": (
        tiny.classifier,
        Objective("classifiers", "alternate"),
    ),
}


def rows(kind, n=STEPS * BATCH):
    """Rows of classes; or of tokens, where the first four, one rank's first batch, ignore every label, others some."""
    if kind.startswith("classes"):
        return classes(n)
    made = tokens(n)
    for i, row in enumerate(made):
        row["labels"][: None if i < 4 else i * 3 % 9] = -100
    return made


def train(name, folder, batch, **options):
    """Return the loss of each step, and the model."""
    make, objective = RUNS[name]
    how = {"optim": "sgd", "learning_rate": 0.1, "max_steps": STEPS, "lr_scheduler_type": "constant",
           "train_sampling_strategy": "sequential", "per_device_train_batch_size": batch}  # fmt: skip
    run = trainer(folder, still(make()), rows(name), objective, **how | options)
    run.train()
    return losses(run), run.model


def exit_loss(model):
    """Attach the loss of every exit to a language model."""
    layered = layered_model(model, tiny.tokenizer(special=False), None)
    probe = layered.encoder.batch(["w1 w2 w3", "w4"])
    loss = ExitLoss(Exits(layered, probe), Objective(), probe)
    loss.on = tuple(range(len(loss.exits.layers)))
    return loss


def step(shard, part=slice(None)):
    """Return the loss of a share of a batch, by exits of a model that `shard` wraps after they are attached."""
    model = still(tiny.gpt2()).train()
    exit_loss(model)
    batch = default_data_collator(rows("tokens")[4:12])
    items = (batch["labels"][:, 1:] != -100).sum()
    share = {key: value[part] for key, value in batch.items()}
    return shard(model)(**share, num_items_in_batch=items).loss, model


def small(tensors):
    return {key: value for key, value in tensors if value.numel() < 5000}


def sharded_step():
    """Return the gradients of one batch whose halves two processes hold, of weights that they share (FSDP)."""
    rank, mesh = (
        torch.distributed.get_rank(),
        torch.distributed.init_device_mesh("cpu", (2,)),
    )

    def shard(model):
        for block in model.transformer.h:
            fully_shard(block, mesh=mesh)
        return fully_shard(model, mesh=mesh)

    loss, model = step(shard, slice(4 * rank, 4 * rank + 4))
    (2 * loss).backward()  # the mean over processes is a sum of shares
    weights = small(model.named_parameters())
    return {key: value.grad.full_tensor().tolist() for key, value in weights.items()}


if __name__ == "__main__":
    out, options = Path(sys.argv[1]), json.loads(sys.argv[2])
    found = {"losses": {}, "weights": {}}
    for name in RUNS:
        found["losses"][name], model = train(name, out, BATCH // 2, **options)
        weights = small(model.state_dict().items())
        found["weights"][name] = {key: value.tolist() for key, value in weights.items()}
    found["sharded"] = sharded_step()
    if torch.distributed.get_rank() == 0:
        (out / "found.json").write_text(json.dumps(found))
