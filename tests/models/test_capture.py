import pytest
import torch
from models import walks
from models.tokenizer import word_tokenizer, words
from models.zoo import MLP, TEXT, Case, L, build, close, mamba, t5, whisper

from layerscope.models import LoadOptions, Override, find_layers, load
from layerscope.models.forward import Inputs

IDS = [
    [5, 9, 17, 4, 33, 8, 21, 60, 11, 13, 7, 45],
    [70, 3, 3, 12],
    [40],
    [6, 71, 9, 22, 31, 18, 54],
]
TEXTS = [words(row) for row in IDS]


def layered(
    model, modality="text", samples=TEXTS, processor=None, sublayers=False, **override
):
    """Return a model with its layers found, and with `sublayers` what is inside its blocks."""
    processor = processor or (word_tokenizer() if modality == "text" else None)
    return find_layers(
        load(model, LoadOptions(), processor),
        modality,
        samples,
        Override(**override),
        sublayers=sublayers,
    )


def states(model, samples):
    """Return every state of one batch by (site, layer)."""
    found = {}
    model.run(
        model.encoder.batch(samples),
        lambda layer, site, x: found.__setitem__((site, layer), x.clone()),
    )
    return found


def check(found, walk, model):
    expected, norm = walk
    assert model.stack.depth == len(expected) - 1
    assert (norm is None) == (model.stack.norm is None)
    for layer, state in enumerate(expected):
        close(found["raw", layer], state)
        if norm is not None:
            close(found["normed", layer], norm(state))
    return expected[-1] if norm is None else norm(expected[-1])


@pytest.mark.parametrize("case", TEXT, ids=lambda c: c.name)
@torch.no_grad()
def test_states_equal_a_walk_by_hand_and_the_models_own_last_state(case: Case):
    model = case.make()
    scope = layered(model)
    ids = torch.tensor([IDS[0]])
    last = check(states(scope, [TEXTS[0]]), walks.TEXT[case.name](model, ids), scope)
    own = getattr(model, model.base_model_prefix)(input_ids=ids).last_hidden_state
    close(last, own)
    assert scope.causal == case.causal
    assert scope.padding and scope.batching


@pytest.mark.parametrize("case", TEXT, ids=lambda c: c.name)
@torch.no_grad()
def test_batch_mates_order_and_the_tokenizers_padding_side_change_nothing(case: Case):
    model = case.make()
    alone = [states(layered(model), [text]) for text in TEXTS]
    for side in ("left", "right"):
        scope = layered(
            model,
            processor=word_tokenizer(side, pad=case.name not in ("gpt2", "gpt_neox")),
        )
        for order in ([0, 1, 2, 3], [2, 3, 0, 1]):
            together = states(scope, [TEXTS[i] for i in order])
            for row, i in enumerate(order):
                for key, single in alone[i].items():
                    close(together[key][row, : len(IDS[i])], single[0])


@pytest.mark.parametrize("part", ["encoder", "decoder"])
@torch.no_grad()
def test_t5_each_side(part):
    model = t5()
    scope = layered(model, part=part)
    assert scope.parts == ("encoder", "decoder")
    ids = torch.tensor([IDS[0]])
    walk = (
        walks.t5_encoder(model, ids)
        if part == "encoder"
        else walks.t5_decoder(model, ids)
    )
    last = check(states(scope, [TEXTS[0]]), walk, scope)
    start = torch.cat([torch.zeros(1, 1, dtype=torch.long), ids[:, :-1]], 1)
    own = (
        model.model(input_ids=ids, decoder_input_ids=start)
        if hasattr(model, "model")
        else model(input_ids=ids, decoder_input_ids=start, output_hidden_states=True)
    )
    if part == "encoder":
        close(last, own.encoder_last_hidden_state)
    else:
        close(last, own.decoder_hidden_states[-1])


@torch.no_grad()
def test_whisper_encoder_and_its_mask_at_frame_rate():
    from transformers import WhisperFeatureExtractor

    from layerscope.inputs import Waveform

    model = whisper()
    generator = torch.Generator().manual_seed(1)
    sounds = [
        Waveform(torch.randn(n, generator=generator).numpy(), 8000)
        for n in (4000, 8000)
    ]
    scope = layered(model, "audio", sounds, WhisperFeatureExtractor(), part="encoder")
    inputs = scope.encoder.batch(sounds)
    found = states(scope, sounds)
    last = check(found, walks.whisper(model, inputs.named["input_features"]), scope)
    own = model.model.encoder(inputs.named["input_features"]).last_hidden_state
    close(last, own)
    mask = scope.mask(inputs, found["raw", 0])
    assert mask.shape == (2, 1500)
    # half a second and a second at 50 frames a second
    assert mask.sum(1).tolist() == [25, 50]


@pytest.mark.parametrize("residual", [True, False])
@pytest.mark.parametrize("norm", [True, False])
@torch.no_grad()
def test_plain_mlp(residual, norm):
    model = build(lambda: MLP(residual, norm))
    rows = torch.randn(5, 8)
    scope = layered(model, "tensor", list(rows))
    check(states(scope, list(rows)), walks.mlp(model, rows), scope)
    assert scope.stack.blocks == tuple(f"blocks.{i}" for i in range(L))
    assert scope.stack.norm == ("out_scale" if norm else None)


@torch.no_grad()
def test_a_flat_sequential_and_one_without_residuals_are_found_by_structure():
    flat = torch.nn.Sequential(
        *[
            layer
            for _ in range(3)
            for layer in (torch.nn.Linear(8, 8), torch.nn.Tanh())
        ],
        torch.nn.Linear(8, 2),
    )
    scope = layered(flat.eval(), "tensor", list(torch.randn(3, 8)))
    assert scope.stack.blocks == ("0", "1", "2", "3", "4", "5")
    assert scope.stack.norm is None


@torch.no_grad()
def test_until_stops_before_later_blocks_run():
    model = build(lambda: MLP(True, True))
    scope = layered(model, "tensor", list(torch.randn(3, 8)))
    ran = []
    handles = [
        block.register_forward_hook(lambda *_, i=i: ran.append(i))
        for i, block in enumerate(model.blocks)
    ]
    scope.run(Inputs({}, torch.randn(2, 8)), lambda *_: None, until=1)
    for handle in handles:
        handle.remove()
    assert ran == [0]


@torch.no_grad()
def test_the_model_is_left_as_it_was_even_after_an_error():
    model = mamba()
    model.train()
    scope = layered(model)
    before = [
        len(m._forward_hooks) + len(m._forward_pre_hooks) for m in model.modules()
    ]

    def fail(layer, site, x):
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        scope.run(scope.encoder.batch(TEXTS), fail)
    assert [
        len(m._forward_hooks) + len(m._forward_pre_hooks) for m in model.modules()
    ] == before
    assert all(m.training for m in model.modules())
    assert not any("forward" in m.__dict__ for m in model.modules())
