"""Plain modules of every build: each layer equal to a walk by hand, or refused with what was seen."""

import pytest
import torch
import transformers as hf
from models.test_capture import IDS, TEXTS, layered, states
from models.test_families import config
from models.tokenizer import word_tokenizer
from models.zoo import build
from torch import nn

import layerscope
from layerscope.core.errors import LayerscopeError
from layerscope.early_exit import ExitModel

D = 16
ROWS = torch.randn(4, 6, 8, generator=torch.Generator().manual_seed(0))


class Gated(nn.Module):
    """A pre-norm block whose inside is a row of modules of one width."""

    def __init__(self):
        super().__init__()
        self.norm, self.net = nn.LayerNorm(D), nn.Sequential(nn.Linear(D, D), nn.GELU(), nn.Linear(D, D))

    def forward(self, x):
        return x + self.net(self.norm(x))


class Attention(nn.Module):
    """A post-norm block of another class."""

    def __init__(self):
        super().__init__()
        self.mix, self.norm = nn.MultiheadAttention(D, 2, batch_first=True), nn.LayerNorm(D)

    def forward(self, x):
        return self.norm(x + self.mix(x, x, x, need_weights=False)[0])


class Branch(Gated):
    """What the model itself is to add to the stream."""

    def forward(self, x):
        return self.net(self.norm(x))


class Aside(Gated):
    def forward(self, x):
        return {"out": super().forward(x), "aux": None}


class Late(Gated):
    """Gives another state before its own."""

    def forward(self, x):
        return self.norm(x), super().forward(x)


class Model(nn.Module):
    """A stem, blocks that `step(model, place, block, x, states)` applies one by one, a norm and a head."""

    def __init__(self, blocks, step=None, **more):
        super().__init__()
        self.first = blocks[0] if isinstance(blocks, list) else None  # one block tied
        self.stem, self.blocks, self.norm, self.head = nn.Linear(8, D), blocks, nn.LayerNorm(D), nn.Linear(D, 3)
        self.step = step or (lambda m, i, block, x, states: block(x))
        for name, module in more.items():
            setattr(self, name, module)

    def walk(self, x):
        states = [self.stem(x)]
        for i, block in enumerate(self.blocks.values() if isinstance(self.blocks, nn.ModuleDict) else self.blocks):
            states.append(self.step(self, i, block, states[-1].clone(), states))
        return states

    def forward(self, x):
        return self.head(self.norm(self.walk(x)[-1]).mean(1))


def blocks(letters):
    return nn.ModuleList({"m": Gated, "a": Attention, "b": Branch}[letter]() for letter in letters)


def norms(n):
    return nn.ModuleList(nn.LayerNorm(D) for _ in range(n))


def plus(m, i, block, x, states):
    return x + block(x)


def plus_in_place(m, i, block, x, states):
    x += block(x)
    return x


def tied(kind):
    return [kind()] * 5


def drawn(make):
    torch.manual_seed(0)
    model = make().eval()
    for p in model.parameters():
        nn.init.normal_(p, 0.5 if p.ndim == 1 else 0.0, 0.4)
    return model


WALKED = {
    **{f"list of {p}": lambda p=p: Model(blocks(p)) for p in ("mama", "mmmmma", "maaa", "aammm", "ma", "aaa")},
    "sequential of mama": lambda: Model(nn.Sequential(*blocks("mama"))),
    "sequential of mmmmma": lambda: Model(nn.Sequential(*blocks("mmmmma"))),
    "dict of mmma": lambda: Model(nn.ModuleDict(zip("abcd", blocks("mmma"), strict=True))),
    "lists in a list": lambda: Model(
        nn.ModuleList([blocks("ma"), blocks("ma")]), lambda m, i, pair, x, s: [s.append(pair[0](x)), pair[1](s[-1])][1]
    ),
    "one block five times": lambda: Model(tied(Gated)),
    "one branch five times": lambda: Model(tied(Branch), plus),
    "branches": lambda: Model(blocks("bbbb"), plus),
    "branches in place": lambda: Model(blocks("bbbb"), plus_in_place),
    "dicts": lambda: Model(nn.ModuleList([Aside(), Aside(), Aside()]), lambda m, i, block, x, s: block(x)["out"]),
    "norms after the blocks": lambda: Model(
        blocks("mmm"), lambda m, i, block, x, s: m.norms[i](block(x)), norms=norms(3)
    ),
    "a module after the first": lambda: Model(
        blocks("mmmm"), lambda m, i, block, x, s: m.more(block(x)) if i == 0 else block(x), more=nn.Linear(D, D)
    ),
    "activations in place": lambda: Model(
        nn.ModuleList(nn.Linear(D, D) for _ in range(3)), lambda m, i, block, x, s: m.act(block(x)),
        act=nn.ReLU(inplace=True),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", WALKED)
@torch.no_grad()
def test_layers_equal_a_walk_by_hand(name):
    model = drawn(WALKED[name])
    scope = layered(model, "tensor", list(ROWS))
    found = states(scope, list(ROWS))
    walk = model.walk(ROWS)
    assert scope.stack.depth == len(walk) - 1 and scope.stack.norm == "norm"
    for layer, state in enumerate(walk):
        torch.testing.assert_close(found["raw", layer], state, rtol=1e-5, atol=1e-5)
        torch.testing.assert_close(found["normed", layer], model.norm(state), rtol=1e-5, atol=1e-5)
    if name != "dicts":  # a block that hands its input on gives no dict
        logits = scope.lens.sample_logits(found["raw", scope.stack.depth], scope.encoder.batch(list(ROWS)))
        torch.testing.assert_close(logits, model(ROWS), rtol=1e-4, atol=1e-4)


@torch.no_grad()
def test_a_block_that_adds_nothing_yet_is_a_layer():
    model = drawn(lambda: Model(blocks("mmmm")))
    for place in (1, 3):  # as blocks added to a trained model begin
        for p in model.blocks[place].net[2].parameters():
            nn.init.zeros_(p)
    assert layered(model, "tensor", list(ROWS)).stack.depth == 4


REFUSED = {
    "scaled": (lambda: Model(blocks("mmm"), lambda m, i, block, x, s: 0.5 * block(x)), "blocks.1 .* blocks.0 gives"),
    "scaled branch": (lambda: Model(blocks("bbb"), lambda m, i, block, x, s: x + 0.5 * block(x)), "blocks.1 does not"),
    "skips": (lambda: Model(blocks("mmmmm"), lambda m, i, block, x, s: block(x + s[5 - i]) if i > 2 else block(x)),
              "blocks.3 does not read what blocks.2 gives"),
    "norm after the addition": (lambda: Model(blocks("bbb"), lambda m, i, block, x, s: m.norms[i](x + block(x)),
                                              norms=norms(3)), "blocks.1 does not"),
    "norm before a branch": (lambda: Model(nn.ModuleList(nn.Linear(D, D) for _ in range(3)),
                                           lambda m, i, block, x, s: x + block(m.norms[i](x)), norms=norms(3)),
                             "blocks.1 does not"),
    "dense": (lambda: Model(blocks("bbb"), lambda m, i, block, x, s: block(sum(s))), "blocks.2 gives alone"),
    "another state first": (lambda: Model(nn.ModuleList([Late(), Late()]), lambda m, i, block, x, s: block(x)[1]),
                            "blocks.1 does not"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_gives_no_layers_is_refused_with_what_was_seen_also_where_the_user_names_it(name):
    model = drawn(REFUSED[name][0])
    for named in ({}, {"blocks": "blocks"}):
        with pytest.raises(
            LayerscopeError, match=f"{REFUSED[name][1]}.* so move whatever the model does between"
        ) as error:
            layered(model, "tensor", list(ROWS), **named)
        assert "\n" not in str(error.value)


def test_two_stacks_of_one_kind_are_parts():
    class Two(Model):
        def forward(self, x):
            x = y = self.stem(x)
            for block, other in zip(self.blocks, self.others, strict=True):
                x, y = block(x), other(y)
            return self.head((x + y).mean(1))

    model = drawn(lambda: Two(blocks("mmm"), others=blocks("mmm")))
    with pytest.raises(LayerscopeError, match="choose one with `part='blocks'` or `part='others'`$"):
        layered(model, "tensor", list(ROWS))
    others = ("others.0", "others.1", "others.2")
    assert layered(model, "tensor", list(ROWS), part="others").stack.blocks == others
    assert layered(model, "tensor", list(ROWS), blocks="others").stack.blocks == others


def test_stages_are_refused_where_one_of_them_is_no_stack():
    class Wide(nn.Module):
        def __init__(self, d):
            super().__init__()
            self.net = nn.Sequential(nn.Linear(d, d), nn.GELU(), nn.Linear(d, d))

        def forward(self, x):
            return x + self.net(x)

    class Staged(nn.Module):
        def __init__(self, more=(), factor=1.0):
            super().__init__()
            self.stages = nn.ModuleList([
                nn.ModuleList([nn.Linear(8, 12), Wide(12)]),
                nn.ModuleList([nn.Linear(12, 16), Wide(16), Wide(16), *more]),
            ])  # fmt: skip
            self.factor = factor

        def forward(self, x):
            for block in (block for stage in self.stages for block in stage):
                x = self.factor * block(x)
            return x

    found = [layered(drawn(Staged), "tensor", list(ROWS), part=f"stage-{number}").stack for number in (1, 2)]
    assert [stack.blocks for stack in found] == [("stages.0.1",), ("stages.1.1", "stages.1.2")]
    for wrong in (lambda: Staged([nn.Linear(16, 16)]), lambda: Staged(factor=0.5)):
        with pytest.raises(LayerscopeError, match="no stack of blocks was found in this model: stages.1"):
            layered(drawn(wrong), "tensor", list(ROWS))


def test_a_block_alone_is_no_stack():
    model = drawn(lambda: Model(blocks("mmm")))
    with pytest.raises(LayerscopeError, match="blocks.0 is run as well as blocks.1, and not in a row with it: name"):
        layered(model, "tensor", list(ROWS), blocks="blocks.1")


def test_a_model_of_maps_is_refused_for_what_it_gives():
    model = nn.Sequential(*[nn.Sequential(nn.Conv2d(3, 3, 3, padding=1), nn.ReLU()) for _ in range(4)]).eval()
    with pytest.raises(LayerscopeError, match=r"its modules give maps \[B, C, H, W\], and layers are states"):
        layered(model, "tensor", list(torch.randn(2, 3, 8, 8)))


@torch.no_grad()
def test_what_deberta_runs_after_its_first_block_belongs_to_layer_1(tmp_path):

    model = build(lambda: hf.DebertaV2ForSequenceClassification(config("DebertaV2", {"conv_kernel_size": 3})))
    scope = layered(model)
    assert scope.parts == ("model",) and {*scope.stack.ends} - {*scope.stack.blocks} == {"deberta.encoder.conv"}
    ids = torch.tensor([IDS[0]])
    found, own = states(scope, TEXTS[:1]), model.deberta(ids, output_hidden_states=True).hidden_states
    for layer, state in enumerate(own):
        torch.testing.assert_close(found["raw", layer], state)
    layerscope.truncate(model, 1, processor=word_tokenizer(), out=tmp_path / "one")
    one = hf.AutoModelForSequenceClassification.from_pretrained(tmp_path / "one")
    torch.testing.assert_close(one.deberta(ids).last_hidden_state, own[1])
    torch.testing.assert_close(states(layered(one), TEXTS[:1])["raw", 1], own[1])
    with pytest.raises(
        LayerscopeError, match="exits need blocks that give the layers: this model runs deberta.encoder"
    ):
        ExitModel(model, processor=word_tokenizer())
