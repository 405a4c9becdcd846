"""An exit model instead of its classifier: calls, threads, a Trainer, copies, pipelines, exceptions."""

import copy
import inspect
import threading

import pytest
import torch
import transformers as hf
from classifiers import (
    CASES,
    CLASSES,
    L,
    batch_for,
    close,
    ended,
    exits_of,
    leaving,
    plain,
    samples_for,
)
from tiny import tokenizer
from torch import nn
from typed import refused
from unchanged import state_of

from layerscope.early_exit import ExitModel
from layerscope.early_exit.predictions import sureness
from layerscope.models.forward import Inputs


def test_it_is_called_as_the_classifier_is(bert):
    inputs = batch_for(bert, 4)
    ids, mask = inputs.named["input_ids"], inputs.named["attention_mask"]
    model = bert.leave((1, 2), 0.25)
    named = model(input_ids=ids, attention_mask=mask)
    assert torch.equal(model(ids, mask).logits, named.logits)
    labels = torch.tensor([0, 1, 2, 3])
    loss = nn.functional.cross_entropy(named.logits, labels)
    assert torch.allclose(model(ids, mask, labels=labels).loss, loss)
    assert torch.allclose(model(ids, mask, None, None, None, labels).loss, loss)
    embeds = bert.model.get_input_embeddings()(ids)
    close(model(inputs_embeds=embeds, attention_mask=mask).logits, named.logits)
    assert torch.equal(named.prediction, named.logits.argmax(-1))
    assert torch.allclose(named.confidence.double(), sureness(named.logits))
    assert set(named.exit_layer.tolist()) - {L}, "no row left early"
    assert model.config is bert.model.config and model.device == ids.device
    assert inspect.signature(model.forward) == inspect.signature(bert.model.forward)


def test_padding_on_the_left_no_mask_and_short_rows(bert):
    model = bert.leave((1, 2, 3), 0.26)
    batch = batch_for(model, 4).named
    ids, mask = batch["input_ids"], batch["attention_mask"]
    positions = (mask.flip(1).cumsum(1) - 1).clamp_min(0)
    turned = {
        "input_ids": ids.flip(1),
        "attention_mask": mask.flip(1),
        "position_ids": positions,
    }
    left = model(**turned)
    close(left.logits, ended(model, Inputs(turned), left.exit_layer.tolist()))
    one = torch.tensor([[5], [6]])
    close(model(input_ids=one).logits[:1], model(input_ids=one[:1]).logits)
    assert model(input_ids=one[:1]).exit_layer.shape == (1,)


def test_an_exception_leaves_the_model_as_it_was():
    model = exits_of("modernbert", exits=(1, 2), threshold=0.3)
    module = model.model
    inputs, before = batch_for(model, 4), state_of(module)

    def breaks(layer, logits, rows):
        if layer == 2:
            raise KeyError("broken")
        return torch.arange(len(rows)) == 0

    with pytest.raises(KeyError, match="broken"):
        model.run(inputs, (1, 2), breaks)
    assert state_of(module) == before
    lens = module.model.layers[1].register_forward_hook(
        lambda *_: (_ for _ in ()).throw(MemoryError("no room"))
    )
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


@pytest.mark.filterwarnings("error")
def test_threads_wait_for_each_other(bert):
    batches = [batch_for(bert, 5, seed) for seed in range(4)]
    model, other = bert.leave((1, 2, 3), 0.26), copy.copy(bert)
    wanted = [model(**inputs.named).logits for inputs in batches]
    off = copy.copy(bert).leave((), 0.5)
    wanted += [plain(bert.model, inputs) for inputs in batches]
    found = {}

    def work(i):
        for _ in range(5):
            shared = model if i % 2 else other
            found[i] = (off if i > 3 else shared)(**batches[i % 4].named).logits

    threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(torch.equal(found[i], wanted[i]) for i in range(8))


def test_copies_and_gradients_after_it(bert):
    model = bert.leave((1, 3), 0.25)
    inputs = batch_for(model, 4)
    wanted = model(**inputs.named).logits
    other = copy.deepcopy(model)
    assert (other.exits, other.threshold) == ((1, 3), 0.25)
    assert torch.equal(other(**inputs.named).logits, wanted)
    probe = nn.Linear(CLASSES, 2)
    probe(model(**inputs.named).logits).sum().backward()
    assert probe.weight.grad is not None


def test_weights_that_are_not_numbers_and_compiled_models():
    module, processor = CASES["bert"]()
    assert ExitModel(torch.compile(module), processor=processor).model is module
    with torch.no_grad():
        module.classifier.weight.fill_(float("nan"))
    with refused(
        "cannot leave early: the model's head gives NaN or infinity; check its"
    ):
        ExitModel(module, processor=processor)


def test_pipelines(caplog, monkeypatch):
    monkeypatch.setattr(hf.logging.get_logger("transformers"), "propagate", True)
    image_processor = hf.ViTImageProcessor(size={"height": 16, "width": 16})
    for name, task, part in (
        ("bert", "text-classification", {"tokenizer": tokenizer(special=True)}),
        ("vit", "image-classification", {"image_processor": image_processor}),
    ):
        module, _ = CASES[name]()
        (processor,) = part.values()
        model = ExitModel(module, processor=processor, threshold=0.22)
        run = hf.pipeline(task, model=model, batch_size=3, device="cpu", **part)
        samples = samples_for(model, 5)
        # the likeliest class alone, or all from the likeliest on
        best = [one if isinstance(one, dict) else one[0] for one in run(samples)]
        batches = (model.layered.encoder.batch([sample]) for sample in samples)
        alone = [model(**batch.named) for batch in batches]
        labels = [module.config.id2label[int(one.prediction)] for one in alone]
        assert [one["label"] for one in best] == labels
        assert any(int(one.exit_layer) < L for one in alone)
    assert "not supported" not in caplog.text
