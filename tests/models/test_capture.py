import pytest
import torch
from models import walks
from models.tokenizer import word_tokenizer, words
from models.zoo import MLP, TEXT, L, build, close, drawn, mamba, t5, whisper
from unchanged import state_of

from layerscope.models import LoadOptions, Override, find_layers, load
from layerscope.models.forward import Inputs

pytestmark = pytest.mark.usefixtures("no_gradients")

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


@pytest.mark.parametrize("case", TEXT, ids=lambda c: c.name)
def test_states_equal_those_of_transformers_in_whatever_batch(case):
    model = case.make()
    scope = layered(model)
    alone = states(scope, TEXTS[:1])
    check(alone, walks.TEXT[case.name](model, torch.tensor(IDS[:1])), scope)
    assert scope.causal == scope.is_language_model == case.causal
    assert scope.lens.kind == "tokens"
    assert scope.padding and scope.batching
    left = word_tokenizer("left", pad=case.name not in ("gpt2", "gpt_neox"))
    scope = layered(model, processor=left)
    together = states(scope, [*TEXTS[2:], *TEXTS[:2]])
    for key, single in alone.items():
        close(together[key][2, : len(IDS[0])], single[0])


@pytest.mark.parametrize("part", ["encoder", "decoder"])
def test_t5_each_side(part):
    model = t5()
    scope = layered(model, part=part)
    assert scope.parts == ("encoder", "decoder")
    walk = getattr(walks, f"t5_{part}")(model, torch.tensor(IDS[:1]))
    check(states(scope, TEXTS[:1]), walk, scope)


def test_whisper_encoder_and_its_mask_at_frame_rate():
    from transformers import WhisperFeatureExtractor

    from layerscope.inputs import Waveform

    model = whisper()
    sounds = [Waveform(drawn(n).numpy(), 8000) for n in (4000, 8000)]
    scope = layered(model, "audio", sounds, WhisperFeatureExtractor(), part="encoder")
    inputs = scope.encoder.batch(sounds)
    found = states(scope, sounds)
    check(found, walks.whisper(model, inputs.named["input_features"]), scope)
    assert scope.max_length == 30
    mask = scope.mask(inputs, found["raw", 0])
    assert mask.shape == (2, 1500)
    # half a second and a second at 50 frames a second
    assert mask.sum(1).tolist() == [25, 50]


@pytest.mark.parametrize("residual", [True, False])
@pytest.mark.parametrize("norm", [True, False])
def test_plain_mlp(residual, norm):
    model = build(lambda: MLP(residual, norm))
    rows = torch.randn(5, 8)
    scope = layered(model, "tensor", list(rows))
    check(states(scope, list(rows)), walks.mlp(model, rows), scope)
    assert scope.stack.blocks == tuple(f"blocks.{i}" for i in range(L))
    assert scope.stack.norm == ("out_scale" if norm else None)


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


def test_the_model_is_left_as_it_was_even_after_an_error():
    model = mamba()
    model.train()
    scope = layered(model)
    before = state_of(model)

    def fail(layer, site, x):
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        scope.run(scope.encoder.batch(TEXTS), fail)
    assert state_of(model) == before
