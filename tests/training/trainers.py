"""Rows to learn from, as a Trainer takes them, and the trainer under test on tiny models."""

import tiny
import torch
import transformers as hf
from torch import nn

from layerscope.training.trainer import AlignedTrainer

V = tiny.COMMON["vocab_size"]


def tokens(n=16, length=12):
    ids = torch.randint(4, V, (n, length), generator=torch.Generator().manual_seed(0))
    # the first token is predicted by none, and the Trainer counts it as an item all the same
    labels = torch.cat([torch.full((n, 1), -100), ids[:, 1:]], 1)
    return [
        {"input_ids": row, "attention_mask": torch.ones_like(row), "labels": own}
        for row, own in zip(ids, labels, strict=True)
    ]


def classes(n=16):
    return [{**row, "labels": torch.tensor(i % 3)} for i, row in enumerate(tokens(n))]


def still(model):
    """Take dropout out."""
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0
    return model


def trainer(
    folder,
    model,
    data,
    objective="aligned",
    **options,
):
    """Return a trainer of a model; options are the trainer's own, or else the Trainer's arguments."""
    named = ("compute_metrics", "callbacks", "history", "layers", "eval_dataset")
    own = {name: options.pop(name) for name in named if name in options}
    how = {"max_steps": 4, "per_device_train_batch_size": 4, "per_device_eval_batch_size": 5,
           "learning_rate": 1e-2, "logging_steps": 1, "save_strategy": "no"}  # fmt: skip
    args = hf.TrainingArguments(
        str(folder), report_to="none", disable_tqdm=True, use_cpu=True, **how | options
    )
    processor = tiny.tokenizer(special="gpt2" not in type(model).__module__)
    if isinstance(model, hf.ViTForImageClassification):
        processor = hf.ViTImageProcessor(size={"height": 8, "width": 8})
    return AlignedTrainer(
        model,
        objective=objective,
        args=args,
        train_dataset=data,
        processing_class=processor,
        data_collator=hf.default_data_collator,
        **own,
    )


def losses(run):
    """Return the loss of each step."""
    return [entry["loss"] for entry in run.state.log_history if "loss" in entry]


def weights(model):
    return {name: value.clone() for name, value in model.state_dict().items()}


def gradients(model):
    named = model.named_parameters()
    return {name: one.grad.clone() for name, one in named if one.grad is not None}


def same(one, two, tolerance=0.0):
    near = [
        torch.allclose(one[name], two[name], rtol=0, atol=tolerance) for name in one
    ]
    return one.keys() == two.keys() and all(near)
