"""What every exit gives the head, and the aligned loss over them, held to plain code of each architecture."""

import pytest
import torch
from models.test_capture import TEXTS, layered
from models.zoo import of_class, of_family
from torch import Tensor
from torch.nn.functional import cross_entropy
from trainers import gradients

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


def last_token(model, mask):
    return lambda h: model.score(model.model.norm(h))[range(len(mask)), mask.sum(1) - 1]


FAMILIES = {
    "bert": lambda m, _: m.cls,
    "gpt2": lambda m, _: lambda h: m.lm_head(m.transformer.ln_f(h)),
    "llama": lambda m, _: lambda h: m.lm_head(m.model.norm(h)),
    "mamba": lambda m, _: lambda h: m.lm_head(m.backbone.norm_f(h)),
}
CLASSIFIERS = {
    "BertForSequenceClassification": lambda m, _: (
        lambda h: m.classifier(m.bert.pooler(h))
    ),
    "DistilBertForSequenceClassification": lambda m, _: (
        lambda h: m.classifier(m.pre_classifier(h[:, 0]).relu())
    ),
    "LlamaForSequenceClassification": last_token,
    "BertForTokenClassification": lambda m, _: m.classifier,
}
READERS = FAMILIES | CLASSIFIERS
"""What reads a state of a batch with a mask, by the model's own modules."""


@pytest.mark.parametrize("kind", READERS)
def test_gradients_are_those_of_a_loss_for_each_layer(kind):
    is_classifier = kind in CLASSIFIERS
    make = of_class if is_classifier else of_family
    model = make(kind, **{"num_labels": 4} if is_classifier else {}).double()
    scope = layered(model)
    named = dict(scope.encoder.batch(TEXTS).named)
    exits = Exits(scope, Inputs(named))
    blocks = [model.get_submodule(path) for path in scope.stack.blocks]
    read = READERS[kind](model, named["attention_mask"])
    logits = [read(state) for state in states_of(model, blocks, named)]
    shape, generator = logits[0].shape[:-1], torch.Generator().manual_seed(0)
    labels = torch.randint(0, 4, shape, generator=generator)
    labels[0] = -100
    depth, plain = len(blocks), torch.zeros(())
    for layer, one in enumerate(logits, start=1):
        loss = cross_entropy(one.flatten(0, -2), labels.flatten())
        plain = plain + 2 * layer / (depth * (depth + 1)) * loss
    plain.backward()
    wanted = gradients(model)
    model.zero_grad()
    reads, head = exits(lambda: model(**named)), exits.head or torch.nn.Identity()
    aligned_loss(reads, labels, head).backward()
    found = gradients(model)
    assert found.keys() == wanted.keys() and len(found) > 10
    for name in wanted:
        torch.testing.assert_close(
            found[name], wanted[name], rtol=1e-8, atol=1e-10, msg=name
        )
    assert not any(block._forward_hooks for block in blocks)
    assert exits.layers == tuple(range(1, depth + 1))
    assert exits.head or is_classifier
    assert "forward" not in head.__dict__
    # it looks its last token up in the batch
    assert exits._at_once == (kind != "LlamaForSequenceClassification")
