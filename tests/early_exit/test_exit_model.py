"""Rows that leave early have the logits of the model that ends there, whatever the batch; nothing else changes."""

import copy
import pickle
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers as hf
from classifiers import CASES, CLASSES, D, L, batch_for, samples_for, truncated
from tiny import classifier, saved, seeded, texts, tokenizer
from torch import Tensor, nn

import layerscope
from layerscope.core.errors import LayerscopeError
from layerscope.early_exit import ExitModel
from layerscope.early_exit.calibration import calibrate_recorded
from layerscope.early_exit.criteria import CRITERIA, sureness
from layerscope.early_exit.guarantee import Goal
from layerscope.early_exit.recorded import record
from layerscope.early_exit.saving import fingerprint
from layerscope.models.exit_heads import ExitHeads
from layerscope.models.forward import Inputs


def leaving(layers: Tensor) -> Any:
    return lambda layer, logits, rows: layers[rows.cpu()] == layer


def close(one: Tensor, two: Tensor) -> None:
    torch.testing.assert_close(one.float(), two.float(), rtol=1e-5, atol=1e-5)


@torch.no_grad()
def plain(model: nn.Module, inputs: Inputs) -> Tensor:
    return model(**inputs.named).logits


@pytest.fixture(scope="module")
def bert() -> ExitModel:
    model, processor = CASES["bert"]()
    return ExitModel(model, processor=processor)


def state_of(model: nn.Module) -> tuple[Any, ...]:
    """What must not change: configuration, hooks, replaced forwards, training mode."""
    hooks = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_forward_hooks_with_kwargs")
    modules = [
        (name, "forward" in vars(child), child.training, *(len(getattr(child, hook)) for hook in hooks))
        for name, child in model.named_modules()
    ]
    return copy.deepcopy(model.config.to_dict()), modules


@pytest.mark.parametrize("name", CASES)
def test_a_row_has_the_logits_of_the_model_that_ends_where_it_leaves(name: str) -> None:
    module, processor = CASES[name]()
    inputs = batch_for(ExitModel(copy.deepcopy(module), processor=processor), 6)
    plain(module, inputs)  # transformers puts hooks of its own on some models when they first run
    before = state_of(module)
    model = ExitModel(module, processor=processor)
    layers = torch.tensor([1, L, L - 1, 1, 2, L])  # the longest sample leaves first
    found = model.run(inputs, range(1, L), leaving(layers))
    assert found.layers.tolist() == layers.tolist()
    ends = {layer: plain(truncated(model, layer), inputs) for layer in sorted(set(layers.tolist()))}
    wanted = torch.stack([ends[layer][row] for row, layer in enumerate(layers.tolist())])
    close(found.logits, wanted)
    with pytest.raises(AssertionError):
        close(ends[1], ends[L])
    assert state_of(module) == before


@pytest.mark.parametrize("name", ["bert", "modernbert", "gpt2", "bloom", "vit", "wav2vec2"])
def test_batch_mates_and_order_change_nothing(name: str) -> None:
    module, processor = CASES[name]()
    model = ExitModel(module, processor=processor)
    samples = samples_for(model, 5)
    layers = torch.tensor([L, 1, 2, L - 1, 1])
    encoder = model.layered.encoder
    together = model.run(encoder.batch(samples), range(1, L), leaving(layers))
    order = [3, 0, 4, 2, 1]
    turned = model.run(encoder.batch([samples[i] for i in order]), range(1, L), leaving(layers[order]))
    close(turned.logits, together.logits[order])
    assert turned.layers.tolist() == layers[order].tolist()
    for row in range(5):
        alone = model.run(encoder.batch([samples[row]]), range(1, L), leaving(layers[row : row + 1]))
        close(alone.logits[0], together.logits[row])


def test_a_truncated_checkpoint_agrees(tmp_path: Path) -> None:
    module, processor = CASES["llama"]()
    module.save_pretrained(tmp_path / "full")
    processor.save_pretrained(tmp_path / "full")
    own = {layer: {"weight": torch.randn(CLASSES, D)} for layer in (1, 3)}  # layer 2 is read by the model's head
    ExitHeads("score", own).save(tmp_path / "full")
    model = ExitModel(tmp_path / "full")
    inputs = batch_for(model, 4)
    for layer in range(1, L):
        out = layerscope.truncate(tmp_path / "full", layer, tmp_path / f"cut{layer}", progress=False)
        cut = hf.AutoModelForSequenceClassification.from_pretrained(out).eval()
        found = model.run(inputs, [layer], leaving(torch.full((4,), layer)))
        close(found.logits, plain(cut, inputs))
    shared = ExitModel(model.model, processor=model.processor)
    assert fingerprint(shared) != fingerprint(model) == fingerprint(ExitModel(model))
    ExitHeads("score", {1: {"weight": torch.randn(CLASSES, D + 1)}}).save(tmp_path / "full")
    with pytest.raises(LayerscopeError, match="holds a head for layer 1 that is unlike this model's own"):
        ExitModel(tmp_path / "full")


@pytest.mark.parametrize("criterion", CRITERIA)
def test_rows_leave_where_they_are_sure(criterion: str, bert: ExitModel) -> None:
    samples = samples_for(bert, 40, seed=3)
    encoder = bert.layered.encoder
    bert.leave(criterion=criterion)
    recorded = record(bert, [encoder.batch(samples[i : i + 7]) for i in range(0, 40, 7)])
    for exits in ((1, 2, 3), (2, 3), (3,)):
        scores = recorded.scores_at(exits)
        for threshold in {1.0, 2.0} if criterion == "patience" else np.quantile(scores, [0.1, 0.5, 0.9]):
            wanted = _walk(bert, samples, exits, float(threshold), criterion)
            assert recorded.leaves(exits, threshold).tolist() == wanted
            bert.leave(exits, float(threshold), criterion)
            for size in (1, 6, 40):
                parts = [bert(**encoder.batch(samples[i : i + size]).named) for i in range(0, 40, size)]
                assert torch.cat([part.exit_layer for part in parts]).tolist() == wanted
                found = torch.cat([part.prediction for part in parts]).numpy()
                assert (found == recorded.predicted(np.asarray(wanted))).all()


def _walk(model: ExitModel, samples: list[str], exits: tuple[int, ...], threshold: float, criterion: str) -> list[int]:
    """Where each sample leaves, one at a time, by truncated models."""
    cuts = {layer: truncated(model, layer) for layer in exits}
    found = []
    for sample in samples:
        inputs, agreeing, last = model.layered.encoder.batch([sample]), 0, None
        layer = L
        for candidate in exits:
            p = plain(cuts[candidate], inputs)[0].double().softmax(-1)
            top = p.sort(descending=True).values
            agreeing = agreeing + 1 if last == int(p.argmax()) else 0
            last = int(p.argmax())
            entropy = -(p * p.log()).sum() / np.log(CLASSES)
            said = {
                "confidence": top[0], "margin": top[0] - top[1], "entropy": 1 - entropy, "patience": agreeing,
            }[criterion]  # fmt: skip
            if float(said) >= threshold - (0 if criterion == "patience" else 1e-9):
                layer = candidate
                break
        found.append(layer)
    return found


def test_the_batch_gets_smaller_and_shorter(bert: ExitModel) -> None:
    encoder = bert.layered.encoder
    inputs = encoder.batch(["w1 " * 20, "w2 w3", "w4 " * 9])  # with [CLS] and [SEP]: 22, 4 and 11 tokens
    seen: list[tuple[str, int, int]] = []
    bert.run(inputs, (1, 2, 3), leaving(torch.tensor([1, 3, 2])), lambda *event: seen.append(event))
    assert [event for event in seen if event[0] in ("block", "leave")] == [
        ("block", 3, 22), ("leave", 2, 11), ("block", 2, 11), ("leave", 1, 4), ("block", 1, 4),
    ]  # fmt: skip
    assert [event[0] for event in seen][:3] == ["front", "block", "check"]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", ["bert", "modernbert", "gpt2", "llama", "vit", "wav2vec2"])
def test_half_precision(name: str, dtype: torch.dtype) -> None:
    module, processor = CASES[name]()
    model = ExitModel(module.to(dtype), processor=processor)
    inputs = batch_for(model, 4)
    layers = torch.tensor([1, L, L - 1, 2])
    found = model.run(inputs, range(1, L), leaving(layers))
    inputs = replace(inputs, named={k: v.to(dtype) if v.is_floating_point() else v for k, v in inputs.named.items()})
    for row, layer in enumerate(layers.tolist()):
        wanted = plain(truncated(model, layer), inputs)[row].float()
        assert float((found.logits[row].float() - wanted).norm()) < 0.05 * float(wanted.norm())


def test_how_exits_are_read() -> None:
    steps = {"bert": ["bert.pooler", "dropout", "classifier"], "vit": ["vit.layernorm", "classifier"], "gpt2": []}
    for name, wanted in steps.items():
        module, processor = CASES[name]()
        tail = ExitModel(module, processor=processor)._tail
        assert [step.path for step in tail.steps] == wanted and tail.skips == (not wanted)


def test_reading_an_exit_leaves_the_states_alone() -> None:
    module, processor = CASES["wav2vec2"]()
    model = ExitModel(module, processor=processor)
    inputs, seen = batch_for(model, 4), []
    hook = module.wav2vec2.encoder.layers[1].register_forward_pre_hook(lambda _, args: seen.append(args[0].clone()))
    model.run(inputs, (), lambda layer, logits, rows: rows < 0, lambda *_: None)
    model.run(inputs, (1,), lambda layer, logits, rows: (rows < 0).cpu())
    hook.remove()
    assert torch.equal(seen[0], seen[-1])


@pytest.mark.parametrize("name", ["gpt2", "llama", "qwen3"])
def test_decoders_given_positions_or_embeddings(name: str) -> None:
    module, processor = CASES[name]()
    model = ExitModel(module, processor=processor)
    inputs = batch_for(model, 4)
    ids, mask = inputs.named["input_ids"], inputs.named["attention_mask"]
    layers = torch.tensor([1, L, L - 1, 2])
    positions = torch.arange(ids.shape[1]).expand(ids.shape)
    embeds = module.get_input_embeddings()(ids).detach()
    for named in (
        {"input_ids": ids, "attention_mask": mask, "position_ids": positions},
        {
            "input_ids": ids.flip(1),
            "attention_mask": mask.flip(1),
            "position_ids": (mask.flip(1).cumsum(1) - 1).clamp_min(0),
        },
        {"inputs_embeds": embeds, "attention_mask": mask},
    ):
        batch = Inputs(named, mask=named["attention_mask"])
        found = model.run(batch, range(1, L), leaving(layers))
        wanted = [plain(truncated(model, layer), batch)[row] for row, layer in enumerate(layers.tolist())]
        close(found.logits, torch.stack(wanted))


def test_switched_off_it_is_the_model_itself() -> None:
    module, processor = CASES["bert"]()
    model = ExitModel(module, processor=processor)
    inputs = batch_for(model, 5)
    for off in (model, model.leave((), 0.5)):
        out = off(**inputs.named)
        assert torch.equal(out.logits, plain(module, inputs))
        assert out.exit_layer.tolist() == [L] * 5
    module.bert.encoder.layer[0].register_forward_hook(
        lambda *_: seen.append(len(module.bert.encoder.layer[1]._forward_hooks))
    )
    seen: list[int] = []
    model.leave(None)(**inputs.named)
    assert seen == [0]


def test_it_is_called_as_the_classifier_is(bert: ExitModel) -> None:
    inputs = batch_for(bert, 4)
    ids, mask = inputs.named["input_ids"], inputs.named["attention_mask"]
    model = bert.leave((1, 2), 0.25)
    named = model(input_ids=ids, attention_mask=mask)
    assert torch.equal(model(ids, mask).logits, named.logits)
    assert torch.equal(model(ids, mask, return_dict=False)[0], named.logits)
    labels = torch.tensor([0, 1, 2, 3])
    loss = nn.functional.cross_entropy(named.logits, labels)
    assert torch.allclose(model(ids, mask, labels=labels).loss, loss)
    assert torch.allclose(model(ids, mask, None, None, None, labels).loss, loss)
    embeds = bert.model.get_input_embeddings()(ids)
    close(model(inputs_embeds=embeds, attention_mask=mask).logits, named.logits)
    assert torch.equal(named.prediction, named.logits.argmax(-1))
    assert torch.allclose(named.confidence.double(), sureness(named.logits, "confidence"))
    assert set(named.exit_layer.tolist()) - {L}, "no row left early"
    assert model.config is bert.model.config and model.device == ids.device
    import inspect

    assert inspect.signature(model.forward) == inspect.signature(bert.model.forward)


def test_padding_on_the_left_no_mask_and_short_rows(bert: ExitModel) -> None:
    model = bert.leave((1, 2, 3), 0.26)
    encoder = model.layered.encoder
    batch = encoder.batch(samples_for(model, 4)).named
    ids, mask = batch["input_ids"], batch["attention_mask"]
    positions = (mask.flip(1).cumsum(1) - 1).clamp_min(0)
    left = model(input_ids=ids.flip(1), attention_mask=mask.flip(1), position_ids=positions)
    for layer in range(1, L + 1):
        rows = left.exit_layer == layer
        with torch.no_grad():
            ends = truncated(model, layer)(
                input_ids=ids.flip(1), attention_mask=mask.flip(1), position_ids=positions
            ).logits
        close(left.logits[rows], ends[rows])
    one = torch.tensor([[5], [6]])
    close(model(input_ids=one).logits[:1], model(input_ids=one[:1]).logits)
    assert model(input_ids=one[:1]).exit_layer.shape == (1,)


def test_an_exception_leaves_the_model_as_it_was() -> None:
    module, processor = CASES["modernbert"]()
    model = ExitModel(module, processor=processor, exits=(1, 2), threshold=0.3)
    inputs, before = batch_for(model, 4), state_of(module)

    def breaks(layer: int, logits: Tensor, rows: Tensor) -> Tensor:
        if layer == 2:
            raise KeyError("broken")
        return torch.arange(len(rows)) == 0

    with pytest.raises(KeyError, match="broken"):
        model.run(inputs, (1, 2), breaks)
    assert state_of(module) == before
    lens = module.model.layers[1].register_forward_hook(lambda *_: (_ for _ in ()).throw(MemoryError("no room")))
    with pytest.raises(MemoryError):
        model.run(inputs, (1, 2), leaving(torch.tensor([1, 2, L, L])))
    lens.remove()
    assert state_of(module) == before
    module.train()
    training = state_of(module)
    model(**inputs.named)
    assert state_of(module) == training
    module.eval()
    close(model(**inputs.named).logits, model(**inputs.named).logits)


def test_nan_logits_name_the_layer(bert: ExitModel) -> None:
    model = copy.deepcopy(bert)
    inputs = batch_for(model, 3)
    with torch.no_grad():
        model.model.bert.encoder.layer[1].output.dense.bias.fill_(float("nan"))
    with pytest.raises(LayerscopeError, match="^layer 2 gives logits that are NaN"):
        model.leave((1, 2), 0.999)(**inputs.named)
    with pytest.raises(LayerscopeError, match="^this model gives logits that are NaN"):
        model.leave((1,), 0.999)(**inputs.named)
    early = model.leave((1,), 0.0)(**inputs.named)
    assert bool(early.logits.isfinite().all()), "rows leave before the broken layer"


@pytest.mark.filterwarnings("error")
def test_threads_wait_for_each_other(bert: ExitModel) -> None:
    batches = [batch_for(bert, 5, seed) for seed in range(4)]
    model, other = bert.leave((1, 2, 3), 0.26), copy.copy(bert)
    wanted = [model(**inputs.named).logits for inputs in batches]
    off = copy.copy(bert).leave((), 0.5)
    wanted += [plain(bert.model, inputs) for inputs in batches]
    found: dict[int, Tensor] = {}

    def work(i: int) -> None:
        for _ in range(5):
            found[i] = (off if i > 3 else model if i % 2 else other)(**batches[i % 4].named).logits

    threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(torch.equal(found[i], wanted[i]) for i in range(8))


def test_a_trainer_predicts_with_it(tmp_path: Path) -> None:
    module, processor = CASES["bert"]()
    model = ExitModel(module, processor=processor)
    first = plain(truncated(model, 1), batch_for(model, 20)).softmax(-1).amax(-1)
    model.leave(threshold=float(first.median()))
    rows = [dict(processor(text), labels=i % CLASSES) for i, text in enumerate(samples_for(model, 20))]
    arguments = hf.TrainingArguments(tmp_path, per_device_eval_batch_size=8, report_to="none", use_cpu=True)
    trainer = hf.Trainer(model, arguments, processing_class=processor)
    found = trainer.predict(rows)
    logits, layers = found.predictions[0], found.predictions[2]
    wanted = [model(**processor(text, return_tensors="pt")) for text in samples_for(model, 20)]
    np.testing.assert_allclose(logits, torch.cat([out.logits for out in wanted]).numpy(), atol=1e-5)
    assert layers.tolist() == [int(out.exit_layer) for out in wanted] and len(set(layers.tolist())) > 1
    assert found.metrics["test_loss"] > 0


def test_copies_pickles_and_gradients_after_it(bert: ExitModel) -> None:
    model = bert.leave((1, 3), 0.25)
    inputs = batch_for(model, 4)
    wanted = model(**inputs.named).logits
    for other in (copy.deepcopy(model), pickle.loads(pickle.dumps(model)), ExitModel(model).leave((1, 3), 0.25)):
        assert isinstance(other, ExitModel) and (other.exits, other.threshold) == ((1, 3), 0.25)
        assert torch.equal(other(**inputs.named).logits, wanted)
    probe = nn.Linear(CLASSES, 2)
    probe(model(**inputs.named).logits).sum().backward()
    assert probe.weight.grad is not None


def test_weights_that_are_not_numbers_and_compiled_models() -> None:
    module, processor = CASES["bert"]()
    assert ExitModel(torch.compile(module), processor=processor).model is module
    with torch.no_grad():
        module.classifier.weight.fill_(float("nan"))
    with pytest.raises(
        LayerscopeError, match="cannot leave early: the model's head gives NaN or infinity; look at its"
    ):
        ExitModel(module, processor=processor)


def test_pipelines(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hf.logging.get_logger("transformers"), "propagate", True)
    for name, task in (("bert", "text-classification"), ("vit", "image-classification")):
        module, processor = CASES[name]()
        processor = processor or hf.ViTImageProcessor(size={"height": 16, "width": 16})
        model = ExitModel(module, processor=processor, threshold=0.22)
        part = {"tokenizer": processor} if name == "bert" else {"image_processor": processor}
        run = hf.pipeline(task, model=model, batch_size=3, device="cpu", **part)
        samples = samples_for(model, 5)
        told = run(samples)
        wanted = [model(**model.layered.encoder.batch([sample]).named) for sample in samples]
        assert [one["label"] if isinstance(one, dict) else one[0]["label"] for one in told] == [
            module.config.id2label[int(out.prediction)] for out in wanted
        ]
        assert any(int(out.exit_layer) < L for out in wanted)
    assert "not supported" not in caplog.text


def test_saved_and_loaded(tmp_path: Path) -> None:
    folder = saved(classifier(), tmp_path / "plain", special=True)
    model = ExitModel(folder)
    corpus = texts(400, seed=1)
    encoder = model.layered.encoder
    recorded = record(model, [encoder.batch(corpus[i : i + 50]) for i in range(0, 400, 50)])
    made = calibrate_recorded(recorded, (1, 2), Goal(max_disagreement=0.9))
    made = replace(made, fingerprint=fingerprint(model), dtype="float32")
    model.use(made).save_pretrained(tmp_path / "exits")
    again = ExitModel.from_pretrained(tmp_path / "exits")
    assert (again.exits, again.threshold, again.criterion) == ((1, 2), made.threshold, "confidence")
    assert again.calibration == made
    inputs = encoder.batch(corpus[:20])
    assert torch.equal(again(**inputs.named).logits, model(**inputs.named).logits)
    assert set(again(**inputs.named).exit_layer.tolist()) & {1, 2}
    whole = hf.AutoModelForSequenceClassification.from_pretrained(tmp_path / "exits").eval()
    assert torch.equal(plain(whole, inputs), plain(model.model, inputs))
    half = ExitModel.from_pretrained(tmp_path / "exits", dtype="bfloat16")
    assert half.threshold == made.threshold and half.model.dtype == torch.bfloat16
    assert half.calibration is None, "what was certified in float32 is not for other predictions"
    with pytest.raises(LayerscopeError, match="was made in float32, and exits runs in bfloat16"):
        half.use(made)

    with pytest.raises(LayerscopeError, match="holds no early_exit.json"):
        ExitModel.from_pretrained(folder)
    other = ExitModel(saved(classifier(seed=1), tmp_path / "other", special=True))
    with pytest.raises(LayerscopeError, match="this calibration is of other weights than those of other"):
        other.use(made)
    with pytest.raises(LayerscopeError, match="of a model of 3 classes, and .* has 4"):
        ExitModel(saved(classifier(4), tmp_path / "four", special=True)).use(made)
    other.model.save_pretrained(tmp_path / "exits")
    with pytest.raises(LayerscopeError, match="are of other weights than lie there"):
        ExitModel.from_pretrained(tmp_path / "exits")
    (tmp_path / "exits" / "early_exit.json").write_text("{")
    with pytest.raises(LayerscopeError, match="is not what an exit model was saved with"):
        ExitModel.from_pretrained(tmp_path / "exits")


SMALL = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 94}


def _regression() -> nn.Module:
    config = hf.BertConfig(
        hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=48, vocab_size=94
    )
    config.problem_type, config.num_labels = "multi_label_classification", 3
    return seeded(hf.BertForSequenceClassification, config)


@pytest.mark.parametrize(
    ("make", "line"),
    [
        (lambda: hf.BertModel(hf.BertConfig(**SMALL)),
         "BertModel has no head of classes over its model: give a classifier"),
        (lambda: hf.BertForTokenClassification(hf.BertConfig(**SMALL)),
         "BertForTokenClassification predicts tokens: give a model with one row of classes for each sample"),
        (_regression,
         "BertForSequenceClassification is made for multi_label_classification: exits need classes of which one is "
         "right"),
    ],
)  # fmt: skip
def test_models_that_have_no_exits(make: Any, line: str) -> None:
    with pytest.raises(LayerscopeError) as error:
        ExitModel(make().eval(), processor=tokenizer(special=True))
    assert str(error.value) == line


@pytest.mark.parametrize(
    ("options", "line"),
    [
        ({"exits": (9,)}, "exit 9 does not exist: give layers from 1 on, before the last of 4"),
        ({"exits": (4,)}, "exit 4 does not exist: give layers from 1 on, before the last of 4"),
        ({"exits": (0,)}, "exit 0 does not exist: give layers from 1 on, before the last of 4"),
        ({"exits": (1, 1)}, "exit 1 is named twice: name each once"),
        ({"exits": (True,)}, "exit True does not exist: give layers from 1 on, before the last of 4"),
        ({"threshold": 1.5}, "threshold 1.5 of confidence: give 0 to 1, or infinity for never"),
        ({"threshold": float("nan")}, "threshold nan of confidence: give 0 to 1, or infinity for never"),
        ({"threshold": "high"}, "threshold 'high' of confidence: give 0 to 1, or infinity for never"),
        ({"threshold": 0.5, "criterion": "patience"},
         "threshold 0.5 of patience: give a whole number of exits from 1 on"),
        ({"criterion": "sureness"},
         "criterion 'sureness' does not exist: choose confidence, margin, entropy, patience"),
    ],
)  # fmt: skip
def test_exits_and_thresholds_that_make_no_sense(options: dict[str, Any], line: str, bert: ExitModel) -> None:
    with pytest.raises(LayerscopeError) as error:
        bert.leave(**options)
    assert str(error.value) == line


@pytest.mark.parametrize(
    ("given", "line"),
    [
        ({}, "no tensor was given: call it as BertForSequenceClassification is called, such as model(**batch)"),
        ({"input_ids": torch.zeros(0, 4, dtype=torch.long)}, "this batch (0, 4) has no row: leave it out"),
        ({"input_ids": torch.zeros(2, 0, dtype=torch.long)}, "this batch (2, 0) has no position: leave it out"),
        ({"input_ids": torch.ones(2, 3, dtype=torch.long), "output_hidden_states": True},
         "output_hidden_states: rows leave at different layers, call .model for what all layers hold"),
    ],
)  # fmt: skip
def test_batches_that_cannot_be_run(given: dict[str, Any], line: str, bert: ExitModel) -> None:
    with pytest.raises(LayerscopeError) as error:
        bert.leave((1,), 0.5)(**given)
    assert str(error.value) == line
