"""Depth that is no list: loops are found with their iterations named, or refused; streams are no layers."""

import pytest
import torch
import transformers as hf
from models.test_capture import TEXTS, layered, states
from models.zoo import COMMON, D, V, build, close, of_family
from torch import nn
from typed import refused

import layerscope

STREAMS = 4


class Block(nn.Module):
    """A pre-norm block with causal attention."""

    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(D)
        self.attention = nn.MultiheadAttention(D, 2, batch_first=True)
        self.mlp = nn.Sequential(nn.LayerNorm(D), nn.Linear(D, 64), nn.GELU())
        self.out = nn.Linear(64, D)

    def forward(self, x):
        length = x.shape[1]
        later = torch.ones(length, length, dtype=torch.bool).triu(1)
        h = self.norm(x)
        x = x + self.attention(h, h, h, attn_mask=later, need_weights=False)[0]
        return x + self.out(self.mlp(x))


class Looped(nn.Module):
    """A language model of blocks that `order` runs one after the other, some of them again."""

    def __init__(self, order):
        super().__init__()
        self.embed = nn.Embedding(V, D)
        self.blocks = nn.ModuleDict({name: Block() for name in sorted(set(order))})
        self.norm, self.head = nn.LayerNorm(D), nn.Linear(D, V)
        self.order = order

    def walk(self, ids):
        x = self.embed(ids)
        yield x
        for name in self.order:
            x = self.blocks[name](x)
            yield x

    def forward(self, input_ids):
        *_, last = self.walk(input_ids)
        return self.head(self.norm(last))


@pytest.mark.parametrize(
    "order, note",
    [
        ("aaaa", "layers 1 to 4 are 4 iterations of blocks.a"),
        (
            "ababab",
            "layers 1 to 6 are 3 iterations of blocks.a … blocks.b (2 blocks each)",
        ),
        (
            "pbcbcbcz",
            "layers 2 to 7 are 3 iterations of blocks.b … blocks.c (2 blocks each)",
        ),
        ("aabb", "layers 1 to 2 are 2 iterations of blocks.a"),
    ],
)
@torch.no_grad()
def test_each_run_of_a_looped_block_is_a_layer_and_iterations_are_named(order, note):
    model = build(lambda: Looped(order))
    scope = layered(model)
    assert scope.stack.blocks == tuple(f"blocks.{name}" for name in order)
    assert note in scope.notes and scope.lens is not None
    inputs = scope.encoder.batch(TEXTS[:1])
    seen = states(scope, TEXTS[:1])
    walked = list(model.walk(inputs.named["input_ids"]))
    for layer, state in enumerate(walked):
        close(seen["raw", layer], state)
        logits = scope.lens.logits(seen["raw", layer], inputs)
        close(logits, model.head(model.norm(state)))


def test_albert_is_a_loop_of_each_of_its_groups():
    config = COMMON | {"num_hidden_layers": 12, "embedding_size": 16}
    config = hf.AlbertConfig(**config, num_hidden_groups=3)
    (inspected,) = layerscope.inspect(build(lambda: hf.AlbertModel(config)))
    loops = [note for note in inspected.notes if "iterations" in note]
    assert len(loops) == 3 and inspected.depth == 12
    assert loops[0].startswith("layers 1 to 4 are 4 iterations")


def test_a_model_without_loops_has_no_note_of_one():
    for name in ("gpt2", "bert"):
        assert not any("iterations" in note for note in layered(of_family(name)).notes)


def test_a_loop_that_adds_its_input_again_is_refused_as_one():
    class Again(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed, self.block = nn.Embedding(V, D), Block()
            self.head = nn.Linear(D, V)

        def forward(self, input_ids):
            embedded = x = self.embed(input_ids)
            for _ in range(4):
                x = self.block(x + embedded)
            return self.head(x)

    with refused(r": block is run 4 times, as in a loop, and the model changes"):
        layered(build(Again))


def test_the_cycles_of_a_hierarchical_reasoning_model_are_refused_as_a_loop():
    sizes = COMMON | {"num_layers_per_stack": 2, "head_dim": 8, "num_hidden_layers": 12}
    config = hf.AutoConfig.for_model("hrm_text", **sizes, H_cycles=2, L_cycles=2)
    with refused(r"L_module\.layers\.0 … .* run 8 times, as in a loop"):
        layered(build(lambda: hf.AutoModelForCausalLM.from_config(config)))


# several residual streams


class Hyper(nn.Module):
    """A block that reads a mix of the streams [B, S, T, D], and writes to all of them."""

    def __init__(self):
        super().__init__()
        self.block = Block()
        self.read, self.write = (nn.Parameter(torch.rand(STREAMS)) for _ in range(2))

    def forward(self, streams):
        x = torch.einsum("s,bstd->btd", self.read, streams)
        branch = self.block(x) - x
        return streams + self.write[:, None, None] * branch[:, None]


class Wide(Hyper):
    """The same of streams side by side, [B, T, S * D]."""

    def forward(self, state):
        streams = state.unflatten(-1, (STREAMS, D)).movedim(2, 1)
        return super().forward(streams).movedim(1, 2).flatten(2)


class HyperConnected(nn.Module):
    """A language model whose blocks hand on streams, laid out by `apart` and joined by `join`."""

    def __init__(self, block, apart, join):
        super().__init__()
        self.embed, self.apart, self.join = nn.Embedding(V, D), apart, join
        self.blocks = nn.ModuleList(block() for _ in range(3))
        self.norm, self.head = nn.LayerNorm(D), nn.Linear(D, V)

    def forward(self, input_ids):
        state = self.apart(self.embed(input_ids))
        for block in self.blocks:
            state = block(state)
        return self.head(self.norm(self.join(state)))


class Folded(Block):
    """Streams as samples of a batch, [B * S, T, D]: no block says that they belong together."""


LAYOUTS = {
    "stream first": (
        Hyper, lambda x: x[:, None].repeat(1, STREAMS, 1, 1), lambda s: s.sum(1),
        r"blocks\.0 hands on \[1, 4, 24, 32\], as several residual streams",
    ),
    "folded": (
        Folded, lambda x: x.repeat_interleave(STREAMS, 0), lambda s: s.unflatten(0, (-1, STREAMS)).sum(1),
        r"give \[4, 24, 32\] for one sample of 24 tokens",
    ),
}  # fmt: skip


@pytest.mark.parametrize("layout", LAYOUTS)
def test_several_residual_streams_are_refused_by_name(layout):
    block, apart, join, line = LAYOUTS[layout]
    with refused(line):
        layered(build(lambda: HyperConnected(block, apart, join)))


def test_deepseek_v4_is_refused_for_its_streams():
    sizes = COMMON | {
        "num_key_value_heads": 1, "head_dim": 16, "qk_rope_head_dim": 8, "q_lora_rank": 16, "o_lora_rank": 16,
        "o_groups": 2, "n_routed_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32,
        "index_n_heads": 4, "index_head_dim": 8, "index_topk": 8, "hc_mult": 2, "sliding_window": 8,
    }  # fmt: skip
    model = build(lambda: hf.DeepseekV4ForCausalLM(hf.DeepseekV4Config(**sizes)))
    with refused(r"model\.layers\.0 hands on \[1, 24, 2, 32\], as several"):
        layered(model)


def test_streams_side_by_side_are_layers_whose_width_is_explained():
    model = HyperConnected(
        Wide,
        lambda x: x.repeat(1, 1, STREAMS),
        lambda s: s.unflatten(-1, (STREAMS, D)).sum(2),
    )
    model.config = hf.PretrainedConfig(hidden_size=D, num_hidden_layers=3)
    scope = layered(build(lambda: model))
    assert scope.stack.width == STREAMS * D and scope.depth == 3
    assert any("as of 4 residual streams side by side" in note for note in scope.notes)
