"""Evaluations of a real training: every layer's scores, and their history, against plain passes of the same model."""

import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import tiny
import torch
import transformers as hf
from tiny import one_thread

from layerscope import LayerscopeError, open_run, report, select, truncate
from layerscope.core.files import read_json, write_json
from layerscope.metrics import neural_collapse
from layerscope.training.trainer import AlignedTrainer

__all__ = ["one_thread"]
V = tiny.COMMON["vocab_size"]


def rows(n=13, length=9, seed=0):
    ids = torch.randint(4, V, (n, length), generator=torch.Generator().manual_seed(seed))
    return [{"input_ids": row, "attention_mask": torch.ones_like(row)} for row in ids]


def classes(n=13):
    return [row | {"labels": torch.tensor(i % 3)} for i, row in enumerate(rows(n))]


def running(n=13):
    return [
        row | {"labels": torch.where(torch.arange(9) < 2, -100, row["input_ids"])}
        for row in rows(n)
    ]


def tagged(n=13):
    return [
        row | {"labels": torch.where(row["input_ids"] % 5 == 0, -100, row["input_ids"] % 4)}
        for row in rows(n)
    ]


def pictures(n=13):
    rng = torch.Generator().manual_seed(0)
    return [
        {"pixel_values": torch.randn(3, 8, 8, generator=rng), "labels": torch.tensor(i % 3)}
        for i in range(n)
    ]


def tagger():
    config = hf.BertConfig(**tiny.COMMON, max_position_embeddings=64, num_labels=4)
    return tiny.seeded(hf.BertForTokenClassification, config)


def vit():
    config = hf.ViTConfig(
        hidden_size=32,
        num_hidden_layers=3,
        num_attention_heads=4,
        intermediate_size=48,
        image_size=8,
        patch_size=4,
        num_labels=3,
    )
    return tiny.seeded(hf.ViTForImageClassification, config)


def decoder():
    config = hf.GPT2Config(
        vocab_size=V, n_embd=32, n_layer=3, n_head=4, n_positions=64, num_labels=3, pad_token_id=0
    )
    return tiny.seeded(hf.GPT2ForSequenceClassification, config)


def processor(model):
    if isinstance(model, hf.ViTForImageClassification):
        return hf.ViTImageProcessor(size={"height": 8, "width": 8})
    return tiny.tokenizer(special="gpt2" not in type(model).__module__)


def trainer(folder, model, data, objective="aligned", history=None, layers=None, **options):
    named = {key: options.pop(key) for key in ("compute_metrics", "callbacks") if key in options}
    known = {
        "max_steps": 4,
        "per_device_train_batch_size": 4,
        "per_device_eval_batch_size": 5,
        "learning_rate": 1e-2,
    }
    args = hf.TrainingArguments(
        str(folder),
        report_to="none",
        disable_tqdm=True,
        use_cpu=True,
        logging_strategy="no",
        **{"save_strategy": "no"} | known | options,
    )
    return AlignedTrainer(
        model,
        objective=objective,
        history=history,
        layers=layers,
        args=args,
        train_dataset=data,
        eval_dataset=data,
        processing_class=processor(model),
        data_collator=hf.default_data_collator,
        **named,
    )


def head_of(model):
    """Return what each kind of model does after its last block, and its linear layer, by its own modules."""
    if isinstance(model, hf.BertForSequenceClassification):
        return lambda h, last: torch.tanh(model.bert.pooler.dense(h[:, 0])), model.classifier
    if isinstance(model, hf.BertForTokenClassification):
        return lambda h, last: h, model.classifier
    if isinstance(model, hf.ViTForImageClassification):
        return lambda h, last: model.vit.layernorm(h)[:, 0], model.classifier
    return lambda h, last: h if last else model.transformer.ln_f(h), model.lm_head


@torch.no_grad()
def by_hand(model, data):
    """Return logits [L, n, K] and states [L, n, D] of what counts, and labels [n], from `output_hidden_states`."""
    batch = hf.default_data_collator(data)
    labels = batch.pop("labels")
    if isinstance(
        model, hf.ViTForImageClassification
    ):  # whose hidden states are all before the norm
        hidden = model.vit(**batch, output_hidden_states=True).hidden_states
    else:
        hidden = model.eval()(**batch, output_hidden_states=True).hidden_states
    read, linear = head_of(model)
    states = [read(h, layer == len(hidden) - 1) for layer, h in enumerate(hidden)][1:]
    if isinstance(model, hf.GPT2LMHeadModel):
        states, labels = [s[:, :-1] for s in states], labels[:, 1:]
    kept = labels != -100
    states = torch.stack([s[kept] for s in states])
    return linear(states).double(), states.double(), labels[kept]


KINDS = [(tiny.classifier, classes), (tiny.gpt2, running), (tagger, tagged), (vit, pictures)]
NAMES = ["classifier", "gpt2", "tagger", "vit"]


@pytest.mark.parametrize(("make", "data"), KINDS, ids=NAMES)
def test_every_layer_is_scored_as_by_hand(tmp_path, make, data):
    model, given = make(), data()
    run = trainer(tmp_path / "out", model, given, history=tmp_path / "history")
    told = run.evaluate()
    logits, states, labels = by_hand(model, given)
    losses = torch.stack([torch.nn.functional.cross_entropy(one, labels) for one in logits])
    right = (logits.argmax(-1) == labels).double().mean(-1)
    moved = states - states.mean(1, keepdim=True)
    cosines = torch.nn.functional.cosine_similarity(moved, moved[-1:], dim=-1).mean(-1)
    chances = logits.softmax(-1).gather(-1, labels.expand(3, -1)[..., None])[..., 0].mean(-1)
    for layer in (1, 2, 3):
        assert told[f"eval_cosine_layer_{layer}"] == pytest.approx(
            cosines[layer - 1].item(), abs=1e-5
        )
        if make is tiny.gpt2:
            assert told[f"eval_perplexity_layer_{layer}"] == pytest.approx(
                losses[layer - 1].exp().item(), rel=1e-4
            )
        else:
            assert told[f"eval_accuracy_layer_{layer}"] == pytest.approx(
                right[layer - 1].item(), abs=1e-12
            )
    if make is not tiny.gpt2:
        assert told["eval_nc1"] == pytest.approx(
            neural_collapse(states[-1], labels).nc1.item(), rel=1e-4
        )
    history = open_run(tmp_path / "history")
    for name, wanted in (
        ("layer_accuracy", right),
        ("cross_entropy", losses),
        ("label_probability", chances),
    ):
        assert history.metric(name).tolist() == pytest.approx(wanted.tolist(), rel=1e-4)
    assert history.metric("cosine_similarity")[3].tolist() == pytest.approx(
        cosines.tolist(), abs=1e-5
    )
    assert history.table()["n"].unique().tolist() == [len(labels)]
    if data in (
        classes,
        pictures,
    ):  # the Trainer's loss of tokens is a mean of the means of batches
        assert told["eval_loss"] == pytest.approx(losses[-1].item(), rel=1e-4)


def test_a_head_that_is_no_last_linear_layer_is_read_as_the_model_reads_it(tmp_path):
    model, given = decoder(), classes()
    told = trainer(tmp_path, model, given).evaluate()
    batch = hf.default_data_collator(given)
    labels = batch.pop("labels")
    with torch.no_grad():
        hidden = model(**batch, output_hidden_states=True).hidden_states
        for layer in (1, 2, 3):
            normed = hidden[layer] if layer == 3 else model.transformer.ln_f(hidden[layer])
            right = (model.score(normed[:, -1]).argmax(-1) == labels).double().mean().item()
            assert told[f"eval_accuracy_layer_{layer}"] == pytest.approx(right, abs=1e-12)


def test_scores_come_out_of_the_models_own_pass(tmp_path):
    model, given, calls = tiny.gpt2(), running(10), []
    run = trainer(tmp_path, model, given)
    plain = trainer(tmp_path, tiny.gpt2(), given)
    plain.exit_loss.detach()
    model.transformer.h[0].register_forward_hook(lambda *_: calls.append(1))
    assert run.evaluate()["eval_loss"] == plain.evaluate()["eval_loss"]
    assert len(calls) == 2
    found = run.predict(given)
    np.testing.assert_array_equal(found.predictions, plain.predict(given).predictions)
    assert found.metrics["test_perplexity"] > 1


@pytest.mark.parametrize("layers", [None, (2, 3)])
def test_classifiers_are_read_by_their_own_heads(tmp_path, layers):
    model, given = tiny.classifier(), classes()
    run = trainer(
        tmp_path / "out", model, given, "classifiers", layers=layers, history=tmp_path / "history"
    )
    run.train()
    run.evaluate()
    losses = open_run(tmp_path / "history").metric("cross_entropy")
    _, states, labels = by_hand(model, given)
    own = dict(zip(layers or (1, 2), model.exit_heads, strict=False))
    for layer in (1, 2, 3):
        logits = own.get(layer, model.classifier)(states[layer - 1].float())
        assert losses[layer] == pytest.approx(
            torch.nn.functional.cross_entropy(logits, labels).item(), rel=1e-5
        )
    assert not torch.equal(model.exit_heads[0].weight, model.classifier.weight)


def test_the_trainers_own_ways_hold(tmp_path):
    seen = []

    class Notes(hf.TrainerCallback):
        def on_evaluate(self, args, state, control, metrics, **_):
            seen.append(metrics)

    def metrics(found):
        return {
            "accuracy": -1.0,
            "own": float((found.predictions.argmax(-1) == found.label_ids).mean()),
        }

    run = trainer(
        tmp_path / "out",
        tiny.classifier(),
        classes(),
        history=tmp_path / "history",
        compute_metrics=metrics,
        callbacks=[Notes],
        eval_strategy="steps",
        eval_steps=2,
        save_strategy="steps",
        save_steps=2,
        max_steps=6,
        load_best_model_at_end=True,
        metric_for_best_model="accuracy_layer_1",
    )
    run.train()
    assert [found["eval_accuracy"] for found in seen] == [
        -1.0
    ] * 3  # what compute_metrics gave stays
    assert seen[0]["eval_own"] == open_run(tmp_path / "history").metric("layer_accuracy", step=2)[3]
    assert run.state.best_metric == max(found["eval_accuracy_layer_1"] for found in seen)
    assert (
        run.evaluate(metric_key_prefix="late")["late_own"]
        == run.evaluate()["eval_accuracy_layer_3"]
    )
    assert run.exit_loss.score is None
    unlabelled = run.predict([{k: v for k, v in row.items() if k != "labels"} for row in classes()])
    assert not [name for name in unlabelled.metrics if "layer" in name]


def test_several_evaluation_sets_have_a_history_each(tmp_path):
    run = trainer(tmp_path / "out", tiny.classifier(), classes(), history=tmp_path / "history")
    run.eval_dataset = {"near": classes(6), "far": classes(13)}
    told = run.evaluate()
    for name, n in (("near", 6), ("far", 13)):
        history = open_run(tmp_path / "history" / name)
        assert history.metric("layer_accuracy")[3] == told[f"eval_{name}_accuracy"]
        assert history.info["data"]["samples"] == n
    with pytest.raises(LayerscopeError, match="holds some"):
        open_run(tmp_path / "history")


def test_a_resumed_history_is_the_undisturbed_one(tmp_path):
    steps = {"eval_strategy": "steps", "eval_steps": 2, "max_steps": 8}
    trainer(tmp_path / "a", tiny.gpt2(), running(), history=tmp_path / "whole", **steps).train()
    history = tmp_path / "parts"
    saving = steps | {"save_strategy": "steps", "save_steps": 4}
    first = trainer(tmp_path / "b", tiny.gpt2(), running(), history=history, **saving)
    first.train()
    assert open_run(history).steps == (2, 4, 6, 8)

    class Watches(hf.TrainerCallback):
        def on_step_end(self, args, state, control, **_):
            assert (
                open_run(history).steps[-1] == 4 or state.global_step > 6
            )  # later ones are dropped
            return control

    again = trainer(
        tmp_path / "b", tiny.gpt2(), running(), history=history, callbacks=[Watches], **steps
    )
    again.train(str(tmp_path / "b" / "checkpoint-4"))
    one, two = (open_run(path).table() for path in (tmp_path / "whole", history))
    pd.testing.assert_frame_equal(one, two)
    again.evaluate()  # the same step once more
    pd.testing.assert_frame_equal(open_run(history).table(), one)


def test_a_history_is_a_run(tmp_path):
    path = tmp_path / "history"
    run = trainer(
        tmp_path / "out",
        tiny.classifier(),
        classes(),
        history=path,
        eval_strategy="steps",
        eval_steps=2,
    )
    run.train()
    history = open_run(path)
    assert history.steps == (2, 4) and history.depth == 3 and history.final == "head"
    assert history.info["options"]["objective"] == "aligned" and history.info["kind"] == "training"
    table = history.table()
    assert (
        history.metric("nc1").tolist()
        == table[(table["metric"] == "nc1") & (table["step"] == 4)]["value"].tolist()
    )
    assert history.metric("nc1", step=2).tolist() != history.metric("nc1").tolist()
    assert history.metric("effective_depth", variant="relative_to=all,epsilon=0.01")[3] in (1, 2, 3)
    with pytest.raises(LayerscopeError, match="is the history of a training and holds no states"):
        history.pooled(1)
    with pytest.raises(LayerscopeError, match="step 3 is not in this run: it has 2, 4"):
        history.metric("nc1", step=3)
    for verb in (select, truncate):
        with pytest.raises(LayerscopeError, match="is the history of a training"):
            verb(path, **({"layer": 2, "out": tmp_path / "cut"} if verb is truncate else {}))
    assert report(history).stat().st_size > 1e6
    assert not [file.name for file in path.rglob(".*part")]


def test_another_training_is_refused(tmp_path):
    path = tmp_path / "history"
    trainer(tmp_path / "out", tiny.classifier(), classes(), history=path).evaluate()
    with pytest.raises(
        LayerscopeError, match="another training \\(objective: aligned there, standard here\\)"
    ):
        trainer(tmp_path / "out", tiny.classifier(), classes(), "standard", history=path)
    with pytest.raises(LayerscopeError, match="another training \\(class: BertForSequence"):
        trainer(tmp_path / "out", tiny.gpt2(), running(), history=path)
    told = read_json(path / "run.json")
    del told["kind"]
    write_json(path / "run.json", told)
    with pytest.raises(LayerscopeError, match="holds a run that is not a training"):
        trainer(tmp_path / "out", tiny.classifier(), classes(), history=path)
    shutil.rmtree(path)
    path.mkdir()
    (path / "mine.txt").write_text("")
    with pytest.raises(LayerscopeError, match="holds other files \\(mine.txt\\)"):
        trainer(tmp_path / "out", tiny.classifier(), classes(), history=path).evaluate()


SCRIPT = """
import tiny
from test_history import classes, trainer
run = trainer(sys.argv[1] + "/out", tiny.classifier(), classes(13), history=sys.argv[1] + "/history",
              per_device_eval_batch_size=2)
told = run.evaluate()
if run.args.process_index == 1:
    print({name: value for name, value in told.items() if "layer" in name or "nc1" in name})
"""


def test_two_processes_score_each_sample_once(forks, tmp_path):
    both = forks.together(
        tmp_path, script=f"import sys\nsys.path.append({str(Path(__file__).parent)!r})\n{SCRIPT}"
    )
    ends = [running.wait() for running in both]
    assert [ended.status for ended in ends] == [0, 0], ends[0].err[-2000:]
    trainer(tmp_path / "one", tiny.classifier(), classes(13), history=tmp_path / "alone").evaluate()
    one, two = (open_run(tmp_path / name).table() for name in ("alone", "history"))
    assert two["n"].unique().tolist() == [13]  # 16 passed, three of them twice
    np.testing.assert_allclose(two["value"], one["value"], rtol=1e-5)
    assert f"'eval_nc1': {open_run(tmp_path / 'history').metric('nc1')[3]}" in ends[1].out
