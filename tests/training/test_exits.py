"""What every exit gives the head, and the aligned loss over them, held to plain code of each architecture."""

from functools import partial

import pytest
import torch
from models.test_capture import TEXTS, layered
from models.zoo import TEXT, of_class
from torch import Tensor
from torch.nn.functional import cross_entropy

from layerscope.models.forward import Inputs
from layerscope.training import aligned_loss
from layerscope.training.exits import Exits


def states_of(model, blocks, named):
    """The output of every block, by hooks of the test's own."""
    states = []

    def keep(_, __, output):
        states.append(output if isinstance(output, Tensor) else output[0])

    handles = [block.register_forward_hook(keep) for block in blocks]
    model(**named)
    for handle in handles:
        handle.remove()
    return states


def gradients(loss, model):
    model.zero_grad()
    loss.backward()
    return {
        name: p.grad.clone()
        for name, p in model.named_parameters()
        if p.grad is not None
    }


def check(model, scope, named, labels, head):
    """Hold the gradients of the loss over a model's exits to those of a loss for each layer."""
    exits = Exits(scope, Inputs(named))
    blocks = [model.get_submodule(path) for path in scope.stack.blocks]
    depth, plain = len(blocks), torch.zeros(())
    for layer, state in enumerate(states_of(model, blocks, named), start=1):
        loss = cross_entropy(head(state).flatten(0, -2), labels.flatten())
        plain = plain + 2 * layer / (depth * (depth + 1)) * loss
    wanted = gradients(plain, model)
    reads = exits(lambda: model(**named))
    found = gradients(
        aligned_loss(reads, labels, exits.head or (lambda logits: logits)), model
    )
    assert found.keys() == wanted.keys() and len(found) > 10
    for name in wanted:
        torch.testing.assert_close(
            found[name], wanted[name], rtol=1e-8, atol=1e-10, msg=name
        )
    assert not any(block._forward_hooks for block in blocks)
    return exits


HEADS = {
    "bert": lambda m: m.cls,
    "gpt2": lambda m: lambda h: m.lm_head(m.transformer.ln_f(h)),
    "llama": lambda m: lambda h: m.lm_head(m.model.norm(h)),
    "mamba": lambda m: lambda h: m.lm_head(m.backbone.norm_f(h)),
}


@pytest.mark.parametrize("name", HEADS)
def test_gradients_of_language_models_are_those_of_a_loss_per_layer(name):
    model = (
        next(case for case in TEXT if case.name.replace("-", "_") == name)
        .make()
        .double()
    )
    scope = layered(model)
    named = dict(scope.encoder.batch(TEXTS).named)
    labels = named["input_ids"].clone()
    labels[:, 0] = -100
    exits = check(model, scope, named, labels, HEADS[name](model))
    assert exits.head is not None and exits._at_once
    assert exits.layers == tuple(range(1, scope.stack.depth + 1))
    assert "forward" not in exits.head.__dict__


CLASSIFIERS = {
    "bert": (
        partial(of_class, "BertForSequenceClassification"),
        lambda m, _: lambda h: m.classifier(m.bert.pooler(h)),
    ),
    "distilbert": (
        partial(of_class, "DistilBertForSequenceClassification", hidden_dim=64),
        lambda m, _: lambda h: m.classifier(m.pre_classifier(h[:, 0]).relu()),
    ),
    "llama": (
        partial(of_class, "LlamaForSequenceClassification"),
        lambda m, mask: (
            lambda h: m.score(m.model.norm(h))[range(len(mask)), mask.sum(1) - 1]
        ),
    ),
    "bert tokens": (
        partial(of_class, "BertForTokenClassification"),
        lambda m, _: m.classifier,
    ),
}


@pytest.mark.parametrize("kind", CLASSIFIERS)
def test_gradients_of_classifiers_are_those_of_their_own_heads(kind):
    make, head = CLASSIFIERS[kind]
    model = make(num_labels=4).double()
    scope = layered(model)
    named = dict(scope.encoder.batch(TEXTS).named)
    shape = named["input_ids"].shape if kind == "bert tokens" else (len(TEXTS),)
    labels = torch.randint(0, 4, shape, generator=torch.Generator().manual_seed(0))
    exits = check(model, scope, named, labels, head(model, named["attention_mask"]))
    # it looks its last token up in the batch
    assert exits._at_once == (kind != "llama")
