"""Plain modules of every build: each layer equal to a walk by hand, or refused with what was seen."""

import numpy as np
import pytest
import torch
import transformers as hf
from models.test_capture import IDS, TEXTS, layered, states
from models.test_families import config
from models.tokenizer import word_tokenizer
from models.zoo import build, close, refused
from torch import nn

import layerscope
from layerscope.early_exit import ExitModel

D = 16
ROWS = torch.randn(4, 6, 8, generator=torch.Generator().manual_seed(0))


class Gated(nn.Module):
    """A pre-norm block whose inside is a row of modules of one width."""

    def __init__(self):
        super().__init__()
        self.norm, self.net = (
            nn.LayerNorm(D),
            nn.Sequential(nn.Linear(D, D), nn.GELU(), nn.Linear(D, D)),
        )

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
        self.stem, self.blocks, self.norm, self.head = (
            nn.Linear(8, D),
            blocks,
            nn.LayerNorm(D),
            nn.Linear(D, 3),
        )
        self.step = step or (lambda m, i, block, x, states: block(x))
        for name, module in more.items():
            setattr(self, name, module)

    def walk(self, x):
        states = [self.stem(x)]
        for i, block in enumerate(
            self.blocks.values() if isinstance(self.blocks, nn.ModuleDict) else self.blocks
        ):
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


def of_rows(model, rows=ROWS, **override):
    return layered(model, "tensor", list(rows), **override)


def drawn(make):
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
    "dict of mmma": lambda: Model(nn.ModuleDict(zip("abcd", blocks("mmma"), strict=True))),
    "lists in a list": lambda: Model(
        nn.ModuleList([blocks("ma"), blocks("ma")]),
        lambda m, i, pair, x, s: [s.append(pair[0](x)), pair[1](s[-1])][1],
    ),
    "one block five times": lambda: Model(tied(Gated)),
    "one branch five times": lambda: Model(tied(Branch), plus),
    "branches": lambda: Model(blocks("bbbb"), plus),
    "branches in place": lambda: Model(blocks("bbbb"), plus_in_place),
    "dicts": lambda: Model(
        nn.ModuleList([Aside(), Aside(), Aside()]), lambda m, i, block, x, s: block(x)["out"]
    ),
    "norms after the blocks": lambda: Model(
        blocks("mmm"), lambda m, i, block, x, s: m.norms[i](block(x)), norms=norms(3)
    ),
    "a module after the first": lambda: Model(
        blocks("mmmm"),
        lambda m, i, block, x, s: m.more(block(x)) if i == 0 else block(x),
        more=nn.Linear(D, D),
    ),
    "activations in place": lambda: Model(
        nn.ModuleList(nn.Linear(D, D) for _ in range(3)),
        lambda m, i, block, x, s: m.act(block(x)),
        act=nn.ReLU(inplace=True),
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
    logits = scope.lens.sample_logits(found["raw", len(walk) - 1], scope.encoder.batch(list(ROWS)))
    torch.testing.assert_close(logits, model(ROWS), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", WALKED)
@torch.no_grad()
def test_layers_equal_a_walk_by_hand(name):
    check_walk(drawn(WALKED[name]))


@torch.no_grad()
def test_a_block_that_adds_nothing_yet_is_a_layer():
    model = drawn(lambda: Model(blocks("mmmm")))
    for place in (1, 3):  # as blocks added to a trained model begin
        for p in model.blocks[place].net[2].parameters():
            nn.init.zeros_(p)
    assert of_rows(model).stack.depth == 4


REFUSED = {
    "scaled": (
        lambda: Model(blocks("mmm"), lambda m, i, block, x, s: 0.5 * block(x)),
        "blocks.1 .* blocks.0 gives",
    ),
    "scaled branch": (
        lambda: Model(blocks("bbb"), lambda m, i, block, x, s: x + 0.5 * block(x)),
        "blocks.1 does not",
    ),
    "skips": (
        lambda: Model(
            blocks("mmmmm"), lambda m, i, block, x, s: block(x + s[5 - i]) if i > 2 else block(x)
        ),
        "blocks.3 does not read what blocks.2 gives",
    ),
    "norm after the addition": (
        lambda: Model(
            blocks("bbb"), lambda m, i, block, x, s: m.norms[i](x + block(x)), norms=norms(3)
        ),
        "blocks.1 does not",
    ),
    "norm before a branch": (
        lambda: Model(
            nn.ModuleList(nn.Linear(D, D) for _ in range(3)),
            lambda m, i, block, x, s: x + block(m.norms[i](x)),
            norms=norms(3),
        ),
        "blocks.1 does not",
    ),
    "dense": (
        lambda: Model(blocks("bbb"), lambda m, i, block, x, s: block(sum(s))),
        "blocks.2 gives alone",
    ),
    "another state first": (
        lambda: Model(nn.ModuleList([Late(), Late()]), lambda m, i, block, x, s: block(x)[1]),
        "blocks.1 does not",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_gives_no_layers_is_refused_with_what_was_seen_also_where_the_user_names_it(name):
    model = drawn(REFUSED[name][0])
    for named in ({}, {"blocks": "blocks"}):
        with refused(
            match=f"{REFUSED[name][1]}.* so move whatever the model does between"
        ) as error:
            of_rows(model, **named)
        assert "\n" not in str(error.value)


def test_two_stacks_of_one_kind_are_parts():
    class Two(Model):
        def forward(self, x):
            x = y = self.stem(x)
            for block, other in zip(self.blocks, self.others, strict=True):
                x, y = block(x), other(y)
            return self.head((x + y).mean(1))

    model = drawn(lambda: Two(blocks("mmm"), others=blocks("mmm")))
    with refused(match="choose one with `part='blocks'` or `part='others'`$"):
        of_rows(model)
    others = ("others.0", "others.1", "others.2")
    assert of_rows(model, part="others").stack.blocks == others
    assert of_rows(model, blocks="others").stack.blocks == others


class Lists(Model):
    """Two lists of blocks: one after the other, or in turns."""

    def __init__(self, turns=False):
        super().__init__(blocks("mmmm"), others=blocks("aaaa"))
        self.turns = turns

    def walk(self, x):
        pairs = zip(self.blocks, self.others, strict=True)
        order = (
            [block for pair in pairs for block in pair]
            if self.turns
            else [*self.blocks, *self.others]
        )
        states = [self.stem(x)]
        for block in order:
            states.append(block(states[-1]))
        return states


@pytest.mark.parametrize("turns", [False, True])
@torch.no_grad()
def test_two_lists_of_blocks_of_one_width_are_one_stack_in_the_order_in_which_they_run(turns):
    model = drawn(lambda: Lists(turns))
    (inspected,) = layerscope.inspect(model, data=ROWS)
    assert inspected.depth == 8 and not inspected.notes and inspected.norm == "norm"
    rows = "blocks.0 … others.3" if turns else "blocks.0 … blocks.3, others.0 … others.3"
    assert dict(inspected.document().parts[0].entries)["blocks"] == f"{rows}, found by structure"
    check_walk(model)


@pytest.mark.parametrize(
    ("turns", "named", "note"),
    [
        (
            True,
            "others",
            "layer 0 is the output of blocks.0, a block of another list (blocks.0 … blocks.3)",
        ),
        (
            True,
            "blocks",
            "layers are the outputs of others.0 … others.3, which run after the blocks of this list",
        ),
        (
            False,
            "others",
            "layer 0 is the output of blocks.3, a block of another list (blocks.0 … blocks.3)",
        ),
    ],
)
def test_a_list_alone_says_what_of_another_list_it_reads(turns, named, note):
    (inspected,) = layerscope.inspect(drawn(lambda: Lists(turns)), data=ROWS, blocks=named)
    assert (inspected.depth, inspected.notes) == (4, (note,))


def test_sequentials_in_a_sequential_are_one_stack_and_pairs_of_them_are_blocks():
    rows = [nn.Sequential(*blocks("mmm")), nn.Sequential(*blocks("aaaa"))]
    stack = layered(
        drawn(lambda: nn.Sequential(nn.Linear(8, D), *rows, nn.LayerNorm(D))), "tensor", list(ROWS)
    ).stack
    assert (stack.blocks[0], stack.blocks[-1], stack.depth, stack.norm) == ("1.0", "2.3", 7, "3")
    pairs = [nn.Sequential(*blocks("ma")) for _ in range(3)]
    stack = layered(
        drawn(lambda: nn.Sequential(nn.Linear(8, D), *pairs)), "tensor", list(ROWS)
    ).stack
    assert stack.blocks == ("1", "2", "3")


def test_a_list_of_another_width_is_a_note_that_says_how_to_measure_it():
    class Narrow(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = nn.Sequential(nn.Linear(8, 8), nn.GELU())

        def forward(self, x):
            return x + self.net(x)

    class Widening(Model):
        def forward(self, x):
            for block in self.narrow:
                x = block(x)
            return super().forward(x)

    model = drawn(lambda: Widening(blocks("aaaa"), narrow=nn.ModuleList([Narrow(), Narrow()])))
    (inspected,) = layerscope.inspect(model, data=ROWS)
    assert inspected.notes == (
        "narrow.0 … narrow.1 run before layer 0 and are not measured: name them with `blocks='narrow'`",
    )
    (inspected,) = layerscope.inspect(model, data=ROWS, blocks="narrow")
    assert (inspected.depth, inspected.width) == (2, 8)


@pytest.mark.parametrize("of_each", [True, False])
@torch.no_grad()
def test_what_a_block_gives_beside_its_state_loses_no_lens(of_each):
    class Gate(nn.Module):
        def __init__(self):
            super().__init__()
            self.mix, self.gate = Gated(), nn.Linear(D, 3)

        def forward(self, x):
            return self.mix(x), (self.gate(x), None)

    def step(m, i, block, x, states):
        x, (gates, _) = block(x)
        m.gates = [*m.gates[:i], gates.logsumexp(-1).mean() if of_each else gates.flatten(0, 1)]
        return x

    class Routed(Model):
        gates = ()

        def forward(self, x):
            logits = super().forward(x)
            self.loss = sum(self.gates) if of_each else torch.cat(self.gates).mean()
            return logits

    model = drawn(lambda: Routed(nn.ModuleList([Gate(), Gate(), Gate()]), step))
    check_walk(model)


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
            self.stages = nn.ModuleList(
                [
                    nn.ModuleList([nn.Linear(8, 12), Wide(12)]),
                    nn.ModuleList([nn.Linear(12, 16), Wide(16), Wide(16), *more]),
                ]
            )
            self.factor = factor

        def forward(self, x):
            for block in (block for stage in self.stages for block in stage):
                x = self.factor * block(x)
            return x

    found = [of_rows(drawn(Staged), part=f"stage-{number}").stack for number in (1, 2)]
    assert [stack.blocks for stack in found] == [("stages.0.1",), ("stages.1.1", "stages.1.2")]
    for wrong in (lambda: Staged([nn.Linear(16, 16)]), lambda: Staged(factor=0.5)):
        with refused(match="no stack of blocks was found in this model: stages.1"):
            of_rows(drawn(wrong))


def test_the_first_and_the_last_linear_of_an_mlp_are_no_blocks_left_out():
    rows = [
        nn.Linear(8, D),
        nn.ReLU(),
        nn.Linear(D, D),
        nn.ReLU(),
        nn.Linear(D, D),
        nn.ReLU(),
        nn.Linear(D, 3),
    ]
    (inspected,) = layerscope.inspect(drawn(lambda: nn.Sequential(*rows)), data=torch.randn(4, 8))
    assert not inspected.notes


def test_one_block_in_a_list_is_measured_as_the_line_says():
    model = drawn(lambda: Model(blocks("a")))
    with refused(match="name the module that holds them with `blocks`, such as blocks$"):
        layerscope.inspect(model, data=ROWS)
    assert layerscope.inspect(model, data=ROWS, blocks="blocks")[0].depth == 1


def test_a_block_alone_is_no_stack():
    model = drawn(lambda: Model(blocks("mmm")))
    with refused(match="blocks.0 is run as well as blocks.1, and not in a row with it: name"):
        of_rows(model, blocks="blocks.1")


def test_a_model_of_maps_is_refused_for_what_it_gives():
    model = nn.Sequential(
        *[nn.Sequential(nn.Conv2d(3, 3, 3, padding=1), nn.ReLU()) for _ in range(4)]
    ).eval()
    with refused(match=r"its modules give maps \[B, C, H, W\], and layers are states"):
        layered(model, "tensor", list(torch.randn(2, 3, 8, 8)))


def test_maps_are_measured_as_the_line_on_them_says(tmp_path):
    small = hf.ConvNextConfig(hidden_sizes=[8, 8, 8, 8], depths=[1, 1, 1, 1], image_size=32)
    model = build(lambda: hf.ConvNextModel(small))
    for named in ({}, {"blocks": "encoder.stages"}):
        with refused(
            match=r"pool the maps of one width to vectors yourself, .* with `profile\(states=...\)`$",
        ):
            layerscope.inspect(model, **named)
    maps = model(torch.randn(24, 3, 32, 32), output_hidden_states=True).hidden_states
    pooled = {f"layer_{i}": one.mean((2, 3)).detach().numpy() for i, one in enumerate(maps)}
    np.savez(tmp_path / "states.npz", **pooled)
    run = layerscope.profile(states=tmp_path / "states.npz", out=tmp_path / "run", progress=False)
    assert (run.depth, int(run.table()["n"].max())) == (4, 24)


def test_a_batch_on_axis_1_is_refused_and_both_mends_are_the_same_model():
    def made(first):
        return drawn(
            lambda: nn.TransformerEncoder(
                nn.TransformerEncoderLayer(D, 2, 32, batch_first=first), 3
            )
        )

    class Turned(nn.Module):
        def __init__(self, model):
            super().__init__()
            self.model = model

        def forward(self, x):
            return self.model(x.transpose(0, 1)).transpose(0, 1)

    rows = torch.randn(4, 5, D, generator=torch.Generator().manual_seed(1))
    line = r"reads its batch on axis 1, \[T, B, D\], .* `batch_first=True`, or give"
    with refused(match=line):
        layerscope.inspect(made(False), data=rows)
    first, turned = (
        states(layered(one, "tensor", list(rows)), list(rows))
        for one in (made(True), Turned(made(False)))
    )
    assert first.keys() == turned.keys() and ("raw", 3) in first
    for key, state in first.items():
        torch.testing.assert_close(turned[key], state, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("ways", [1, 2])
def test_layers_of_one_lstm_are_refused_and_measured_as_the_line_says(ways):
    class Speaker(nn.Module):
        def __init__(self, cells):
            super().__init__()
            self.embed, self.cells, self.head = nn.Embedding(50, D), cells, nn.Linear(D, 50)

        def forward(self, x):
            x = self.embed(x)
            for cell in self.cells if isinstance(self.cells, nn.ModuleList) else [self.cells]:
                x, _ = cell(x)
            return self.head(x)

    def cell(depth):
        return nn.LSTM(D, D // ways, depth, batch_first=True, bidirectional=ways == 2)

    ids = torch.arange(48).view(6, 8)
    with refused(
        match="cells is one LSTM of 3 layers, .* build it of LSTMs of one layer each",
    ):
        layerscope.inspect(Speaker(cell(3)), data=ids)
    assert layerscope.inspect(Speaker(cell(3)), data=ids, blocks="cells")[0].depth == 1
    assert (
        layerscope.inspect(Speaker(nn.ModuleList(cell(1) for _ in range(3))), data=ids)[0].depth
        == 3
    )


@torch.no_grad()
def test_what_deberta_runs_after_its_first_block_belongs_to_layer_1(tmp_path):

    model = build(
        lambda: hf.DebertaV2ForSequenceClassification(config("DebertaV2", {"conv_kernel_size": 3}))
    )
    scope = layered(model)
    assert scope.parts == ("model",) and {*scope.stack.ends} - {*scope.stack.blocks} == {
        "deberta.encoder.conv"
    }
    ids = torch.tensor([IDS[0]])
    found, own = (
        states(scope, TEXTS[:1]),
        model.deberta(ids, output_hidden_states=True).hidden_states,
    )
    for layer, state in enumerate(own):
        torch.testing.assert_close(found["raw", layer], state)
    layerscope.truncate(model, 1, processor=word_tokenizer(), out=tmp_path / "one")
    one = hf.AutoModelForSequenceClassification.from_pretrained(tmp_path / "one")
    torch.testing.assert_close(one.deberta(ids).last_hidden_state, own[1])
    torch.testing.assert_close(states(layered(one), TEXTS[:1])["raw", 1], own[1])
    with refused(
        match="exits need blocks that give the layers: this model runs deberta.encoder",
    ):
        ExitModel(model, processor=word_tokenizer())
