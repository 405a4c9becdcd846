"""Images, sounds and two towers: states against a walk by hand, and the model's own vectors and logits."""

from functools import partial

import numpy as np
import pytest
import tiny
import torch
import transformers as hf
from models import walks
from models.test_capture import TEXTS, check as check_states, layered, states
from models.tokenizer import word_tokenizer
from models.zoo import IMAGE, D, build, clip, close, drawn, of_class, siglip, vit
from PIL import Image
from typed import refused

import layerscope
from layerscope.inputs import Waveform
from layerscope.models.capture import evaluating

pytestmark = pytest.mark.usefixtures("no_gradients")

IMAGES = [Image.effect_noise((20, 20), 60).convert("RGB") for _ in range(3)]
MODELS = {
    "vit": vit,
    "dinov2": partial(of_class, "Dinov2Model", **IMAGE, layerscale_value=0.3),
    "beit": partial(
        of_class, "BeitForImageClassification", **IMAGE, layer_scale_init_value=0.3
    ),
}
NORMS = {"vit": "vit.layernorm", "dinov2": "layernorm", "beit": ""}


def check(scope, samples, walk):
    """States of a batch, of a batch in another order and of each sample alone are those of the walk."""
    together, turned = states(scope, samples), states(scope, samples[::-1])
    alone = [states(scope, [sample]) for sample in samples]
    check_states(together, walk, scope)
    check_states({key: state.flip(0) for key, state in turned.items()}, walk, scope)
    joined = {key: torch.cat([one[key] for one in alone]) for key in together}
    check_states(joined, walk, scope)
    return together


@pytest.mark.parametrize("name", MODELS)
def test_image_models(name):
    model = build(MODELS[name])
    scope = layered(model, "image", IMAGES)
    inputs = scope.encoder.batch(IMAGES)
    with evaluating(model):
        found = check(scope, IMAGES, walks.recorded(model, NORMS[name], **inputs.named))
        assert found["raw", 0].shape[1] >= 16  # every patch: none is masked
        own = model(**inputs.named)
    if scope.lens is None:
        close(found[scope.final, 3], own.last_hidden_state)
    else:
        close(scope.lens.sample_logits(found["raw", 3], inputs), own.logits)
    assert scope.pooling == (("first",) if name == "vit" else ("mean",))


def served(read, scope, samples):
    """Return the vectors that a model gives, each sample alone."""
    batches = (scope.encoder.batch([sample]).named for sample in samples)
    return torch.cat([read(**named).pooler_output for named in batches])


@pytest.mark.parametrize("make", [clip, siglip])
def test_each_tower_and_its_projection_at_every_layer(make):
    for modality, samples, part in (
        ("text", TEXTS, "text"),
        ("image", IMAGES, "vision"),
    ):
        model = make()
        scope = layered(model, modality, samples)
        assert (scope.stack.part, scope.stack.depth) == (part, 3)
        inputs = scope.encoder.batch(samples)
        found, tower = states(scope, samples), getattr(model, f"{part}_model")
        vectors = partial(served, getattr(model, f"get_{modality}_features"), scope)
        own = vectors(samples)
        close(scope.projection.vectors(found["raw", 3], inputs), own)
        assert scope.projection.width == own.shape[-1]
        # at an earlier layer: the tower of that depth
        early = scope.projection.vectors(found["raw", 1], inputs)
        tower.encoder.layers = tower.encoder.layers[:1]
        close(early, vectors(samples))


def test_auto_is_the_token_that_a_tower_pools():
    texts = [text + " w98" for text in TEXTS]
    assert layered(
        clip(), samples=texts, processor=word_tokenizer(size=99)
    ).pooling == ("last",)
    assert layered(siglip()).pooling == ("last",)
    # by attention over all
    assert layered(siglip(), "image", IMAGES).pooling == ("mean",)


SPEECH = {
    "vocab_size": 32, "hidden_size": D, "num_hidden_layers": 3, "num_attention_heads": 4, "intermediate_size": 64,
    "conv_dim": (16, 16, 16), "conv_kernel": (10, 3, 3), "conv_stride": (5, 4, 4), "num_feat_extract_layers": 3,
    "num_conv_pos_embeddings": 16, "num_conv_pos_embedding_groups": 2,
}  # fmt: skip


@pytest.mark.parametrize("name", ["Wav2Vec2", "Hubert"])
def test_speech_models_whose_states_padding_changes(name):
    config = getattr(hf, f"{name}Config")(**SPEECH)
    model = build(lambda: getattr(hf, f"{name}Model")(config))
    sounds = [Waveform(drawn(n).numpy(), 16000) for n in (3000, 8000)]
    scope = layered(model, "audio", sounds, hf.Wav2Vec2FeatureExtractor())
    assert scope.batching and not scope.padding
    assert "batches hold only samples of equal length" in " ".join(scope.notes)
    for sound in sounds:
        values = scope.encoder.batch([sound]).named["input_values"]
        pair = values.expand(2, -1)
        check(scope, [sound, sound], walks.recorded(model, "", input_values=pair))
    inputs = scope.encoder.batch(sounds)
    frames = states(scope, sounds)["raw", 0]
    real = model._get_feat_extract_output_lengths(torch.tensor([3000, 8000]))
    assert scope.mask(inputs, frames).sum(1).tolist() == real.tolist()


def test_stages_of_a_hierarchical_model_are_named_with_blocks():
    config = hf.SwinConfig(
        image_size=32,
        patch_size=4,
        embed_dim=8,
        depths=[2, 3],
        num_heads=[2, 4],
        window_size=4,
    )
    model = build(lambda: hf.SwinForImageClassification(config))
    with refused(
        "layers.0 is run as well as .*: name the module that holds the blocks"
    ):
        layered(model, "image", IMAGES)
    scope = layered(model, "image", IMAGES, blocks="swin.encoder.layers.1.blocks")
    found, inputs = states(scope, IMAGES), scope.encoder.batch(IMAGES)
    assert (scope.stack.depth, scope.stack.norm) == (3, "swin.layernorm")
    close(found["normed", 3], model.swin(**inputs.named).last_hidden_state)
    close(
        scope.lens.sample_logits(found["raw", 3], inputs), model(**inputs.named).logits
    )


class Timm(torch.nn.Module):
    """A vision transformer as timm shapes them: `forward(x)`, blocks, norm and head, and no config."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.patch, self.norm = torch.nn.Conv2d(3, D, 8, 8), torch.nn.LayerNorm(D)
        self.blocks = torch.nn.Sequential(*(tiny.Block(D) for _ in range(3)))
        self.head = torch.nn.Linear(D, 5)

    def forward(self, x):
        return self.head(
            self.norm(self.blocks(self.patch(x).flatten(2).transpose(1, 2))).mean(1)
        )


def transform(image):
    pixels = np.asarray(image.resize((16, 16)), dtype="float32")
    return torch.from_numpy(pixels).permute(2, 0, 1) / 255


def test_a_function_of_an_image_is_a_processor(tmp_path):
    model = Timm().eval()
    out = tmp_path / "run"
    run = layerscope.profile(model, IMAGES * 4, processor=transform, out=out, views=1)
    pixels = torch.stack([transform(image) for image in IMAGES])
    tokens = model.blocks[:2](model.patch(pixels).flatten(2).transpose(1, 2))
    facts = run.depth, run.info["model"]["norm"], run.info["model"]["lens"]
    assert facts == (3, "norm", "pooled")
    close(torch.from_numpy(run.pooled(2, "raw", "mean")[:3]), tokens.mean(1))
