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
from trainers import classes, tokens, trainer
from typed import refused

from layerscope import open_run, select, truncate
from layerscope.metrics import neural_collapse

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
        lambda m: lambda h, last: torch.tanh(m.bert.pooler.dense(h[:, 0])),
    ),
    "gpt2": (
        tiny.gpt2,
        running,
        lambda m: lambda h, last: (h if last else m.transformer.ln_f(h))[:, :-1],
    ),
    "vit": (vit, pictures, lambda m: lambda h, last: m.vit.layernorm(h)[:, 0]),
}
"""A model, its data, and what it does after its last block, by its own modules."""


@torch.no_grad()
def by_hand(model, data, read):
    """Return logits [L, n, K] and states [L, n, D] of what counts, and labels [n], from `output_hidden_states`."""
    batch = hf.default_data_collator(data)
    labels = batch.pop("labels")
    # a ViT's hidden states are all before the norm
    body = model.vit if hasattr(model, "vit") else model.eval()
    hidden = body(**batch, output_hidden_states=True).hidden_states[1:]
    labels = labels[:, 1:] if isinstance(model, hf.GPT2LMHeadModel) else labels
    states = [read(h, h is hidden[-1])[labels != -100] for h in hidden]
    linear = model.lm_head if hasattr(model, "lm_head") else model.classifier
    stacked = torch.stack(states)
    return linear(stacked).double(), stacked.double(), labels[labels != -100]


@pytest.mark.parametrize("kind", KINDS)
def test_every_layer_is_scored_as_by_hand(tmp_path, kind):
    make, data, read = KINDS[kind]
    model, rows = make(), data()
    where = {"history": tmp_path / "history", "eval_dataset": rows}
    metrics = trainer(tmp_path / "out", model, rows, **where).evaluate()
    logits, states, labels = by_hand(model, rows, read(model))
    losses = torch.stack([cross_entropy(one, labels) for one in logits])
    right = (logits.argmax(-1) == labels).double().mean(-1)
    centred = states - states.mean(1, keepdim=True)
    cosines = cosine_similarity(centred, centred[-1:], dim=-1).mean(-1)
    history = open_run(tmp_path / "history")
    assert history.table()["n"].unique().tolist() == [len(labels)]
    name, scores = "accuracy", right
    if kind == "gpt2":
        name, scores = "perplexity", losses.exp()
    else:
        collapse = neural_collapse(states[-1], labels).nc1.item()
        assert metrics["eval_nc1"] == pytest.approx(collapse, rel=1e-4)

    def near(wanted):
        return pytest.approx(wanted.tolist(), rel=1e-4, abs=1e-5)

    for flat, wanted in ((name, scores), ("cosine", cosines)):
        assert [metrics[f"eval_{flat}_layer_{layer}"] for layer in (1, 2, 3)] == near(
            wanted
        )
    assert history.metric("layer_accuracy").tolist() == near(right)
    assert history.metric("cross_entropy").tolist() == near(losses)
    assert history.metric("cosine_similarity")[3].tolist() == near(cosines)
    # the Trainer's loss of tokens is a mean of means of batches
    if kind in ("classifier", "vit"):
        assert metrics["eval_loss"] == pytest.approx(losses[-1].item(), rel=1e-4)


@torch.no_grad()
def test_a_head_that_is_no_last_linear_layer_is_read_as_the_model_reads_it(tmp_path):
    model, rows = decoder(), classes(13)
    metrics = trainer(tmp_path, model, rows, eval_dataset=rows).evaluate()
    batch = hf.default_data_collator(rows)
    labels = batch.pop("labels")
    hidden = model(**batch, output_hidden_states=True).hidden_states
    for layer in (1, 2, 3):
        normed = hidden[layer] if layer == 3 else model.transformer.ln_f(hidden[layer])
        right = (model.score(normed[:, -1]).argmax(-1) == labels).double().mean().item()
        assert metrics[f"eval_accuracy_layer_{layer}"] == pytest.approx(
            right, abs=1e-12
        )


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
    _, states, labels = by_hand(model, rows, KINDS["classifier"][2](model))
    own = dict(zip(layers or (1, 2), model.exit_heads, strict=False))
    for layer in (1, 2, 3):
        logits = own.get(layer, model.classifier)(states[layer - 1].float())
        assert losses[layer] == pytest.approx(
            cross_entropy(logits, labels).item(), rel=1e-5
        )
    assert not torch.equal(model.exit_heads[0].weight, model.classifier.weight)


def test_a_history_is_of_one_evaluation_set(tmp_path):
    where = {"history": tmp_path / "history", "eval_dataset": {"near": classes(6)}}
    with refused("a history is of one evaluation set"):
        trainer(tmp_path / "out", tiny.classifier(), classes(), **where)


def test_a_resumed_history_is_the_undisturbed_one(tmp_path):
    whole, parts = tmp_path / "whole", tmp_path / "parts"

    def run(folder, history, **options):
        rows = running()
        how = (
            {"max_steps": 8, "history": history, "eval_dataset": rows}
            | EVERY_TWO
            | options
        )
        return trainer(tmp_path / folder, tiny.gpt2(), rows, **how)

    run("a", whole).train()
    run("b", parts, save_strategy="steps", save_steps=4).train()
    assert open_run(parts).steps == (2, 4, 6, 8)

    class Watches(hf.TrainerCallback):
        def on_step_end(self, args, state, control, **_):
            # later ones are dropped
            assert open_run(parts).steps[-1] == 4 or state.global_step > 6

    again = run("b", parts, callbacks=[Watches])
    again.train(str(tmp_path / "b" / "checkpoint-4"))
    wanted = open_run(whole).table()
    pd.testing.assert_frame_equal(open_run(parts).table(), wanted)
    again.evaluate()  # the same step once more
    pd.testing.assert_frame_equal(open_run(parts).table(), wanted)


def test_a_history_is_a_run(tmp_path):
    path, rows = tmp_path / "history", classes(13)
    options = {"history": path, "eval_dataset": rows} | EVERY_TWO
    trainer(tmp_path / "out", tiny.classifier(), rows, **options).train()
    history = open_run(path)
    assert history.steps == (2, 4) and history.depth == 3 and history.final == "head"
    assert (
        history.info["options"]["objective"] == "aligned"
        and history.info["kind"] == "training"
    )
    with refused("step 3 is not in this run: it has 2, 4"):
        history.metric("nc1", step=3)
    for wrong in (
        lambda: history.pooled(1),
        lambda: select(path),
        lambda: truncate(path, 2, tmp_path / "cut"),
    ):
        with refused("is the history of a training"):
            wrong()


def test_another_training_is_refused(tmp_path):
    path, rows = tmp_path / "history", classes(13)

    def run(model, objective="aligned"):
        where = {"history": path, "eval_dataset": rows}
        return trainer(tmp_path / "out", model, rows, objective, **where)

    run(tiny.classifier()).evaluate()
    line = r"another training \(objective: aligned there, standard here\)"
    with refused(line):
        run(tiny.classifier(), "standard")


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
    assert (
        f"'eval_nc1': {open_run(tmp_path / 'history').metric('nc1')[3]}" in ends[1].out
    )
