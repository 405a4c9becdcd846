"""Evaluations of a real training: every layer's scores, and their history, against plain passes of the same model."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import tiny
import torch
import transformers as hf
from models import zoo
from torch.nn.functional import cosine_similarity, cross_entropy
from trainers import classes, same, tokens, trainer, weights
from typed import refused

from layerscope import open_run, select, truncate
from layerscope.metrics import neural_collapse
from layerscope.training.objectives import Objective

EVERY_TWO = {"eval_strategy": "steps", "eval_steps": 2}


def running(n=13):
    return [
        row | {"labels": row["labels"].index_fill(0, torch.tensor([1]), -100)}
        for row in tokens(n)
    ]


def pictures(n=13):
    pixels = torch.randn(n, 3, 8, 8, generator=torch.Generator().manual_seed(0))
    return [
        {"pixel_values": one, "labels": torch.tensor(i % 3)}
        for i, one in enumerate(pixels)
    ]


def vit():
    images = {"image_size": 8, "patch_size": 4, "num_labels": 3}
    return zoo.seeded("ViTForImageClassification", **images)


def decoder():
    return zoo.seeded("GPT2ForSequenceClassification", num_labels=3)


KINDS = {
    "classifier": (
        tiny.classifier,
        lambda: classes(13),
        lambda m, h, last: m.bert.pooler(h),
        "classifier",
    ),
    "gpt2": (
        tiny.gpt2,
        running,
        lambda m, h, last: (h if last else m.transformer.ln_f(h))[:, :-1],
        "lm_head",
    ),
    "vit": (vit, pictures, lambda m, h, last: m.vit.layernorm(h)[:, 0], "classifier"),
    "decoder": (
        decoder,
        lambda: classes(13),
        lambda m, h, last: m.score((h if last else m.transformer.ln_f(h))[:, -1]),
        None,
    ),
}
"""A model, its data, what it does after its last block, by its own modules, and its last linear layer, if any."""


@torch.no_grad()
def by_hand(kind, model, data):
    """Return logits [L, n, K] and states [L, n, D] of what counts, and labels [n], from `output_hidden_states`."""
    _, _, read, head = KINDS[kind]
    batch = hf.default_data_collator(data)
    labels = batch.pop("labels")
    # a ViT's hidden states are all before the norm
    body = model.vit if kind == "vit" else model.eval()
    hidden = body(**batch, output_hidden_states=True).hidden_states[1:]
    labels = labels[:, 1:] if kind == "gpt2" else labels
    counts = labels != -100
    states = [read(model, h, h is hidden[-1])[counts] for h in hidden]
    linear = model.get_submodule(head) if head else torch.nn.Identity()
    stacked = torch.stack(states)
    return linear(stacked).double(), stacked.double(), labels[counts]


@pytest.mark.parametrize("kind", KINDS)
def test_every_layer_is_scored_as_by_hand(tmp_path, kind):
    make, data, *_ = KINDS[kind]
    model, rows = make(), data()
    where = {"history": tmp_path / "history", "eval_dataset": rows}
    metrics = trainer(tmp_path / "out", model, rows, **where).evaluate()
    logits, states, labels = by_hand(kind, model, rows)
    losses = torch.stack([cross_entropy(one, labels) for one in logits])
    right = (logits.argmax(-1) == labels).double().mean(-1)
    centred = states - states.mean(1, keepdim=True)
    cosines = cosine_similarity(centred, centred[-1:], dim=-1).mean(-1)

    def near(wanted):
        return pytest.approx(wanted.tolist(), rel=1e-4, abs=1e-5)

    logged = {"accuracy": right, "cosine": cosines}
    # the Trainer's loss of tokens is a mean of means of batches
    if kind == "gpt2":
        logged = {"perplexity": losses.exp(), "cosine": cosines}
    else:
        collapse = neural_collapse(states[-1], labels).nc1
        assert metrics["eval_nc1"] == pytest.approx(collapse.item(), rel=1e-4)
        assert metrics["eval_loss"] == pytest.approx(losses[-1].item(), rel=1e-4)
    for flat, wanted in logged.items():
        scores = [metrics[f"eval_{flat}_layer_{layer}"] for layer in (1, 2, 3)]
        assert scores == near(wanted)
    history = open_run(tmp_path / "history")
    assert history.table()["n"].unique().tolist() == [len(labels)]
    assert history.metric("layer_accuracy").tolist() == near(right)
    assert history.metric("cross_entropy").tolist() == near(losses)
    assert history.metric("cosine_similarity")[3].tolist() == near(cosines)


def test_scores_come_out_of_the_models_own_pass(tmp_path):
    rows, calls = running(10), []
    run, plain = (
        trainer(tmp_path, tiny.gpt2(), rows, eval_dataset=rows) for _ in range(2)
    )
    plain.exit_loss.detach()
    run.model.transformer.h[0].register_forward_hook(lambda *_: calls.append(1))
    assert run.evaluate()["eval_loss"] == plain.evaluate()["eval_loss"]
    assert len(calls) == 2
    found = run.predict(rows)
    np.testing.assert_array_equal(found.predictions, plain.predict(rows).predictions)
    assert found.metrics["test_perplexity"] > 1


@pytest.mark.parametrize("layers", [None, (2, 3)])
def test_classifiers_are_read_by_their_own_heads(tmp_path, layers):
    model, rows = tiny.classifier(), classes(13)
    where = {"history": tmp_path / "history", "layers": layers, "eval_dataset": rows}
    run = trainer(tmp_path / "out", model, rows, "classifiers", **where)
    run.train()
    run.evaluate()
    losses = open_run(tmp_path / "history").metric("cross_entropy")
    _, states, labels = by_hand("classifier", model, rows)
    own = dict(zip(layers or (1, 2), model.exit_heads, strict=False))
    for layer in (1, 2, 3):
        logits = own.get(layer, model.classifier)(states[layer - 1].float())
        loss = cross_entropy(logits, labels).item()
        assert losses[layer] == pytest.approx(loss, rel=1e-5)
    assert not torch.equal(model.exit_heads[0].weight, model.classifier.weight)


def test_a_resumed_training_and_its_history_are_the_undisturbed_ones(tmp_path):
    whole, parts, rows = tmp_path / "whole", tmp_path / "parts", running()
    objective = Objective(schedule="alternate")
    how = {"max_steps": 8, "eval_dataset": rows} | EVERY_TWO

    def run(folder, history, **options):
        options = {"history": history} | how | options
        return trainer(tmp_path / folder, tiny.gpt2(), rows, objective, **options)

    undisturbed = run("a", whole)
    undisturbed.train()
    run("b", parts, save_strategy="steps", save_steps=4).train()
    assert open_run(parts).steps == (2, 4, 6, 8)

    class Watches(hf.TrainerCallback):
        def on_step_end(self, args, state, control, **_):
            # later ones are dropped
            assert open_run(parts).steps[-1] == 4 or state.global_step > 6

    again = run("b", parts, callbacks=[Watches])
    again.train(str(tmp_path / "b" / "checkpoint-4"))
    assert same(weights(again.model), weights(undisturbed.model))
    wanted = open_run(whole).table()
    pd.testing.assert_frame_equal(open_run(parts).table(), wanted)
    again.evaluate()  # the same step once more
    pd.testing.assert_frame_equal(open_run(parts).table(), wanted)


def test_a_history_is_a_run_of_one_training_and_one_evaluation_set(tmp_path):
    path, rows = tmp_path / "history", classes(13)
    options = {"history": path, "eval_dataset": rows} | EVERY_TWO
    trainer(tmp_path / "out", tiny.classifier(), rows, **options).train()
    history = open_run(path)
    assert history.steps == (2, 4) and history.depth == 3 and history.final == "head"
    assert history.info["kind"] == "training"
    with refused("step 3 is not in this run: it has 2, 4"):
        history.metric("nc1", step=3)
    for wrong in (
        lambda: history.pooled(1),
        lambda: select(path),
        lambda: truncate(path, 2, tmp_path / "cut"),
    ):
        with refused("is the history of a training"):
            wrong()
    with refused(r"another training \(objective: aligned there, standard here\)"):
        trainer(tmp_path / "out", tiny.classifier(), rows, "standard", **options)
    options |= {"history": tmp_path / "other", "eval_dataset": {"near": rows}}
    with refused("a history is of one evaluation set"):
        trainer(tmp_path / "out", tiny.classifier(), rows, **options)


SCRIPT = f"""
import sys
sys.path.append({str(Path(__file__).parent)!r})
import tiny
from trainers import classes, trainer
run = trainer(sys.argv[1] + "/out", tiny.classifier(), classes(13), history=sys.argv[1] + "/history",
              eval_dataset=classes(13), per_device_eval_batch_size=2)
metrics = run.evaluate()
if run.args.process_index == 1:
    print({{name: value for name, value in metrics.items() if "layer" in name or "nc1" in name}})
"""


def test_two_processes_score_each_sample_once(forks, tmp_path):
    ends = [running.wait() for running in forks.together(tmp_path, script=SCRIPT)]
    assert [ended.status for ended in ends] == [0, 0], ends[0].err[-2000:]
    where = {"history": tmp_path / "alone", "eval_dataset": classes(13)}
    trainer(tmp_path / "one", tiny.classifier(), classes(13), **where).evaluate()
    one, two = (open_run(tmp_path / name).table() for name in ("alone", "history"))
    assert two["n"].unique().tolist() == [13]  # 16 passed, three of them twice
    np.testing.assert_allclose(two["value"], one["value"], rtol=1e-5)
    nc1 = open_run(tmp_path / "history").metric("nc1")[3]
    assert f"'eval_nc1': {nc1}" in ends[1].out
