"""Plain modules of every build: each layer equal to a walk by hand, or refused with what was seen."""

import pytest
import torch
import transformers as hf
from models.test_capture import layered, states
from models.zoo import build, close, drawn
from torch import nn
from typed import refused

import layerscope

D = 16
ROWS = drawn(4, 6, 8)


class Gated(nn.Module):
    """A pre-norm block whose inside is a row of modules of one width."""

    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(D)
        self.net = nn.Sequential(nn.Linear(D, D), nn.GELU(), nn.Linear(D, D))

    def forward(self, x):
        return x + self.net(self.norm(x))


class Attention(nn.Module):
    """A post-norm block of another class."""

    def __init__(self):
        super().__init__()
        self.mix = nn.MultiheadAttention(D, 2, batch_first=True)
        self.norm = nn.LayerNorm(D)

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
        self.stem, self.norm, self.head = (
            nn.Linear(8, D),
            nn.LayerNorm(D),
            nn.Linear(D, 3),
        )
        self.blocks = blocks
        self.step = step or (lambda m, i, block, x, states: block(x))
        for name, module in more.items():
            setattr(self, name, module)

    def walk(self, x):
        states = [self.stem(x)]
        dictionary = isinstance(self.blocks, nn.ModuleDict)
        blocks = self.blocks.values() if dictionary else self.blocks
        for i, block in enumerate(blocks):
            states.append(self.step(self, i, block, states[-1].clone(), states))
        return states

    def forward(self, x):
        return self.head(self.norm(self.walk(x)[-1]).mean(1))


def blocks(letters):
    return nn.ModuleList(
        {"m": Gated, "a": Attention, "b": Branch}[letter]() for letter in letters
    )


def norms(n):
    return nn.ModuleList(nn.LayerNorm(D) for _ in range(n))


def tied(kind):
    return [kind()] * 5


def of_rows(model, rows=ROWS, **override):
    return layered(model, "tensor", list(rows), **override)


def randomised(make):
    torch.manual_seed(0)
    model = make().eval()
    for p in model.parameters():
        nn.init.normal_(p, 0.5 if p.ndim == 1 else 0.0, 0.4)
    return model


WALKED = {
    **{
        f"list of {p}": lambda p=p: Model(blocks(p))
        for p in ("mama", "mmmmma", "maaa", "aammm", "ma", "aaa")
    },
    "sequential of mama": lambda: Model(nn.Sequential(*blocks("mama"))),
    "sequential of mmmmma": lambda: Model(nn.Sequential(*blocks("mmmmma"))),
    "dict of mmma": lambda: Model(
        nn.ModuleDict(zip("abcd", blocks("mmma"), strict=True))
    ),
    "lists in a list": lambda: Model(
        nn.ModuleList([blocks("ma"), blocks("ma")]),
        lambda m, i, pair, x, s: [s.append(pair[0](x)), pair[1](s[-1])][1],
    ),
    "one block five times": lambda: Model(tied(Gated)),
    "dicts": lambda: Model(
        nn.ModuleList([Aside(), Aside(), Aside()]),
        lambda m, i, block, x, s: block(x)["out"],
    ),
}


def check_walk(model):
    """Every layer is that of a walk by hand, and the lens of the last one gives the model's own logits."""
    scope, walk = of_rows(model), model.walk(ROWS)
    found = states(scope, ROWS)
    assert scope.stack.depth == len(walk) - 1 and scope.stack.norm == "norm"
    for layer, state in enumerate(walk):
        close(found["raw", layer], state)
        close(found["normed", layer], model.norm(state))
    logits = scope.lens.sample_logits(
        found["raw", len(walk) - 1], scope.encoder.batch(list(ROWS))
    )
    torch.testing.assert_close(logits, model(ROWS), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", WALKED)
@torch.no_grad()
def test_layers_equal_a_walk_by_hand(name):
    check_walk(randomised(WALKED[name]))


@torch.no_grad()
def test_a_block_that_adds_nothing_yet_is_a_layer_and_a_norm_behind_it_is_none():
    model = randomised(lambda: Model(blocks("mmmm").append(nn.LayerNorm(D))))
    for place in (1, 3):  # as blocks added to a trained model begin
        for p in model.blocks[place].net[2].parameters():
            nn.init.zeros_(p)
    assert of_rows(model).stack.depth == 4


REFUSED = {
    "scaled": (
        lambda: Model(blocks("mmm"), lambda m, i, block, x, s: 0.5 * block(x)),
        "blocks.1 .* blocks.0 gives",
    ),
    "scaled in place": (
        lambda: Model(blocks("mmm"), lambda m, i, block, x, s: block(x).mul_(2)),
        "blocks.1 .* blocks.0 gives .they differ by 50%",
    ),
    "branches": (
        lambda: Model(blocks("bbb"), lambda m, i, block, x, s: x + block(x)),
        "blocks.1 does not",
    ),
    "skips": (
        lambda: Model(
            blocks("mmmmm"),
            lambda m, i, block, x, s: block(x + s[5 - i]) if i > 2 else block(x),
        ),
        "blocks.3 does not read what blocks.2 gives",
    ),
    "norm after the addition": (
        lambda: Model(
            blocks("bbb"),
            lambda m, i, block, x, s: m.norms[i](x + block(x)),
            norms=norms(3),
        ),
        "blocks.1 does not",
    ),
    "another state first": (
        lambda: Model(
            nn.ModuleList([Late(), Late()]), lambda m, i, block, x, s: block(x)[1]
        ),
        "blocks.1 does not",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_gives_no_layers_is_refused_with_what_was_seen_also_where_the_user_names_it(
    name,
):
    model = randomised(REFUSED[name][0])
    for named in ({}, {"blocks": "blocks"}):
        with refused(f"{REFUSED[name][1]}.* so move whatever the model does between"):
            of_rows(model, **named)


def test_one_block_in_a_list_is_measured_as_the_line_says():
    model = randomised(lambda: Model(blocks("a")))
    with refused("name the module that holds them with `blocks`"):
        layerscope.inspect(model, data=ROWS)
    assert layerscope.inspect(model, data=ROWS, blocks="blocks")[0].depth == 1


def test_a_block_alone_is_no_stack():
    model = randomised(lambda: Model(blocks("mmm")))
    with refused("blocks.0 is run as well as blocks.1, and not in a row with it: name"):
        of_rows(model, blocks="blocks.1")


def test_a_model_of_maps_is_refused_with_what_to_do():
    small = hf.ConvNextConfig(
        hidden_sizes=[8, 8, 8, 8], depths=[1, 1, 1, 1], image_size=32
    )
    model = build(lambda: hf.ConvNextModel(small))
    for named in ({}, {"blocks": "encoder.stages"}):
        with refused(r"pooled yourself to `profile\(states=...\)`$"):
            layerscope.inspect(model, **named)


def test_a_batch_on_axis_1_is_refused():
    def encoder(batch_first):
        block = nn.TransformerEncoderLayer(D, 2, 32, batch_first=batch_first)
        return randomised(
            lambda: nn.TransformerEncoder(block, 3, enable_nested_tensor=False)
        )

    rows = drawn(4, 2, D, seed=1)
    with refused(r"reads its batch on axis 1, \[T, B, D\], .* `batch_first=True`$"):
        of_rows(encoder(False), rows)
    assert of_rows(encoder(True), rows).batching
