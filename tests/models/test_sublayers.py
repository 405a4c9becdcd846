"""Sub-layers of every kind of block, each held to the block's own formula written out by hand."""

from collections import OrderedDict
from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest
import torch
from models import walks
from models.test_capture import TEXTS, layered, states
from models.zoo import (
    MLP,
    D,
    albert,
    bert,
    close,
    gemma2,
    gpt2,
    llama,
    mamba,
    of_class,
    t5,
)
from torch import nn
from typed import refused

opened = partial(layered, sublayers=True)


GIVEN = ("b", "x", "mix", "first", "second", "mlp_path", "scale")
# Each formula takes a block, its input x and `mix`, which runs its attention on what it reads; its
# other variables are named as the sites are.


def named(sites):
    """Return the sites among the variables of a formula."""
    return {
        name: value
        for name, value in sites.items()
        if name not in GIVEN and not name.endswith("norm")
    }


def pre_norm(first, second, mlp_path, scale=1.0):
    def formula(b, x, mix):
        attn_norm = b.get_submodule(first)(x)
        attn = mix(attn_norm)
        attn_residual = x + scale * attn
        mlp_norm = b.get_submodule(second)(attn_residual)
        mlp = b.get_submodule(mlp_path)(mlp_norm)
        raw = attn_residual + scale * mlp
        return named(locals())

    return formula


def of_bert(b, x, mix):
    attn = b.attention.output.dense(mix(x))
    attn_residual = x + attn
    attn_norm = b.attention.output.LayerNorm(attn_residual)
    mlp = b.output.dense(b.intermediate(attn_norm))
    mlp_residual = attn_norm + mlp
    raw = b.output.LayerNorm(mlp_residual)
    return named(locals())


def of_albert(b, x, mix):
    attn_norm = mix(x)  # its attention holds the addition and the norm
    mlp = b.ffn_output(b.activation(b.ffn(attn_norm)))
    mlp_residual = attn_norm + mlp
    raw = b.full_layer_layer_norm(mlp_residual)
    return named(locals())


def of_parallel(b, x, mix):
    attn_norm, mlp_norm = b.input_layernorm(x), b.post_attention_layernorm(x)
    attn, mlp = mix(attn_norm), b.mlp(mlp_norm)
    raw = x + attn + mlp
    return named(locals())


def of_mamba(b, x, mix):
    attn_norm = b.norm(x)
    attn = mix(attn_norm)
    raw = x + attn
    return named(locals())


def of_gemma2(b, x, mix):
    attn_norm = b.input_layernorm(x)
    attn = b.post_attention_layernorm(mix(attn_norm))
    attn_residual = x + attn
    mlp = b.post_feedforward_layernorm(
        b.mlp(b.pre_feedforward_layernorm(attn_residual))
    )
    raw = attn_residual + mlp
    return named(locals())


T5 = ("layer.0.layer_norm", "layer.1.layer_norm", "layer.1.DenseReluDense")
LLAMA = ("input_layernorm", "post_attention_layernorm", "mlp")


@dataclass(frozen=True)
class Case:
    name: str
    make: Any
    mixer: str
    formula: Any
    untold: tuple[str, ...] = ()
    """Sites that the formula cannot name, as they are inside of what it runs as a whole."""


CASES = [
    Case("gpt2", gpt2, "attn", pre_norm("ln_1", "ln_2", "mlp")),
    Case("llama", llama, "self_attn", pre_norm(*LLAMA)),
    Case(
        "granite",
        partial(of_class, "GraniteForCausalLM", residual_multiplier=0.22),
        "self_attn",
        pre_norm(*LLAMA, 0.22),
    ),
    Case("gemma2", gemma2, "self_attn", of_gemma2),
    Case("bert", bert, "attention.self", of_bert),
    Case("albert", albert, "attention", of_albert, ("attn", "attn_residual")),
    Case(
        "neox-parallel",
        partial(of_class, "GPTNeoXForCausalLM"),
        "attention",
        of_parallel,
    ),
    Case("mamba", mamba, "mixer", of_mamba),
    Case("t5", t5, "layer.0.SelfAttention", pre_norm(*T5)),
]


def by_hand(scope, case, raw):
    """Apply a block's formula to each layer's input; only its attention is asked with the arguments it was given."""
    given, expected = [], {}
    blocks = [scope.module.get_submodule(path) for path in scope.stack.blocks]
    handles = [
        block.get_submodule(case.mixer).register_forward_pre_hook(
            lambda _, __, kwargs: given.append(kwargs), with_kwargs=True
        )
        for block in dict.fromkeys(blocks)
    ]
    states(scope, TEXTS[:1])
    for handle in handles:
        handle.remove()
    for layer, (block, kwargs) in enumerate(zip(blocks, given, strict=True), 1):
        mixer = block.get_submodule(case.mixer)
        kwargs = {key: kwargs[key] for key in kwargs if key != "hidden_states"}

        def mix(x, mixer=mixer, kwargs=kwargs):
            return walks.first(mixer(x, **kwargs))

        for site, value in case.formula(block, raw[layer - 1].clone(), mix).items():
            expected[site, layer] = value
    return expected


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
@torch.no_grad()
def test_every_site_equals_the_blocks_formula(case):
    scope = opened(case.make(), **({"part": "encoder"} if case.name == "t5" else {}))
    found = states(scope, TEXTS[:1])
    raw = {layer: state for (site, layer), state in found.items() if site == "raw"}
    expected = by_hand(scope, case, raw)
    inside = {
        key for key in found if key[0] not in scope.sites and key[0] not in case.untold
    }
    assert inside == {key for key in expected if key[0] != "raw"}
    for key, value in expected.items():
        close(found[key], value, msg=lambda m, key=key: f"{key}: {m}")
    assert scope.sublayers.notes == ()


def test_the_cross_attention_of_a_decoder():
    kinds = ("attn", "cross_attn", "mlp")
    decoder = [f"{kind}{end}" for kind in kinds for end in ("", "_residual")][:-1]
    assert list(opened(t5(), part="decoder").sublayers.sites) == decoder


class Odd(nn.Module):
    """A block whose branch is multiplied to the stream: no addition to be found."""

    def __init__(self):
        super().__init__()
        self.norm, self.linear = nn.LayerNorm(D), nn.Linear(D, D)

    def forward(self, x):
        return x * self.linear(self.norm(x)).sigmoid()


def stacked(*blocks):
    """Return a model that is a row of blocks."""
    return nn.Sequential(OrderedDict(blocks=nn.Sequential(*blocks))).eval()


def test_what_has_no_addition_or_no_tokens_is_refused_in_one_line():
    for model, rows in (
        (stacked(Odd(), Odd()), torch.randn(3, 9, D)),
        (MLP(True, False), torch.randn(5, 8)),
    ):
        with refused(
            "^no sub-layers were found in the blocks of .*: leave `sublayers` out$",
        ):
            opened(model.eval(), "tensor", list(rows))


class Plain(nn.Module):
    """A block of one position-wise branch, after a norm that it may share."""

    def __init__(self, norm=None):
        super().__init__()
        self.norm = norm or nn.LayerNorm(D)
        self.inner = nn.Sequential(nn.Linear(D, D), nn.Tanh())

    def forward(self, x):
        return x + self.inner(self.norm(x))


def test_a_block_that_cannot_be_reported_is_named_and_the_others_are_kept():
    scope = opened(
        stacked(Plain(), Odd(), Plain()),
        "tensor",
        list(torch.randn(3, 9, D)),
        blocks="blocks",
    )
    assert scope.sublayers.sites == {"mlp": [1, 3]}
    note = "sub-layers cannot all be identified in block 2"
    assert scope.sublayers.notes == (note,) and note in scope.notes
