"""What every exit gives the head, and the aligned loss over them, held to plain code of each architecture."""

from collections.abc import Callable

import pytest
import torch
import transformers as hf
from models.test_capture import TEXTS, layered
from models.zoo import COMMON, TEXT, build, vit
from torch import Tensor, nn

from layerscope.models import LoadOptions, Override, find_layers, load
from layerscope.models.forward import Inputs
from layerscope.models.inspection import made_up_samples
from layerscope.training import aligned_loss
from layerscope.training.exits import Exits

BODY = {
    "bert": (lambda m: m.bert.encoder.layer, lambda m: m.cls),
    "modernbert": (
        lambda m: m.model.layers,
        lambda m: lambda h: m.decoder(m.head(m.model.final_norm(h))),
    ),
    "gpt2": (lambda m: m.transformer.h, lambda m: lambda h: m.lm_head(m.transformer.ln_f(h))),
    "gpt_neox": (
        lambda m: m.gpt_neox.layers,
        lambda m: lambda h: m.get_output_embeddings()(m.gpt_neox.final_layer_norm(h)),
    ),
    "llama": (lambda m: m.model.layers, lambda m: lambda h: m.lm_head(m.model.norm(h))),
    "mamba": (lambda m: m.backbone.layers, lambda m: lambda h: m.lm_head(m.backbone.norm_f(h))),
}


def plain_states(model: nn.Module, blocks: nn.ModuleList, named: dict[str, Tensor]) -> list[Tensor]:
    """The output of every block, by hooks of the test's own."""
    found: list[Tensor] = []
    handles = [
        block.register_forward_hook(
            lambda _, __, out: found.append(out if isinstance(out, Tensor) else out[0])
        )
        for block in blocks
    ]
    model(**named)
    for handle in handles:
        handle.remove()
    return found


def naive(logits: list[Tensor], labels: Tensor) -> Tensor:
    depth = len(logits)
    return sum(
        2
        * layer
        / (depth * (depth + 1))
        * nn.functional.cross_entropy(one.flatten(0, -2), labels.flatten())
        for layer, one in enumerate(logits, start=1)
    )


def gradients(loss: Tensor, model: nn.Module) -> dict[str, Tensor]:
    model.zero_grad()
    loss.backward()
    return {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}


def compare(found: dict[str, Tensor], wanted: dict[str, Tensor]) -> None:
    assert found.keys() == wanted.keys() and len(found) > 10
    for name in wanted:
        torch.testing.assert_close(found[name], wanted[name], rtol=1e-8, atol=1e-10, msg=name)


def of(case: str) -> nn.Module:
    return next(c for c in TEXT if c.name.replace("-", "_") == case).make().double()


@pytest.mark.parametrize("case", BODY)
def test_gradients_of_language_models_are_those_of_a_loss_per_layer(case: str):
    model = of(case)
    scope = layered(model)
    inputs = scope.encoder.batch(TEXTS)
    exits = Exits(scope, inputs)
    assert (
        exits.head is not None
        and exits._at_once
        and exits.layers == tuple(range(1, scope.stack.depth + 1))
    )
    labels = inputs.named["input_ids"].clone()
    labels[:, 0] = -100
    named = dict(inputs.named)
    blocks, head = (part(model) for part in BODY[case])
    wanted = gradients(
        naive([head(state) for state in plain_states(model, blocks, named)], labels), model
    )
    found = gradients(aligned_loss(exits(lambda: model(**named)), labels, exits.head), model)
    compare(found, wanted)
    assert "forward" not in exits.head.__dict__
    assert not any(block._forward_hooks for block in blocks)


def classifiers() -> dict[str, Callable[[], nn.Module]]:
    two = {"num_labels": 4}
    return {
        "bert": lambda: hf.BertForSequenceClassification(hf.BertConfig(**COMMON, **two)),
        "distilbert": lambda: hf.DistilBertForSequenceClassification(
            hf.DistilBertConfig(vocab_size=99, dim=32, n_layers=3, n_heads=4, hidden_dim=64, **two)
        ),
        "llama": lambda: hf.LlamaForSequenceClassification(hf.LlamaConfig(**COMMON, **two)),
        "bert tokens": lambda: hf.BertForTokenClassification(hf.BertConfig(**COMMON, **two)),
    }


@pytest.mark.parametrize("kind", classifiers())
def test_gradients_of_classifiers_are_those_of_their_own_heads(kind: str):
    model = build(classifiers()[kind]).double()
    scope = layered(model)
    inputs = scope.encoder.batch(TEXTS)
    exits = Exits(scope, inputs)
    assert exits._at_once == (kind != "llama")  # it looks its last token up in the batch
    named = dict(inputs.named)
    shape = named["input_ids"].shape if kind == "bert tokens" else (len(TEXTS),)
    labels = torch.randint(0, 4, shape, generator=torch.Generator().manual_seed(0))

    def head(state: Tensor) -> Tensor:
        if kind == "bert":
            return model.classifier(model.bert.pooler(state))
        if kind == "distilbert":
            return model.classifier(model.pre_classifier(state[:, 0]).relu())
        if kind == "bert tokens":
            return model.classifier(state)
        last = named["attention_mask"].sum(1) - 1
        return model.score(model.model.norm(state))[torch.arange(len(last)), last]

    blocks = [model.get_submodule(path) for path in scope.stack.blocks]
    wanted = gradients(
        naive([head(state) for state in plain_states(model, blocks, named)], labels), model
    )
    given = exits(lambda: model(**named))
    found = gradients(aligned_loss(given, labels, exits.head or (lambda logits: logits)), model)
    compare(found, wanted)


def test_gradients_of_an_image_classifier():
    model = vit()
    pixels = torch.randn(
        5, 3, 16, 16, dtype=torch.float64, generator=torch.Generator().manual_seed(0)
    )
    loaded = load(model, LoadOptions(), None)
    images = made_up_samples(loaded)[1]
    scope = find_layers(loaded, "image", images, Override(), max_length=None, prompt="")
    model.double()
    exits = Exits(scope, Inputs({"pixel_values": pixels}))
    labels = torch.arange(5)
    states = plain_states(
        model,
        model.vit.layers if hasattr(model.vit, "layers") else model.vit.encoder.layer,
        {"pixel_values": pixels},
    )
    logits = [model.classifier(model.vit.layernorm(state)[:, 0]) for state in states]
    wanted = gradients(naive(logits, labels), model)
    found = gradients(
        aligned_loss(exits(lambda: model(pixel_values=pixels)), labels, exits.head), model
    )
    compare(found, wanted)
