"""Rows that leave early have the logits of the model that ends there, whatever the batch; nothing else changes."""

import copy
from dataclasses import replace

import numpy as np
import pytest
import torch
import transformers as hf
from classifiers import (
    CASES,
    CLASSES,
    D,
    L,
    batch_for,
    close,
    ended,
    exits_of,
    leaving,
    plain,
    samples_for,
    truncated,
    validation,
)
from typed import refused
from unchanged import state_of

import layerscope
from layerscope.early_exit import ExitModel
from layerscope.early_exit.validation import record_all
from layerscope.models.forward import Inputs
from layerscope.models.weights import ExitHeads


@pytest.mark.parametrize("name", CASES)
def test_a_row_has_the_logits_of_the_model_that_ends_where_it_leaves(name):
    module, processor = CASES[name]()
    inputs = batch_for(ExitModel(copy.deepcopy(module), processor=processor), 6)
    # transformers puts hooks of its own on some models when they first run
    whole = plain(module, inputs)
    before = state_of(module)
    model = ExitModel(module, processor=processor)
    layers = [1, L, L - 1, 1, 2, L]  # the longest sample leaves first
    left = model.run(inputs, range(1, L), leaving(torch.tensor(layers)))
    assert left.layers.tolist() == layers
    close(left.logits, ended(model, inputs, layers))
    with pytest.raises(AssertionError):
        close(left.logits, whole)
    assert state_of(module) == before


@pytest.mark.parametrize("name", ["modernbert", "gpt2", "vit", "wav2vec2"])
def test_batch_mates_and_order_change_nothing(name):
    model = exits_of(name)
    samples = samples_for(model, 5)
    layers = torch.tensor([L, 1, 2, L - 1, 1])
    encoder = model.layered.encoder
    together = model.run(encoder.batch(samples), range(1, L), leaving(layers))
    order = [3, 0, 4, 2, 1]
    turned = model.run(
        encoder.batch([samples[i] for i in order]), range(1, L), leaving(layers[order])
    )
    close(turned.logits, together.logits[order])
    assert turned.layers.tolist() == layers[order].tolist()
    for row in range(5):
        alone = model.run(
            encoder.batch([samples[row]]), range(1, L), leaving(layers[row : row + 1])
        )
        close(alone.logits[0], together.logits[row])


def test_a_truncated_checkpoint_agrees(tmp_path):
    module, processor = CASES["llama"]()
    module.save_pretrained(tmp_path / "full")
    processor.save_pretrained(tmp_path / "full")
    # layer 2 is read by the model's head
    own = {layer: {"weight": torch.randn(CLASSES, D)} for layer in (1, 3)}
    ExitHeads("score", own).save(tmp_path / "full")
    model = ExitModel(tmp_path / "full")
    inputs = batch_for(model, 4)
    for layer in range(1, L):
        out = layerscope.truncate(tmp_path / "full", layer, tmp_path / f"cut{layer}")
        cut = hf.AutoModelForSequenceClassification.from_pretrained(out).eval()
        found = model.run(inputs, [layer], leaving(torch.full((4,), layer)))
        close(found.logits, plain(cut, inputs))
    shared = ExitModel(model.model, processor=model.processor)
    assert shared.fingerprint() != model.fingerprint()
    with refused("is an ExitModel already: give its"):
        ExitModel(model)
    ExitHeads("score", {1: {"weight": torch.randn(CLASSES, D + 1)}}).save(
        tmp_path / "full"
    )
    with refused("holds a head for layer 1 that is unlike this model's own"):
        ExitModel(tmp_path / "full")


def test_rows_leave_where_they_are_sure(bert):
    samples = samples_for(bert, 24, seed=3)
    encoder = bert.layered.encoder
    recorded = record_all(bert, validation(bert, samples), 7)
    logits = _ends(bert, samples)
    for exits in ((1, 2, 3), (2, 3), (3,)):
        scores = recorded.scores_at(exits)
        for threshold in np.quantile(scores, [0.1, 0.5, 0.9]):
            wanted = _walk(logits, exits, float(threshold))
            assert recorded.leaves(exits, threshold).tolist() == wanted
            bert.leave(exits, float(threshold))
            for size in (1, 6, 24) if len(exits) == 3 else (6,):
                parts = [
                    bert(**encoder.batch(samples[i : i + size]).named)
                    for i in range(0, 24, size)
                ]
                assert torch.cat([part.exit_layer for part in parts]).tolist() == wanted
                found = torch.cat([part.prediction for part in parts]).numpy()
                assert (found == recorded.predicted(np.asarray(wanted))).all()


def _ends(model, samples):
    """The logits of each sample, one at a time, by a truncated model for every layer."""
    cuts = {layer: truncated(model, layer) for layer in range(1, L)}
    batches = (model.layered.encoder.batch([sample]) for sample in samples)
    return [
        {layer: plain(cut, inputs)[0].double() for layer, cut in cuts.items()}
        for inputs in batches
    ]


def _walk(logits, exits, threshold):
    """Where each sample leaves."""
    found = []
    for ends in logits:
        sure = [k for k in exits if ends[k].softmax(-1).max() >= threshold - 1e-9]
        found.append(min(sure, default=L))
    return found


def test_the_batch_gets_smaller_and_shorter(bert):
    encoder = bert.layered.encoder
    # with [CLS] and [SEP]: 22, 4 and 11 tokens
    inputs = encoder.batch(["w1 " * 20, "w2 w3", "w4 " * 9])
    seen = []
    bert.run(
        inputs,
        (1, 2, 3),
        leaving(torch.tensor([1, 3, 2])),
        lambda *event: seen.append(event),
    )
    assert [event for event in seen if event[0] in ("block", "leave")] == [
        ("block", 3, 22),
        ("leave", 2, 11),
        ("block", 2, 11),
        ("leave", 1, 4),
        ("block", 1, 4),
    ]
    assert [event[0] for event in seen][:3] == ["front", "block", "check"]


@pytest.mark.parametrize(
    "name, dtype",
    [
        ("bert", torch.bfloat16),
        ("modernbert", torch.float16),
        ("llama", torch.bfloat16),
        ("wav2vec2", torch.float16),
    ],
)
def test_half_precision(name, dtype):
    module, processor = CASES[name]()
    model = ExitModel(module.to(dtype), processor=processor)
    inputs = batch_for(model, 4)
    layers = [1, L, L - 1, 2]
    left = model.run(inputs, range(1, L), leaving(torch.tensor(layers)))
    named = {
        key: value.to(dtype) if value.is_floating_point() else value
        for key, value in inputs.named.items()
    }
    wanted = ended(model, replace(inputs, named=named), layers).float()
    error = (left.logits.float() - wanted).norm(dim=1) / wanted.norm(dim=1)
    assert error.max() < 0.05


def test_how_exits_are_read():
    steps = {
        "bert": ["bert.pooler", "dropout", "classifier"],
        "vit": ["vit.layernorm", "classifier"],
        "gpt2": [],
    }
    for name, wanted in steps.items():
        tail = exits_of(name)._head
        assert [path for path, _ in tail.steps] == wanted


def test_reading_an_exit_leaves_the_states_alone():
    model = exits_of("wav2vec2")
    inputs, seen = batch_for(model, 4), []
    hook = model.model.wav2vec2.encoder.layers[1].register_forward_pre_hook(
        lambda _, args: seen.append(args[0].clone())
    )
    model.run(inputs, (), lambda layer, logits, rows: rows < 0, lambda *_: None)
    model.run(inputs, (1,), lambda layer, logits, rows: (rows < 0).cpu())
    hook.remove()
    assert torch.equal(seen[0], seen[-1])


@pytest.mark.parametrize("name", ["gpt2", "qwen3"])
def test_decoders_given_positions_or_embeddings(name):
    model = exits_of(name)
    inputs = batch_for(model, 4)
    ids, mask = inputs.named["input_ids"], inputs.named["attention_mask"]
    layers = [1, L, L - 1, 2]
    positions = torch.arange(ids.shape[1]).expand(ids.shape)
    embeds = model.model.get_input_embeddings()(ids).detach()
    turned = {"input_ids": ids.flip(1), "attention_mask": mask.flip(1)}
    for named in (
        {"input_ids": ids, "attention_mask": mask, "position_ids": positions},
        turned | {"position_ids": (mask.flip(1).cumsum(1) - 1).clamp_min(0)},
        {"inputs_embeds": embeds, "attention_mask": mask},
    ):
        batch = Inputs(named, mask=named["attention_mask"])
        left = model.run(batch, range(1, L), leaving(torch.tensor(layers)))
        close(left.logits, ended(model, batch, layers))


def test_switched_off_it_is_the_model_itself():
    model = exits_of("bert")
    module, inputs = model.model, batch_for(model, 5)
    for off in (model, model.leave((), 0.5)):
        out = off(**inputs.named)
        assert torch.equal(out.logits, plain(module, inputs))
        assert out.exit_layer.tolist() == [L] * 5
    module.train()
    assert torch.equal(model(**inputs.named).logits, out.logits), "without dropout"
    module.eval()
    module.bert.encoder.layer[0].register_forward_hook(
        lambda *_: seen.append(len(module.bert.encoder.layer[1]._forward_hooks))
    )
    seen = []
    model.leave(None)(**inputs.named)
    assert seen == [0]
