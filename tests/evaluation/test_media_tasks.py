"""Tasks of mteb on images and sounds: every layer from one forward a sample, scored as mteb scores one."""

import shlex
from io import BytesIO

import mteb
import numpy as np
import pytest
import soundfile
import tiny
import torch
import transformers as hf
from datasets import Audio, Dataset, DatasetDict
from media import (
    MEDIA,
    SMALL,
    N,
    Plain,
    classification,
    clustering,
    mixed,
    of_texts,
    pairs,
    retrieval,
    tones,
    video,
)
from tiny import one_thread
from typed import cli

import layerscope
from layerscope.core.errors import LayerscopeError
from layerscope.selection.document import ship

__all__ = ["cli", "one_thread"]


@pytest.fixture(scope="module")
def ears(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("models") / "tiny-wav2vec2"
    small = {
        **SMALL,
        "conv_dim": (16, 16),
        "conv_stride": (10, 8),
        "conv_kernel": (10, 8),
        "num_conv_pos_embeddings": 8,
    }
    config = hf.Wav2Vec2Config(**small, num_feat_extract_layers=2, num_conv_pos_embedding_groups=2)
    tiny.seeded(hf.Wav2Vec2Model, config).save_pretrained(folder)
    hf.Wav2Vec2FeatureExtractor(return_attention_mask=True).save_pretrained(folder)
    return str(folder)


@pytest.fixture(scope="module")
def clip(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("models") / "tiny-clip"
    tokens = tiny.tokenizer(special=True)
    text = {
        **SMALL,
        "vocab_size": len(tokens),
        "eos_token_id": tokens.sep_token_id,
        "max_position_embeddings": 64,
    }
    vision = {**SMALL, "num_hidden_layers": 4, "image_size": 16, "patch_size": 4}
    model = tiny.seeded(
        hf.CLIPModel, hf.CLIPConfig(text_config=text, vision_config=vision, projection_dim=24)
    )
    model.save_pretrained(folder)
    images = hf.CLIPImageProcessor(size={"height": 16, "width": 16}, do_center_crop=False)
    hf.CLIPProcessor(images, tokens).save_pretrained(folder)
    return str(folder)


def layers_of(modality: str, model: str, layer: int) -> Plain:
    """Mean-pooled hidden states of one layer."""
    module = hf.AutoModel.from_pretrained(model).eval()
    make = hf.AutoImageProcessor if modality == "image" else hf.AutoFeatureExtractor
    processor = make.from_pretrained(model)

    def vector(modality: str, cell: object) -> torch.Tensor:
        if modality == "image":
            given = processor(cell, return_tensors="pt")
        else:
            samples, rate = soundfile.read(BytesIO(cell["bytes"]), dtype="float32")
            from scipy.signal import resample_poly

            samples = samples if rate == 16000 else resample_poly(samples, 2, 1)
            given = processor(samples, sampling_rate=16000, return_tensors="pt")
        return module(**given, output_hidden_states=True).hidden_states[layer][0].mean(0)

    return Plain(vector, [modality])


MADE = [classification, clustering, pairs, retrieval]


def judged(found: object, own: object, encoder: Plain) -> float:
    """The score of mteb for a plain encoder; sounds undecoded, as torchcodec may be missing."""
    return mteb.evaluate(encoder, own, cache=None, co2_tracker=False, show_progress_bar=False)[
        0
    ].get_score()


@pytest.mark.parametrize("modality", ["image", "audio"])
def test_every_layer_as_mteb_scores_it_alone(modality, vit, ears, counted, monkeypatch):
    if modality == "audio":  # the reference reads bytes
        monkeypatch.setitem(MEDIA, "audio", (tones, lambda decode=False: Audio(decode=False)))
    model = vit if modality == "image" else ears
    found = layerscope.evaluate(
        model,
        [make(modality) for make in MADE],
        sites="raw",
        pooling="mean",
        progress=False,
    )
    assert found.failed == {}
    assert len(counted) == len(MADE) * N, "once over each sample of a task, for all layers"
    scores, baseline = found.table(), found.baseline().iloc[0]
    assert scores.shape == (4, 4)
    for make in MADE:
        name = make(modality).metadata.name
        for layer in (0, 2, 3):
            wanted = judged(found, make(modality), layers_of(modality, model, layer))
            assert scores.loc[layer, name] == pytest.approx(wanted, abs=1e-6), (name, layer)
        assert np.isfinite(baseline[name])


def test_a_tower_alone_is_judged_where_its_layers_are_read_and_as_shipped(clip, tmp_path):
    found = layerscope.evaluate(
        clip, classification("image"), tmp_path, sites="normed,projected", progress=False
    )
    by_site = found.table(site="projected"), found.table(site="normed")
    assert [len(table) for table in by_site] == [5, 5]
    assert found.baseline().iloc[0, 0] == by_site[0].iloc[-1, 0]
    again = layerscope.open_evaluation(tmp_path)
    assert again.table(site="projected").equals(by_site[0])


@pytest.mark.parametrize(
    ("model", "tasks", "line"),
    [
        (
            "vit",
            [video],
            "task VideoClassification reads video: evaluate takes tasks on texts, images or sounds alone",
        ),
        ("clip", [mixed], "task Any2AnyRetrieval reads image, text: evaluate takes tasks on"),
        ("vit", [of_texts], r"tiny-vit reads no texts \(image\)"),
        (
            "vit",
            [lambda: classification("audio")],
            r"tiny-vit reads no sounds \(image\): give a model that does",
        ),
        (
            "clip",
            [of_texts, lambda: clustering("image")],
            "whose layers are not the same: evaluate them separately",
        ),
    ],
)
def test_refused_before_the_model_runs(model, tasks, line, request, counted):
    with pytest.raises(LayerscopeError, match=line):
        layerscope.evaluate(
            request.getfixturevalue(model), [make() for make in tasks], progress=False
        )
    assert counted == []


def test_a_sound_that_cannot_be_read_fails_its_task_alone(ears):
    broken = clustering("audio")
    files, labels = tones()
    files[3]["bytes"] = b"no sound"
    broken.dataset = DatasetDict(test=Dataset.from_dict({"audio": files, "labels": labels}))
    found = layerscope.evaluate(ears, [broken, classification("audio")], progress=False)
    assert list(found.failed) == ["AudioClustering"] and list(found.table()) == [
        "AudioClassification"
    ]


@pytest.mark.parametrize("cost", [True, False])
@pytest.mark.parametrize("name", ["vit", "ears", "clip"])
def test_the_next_command_after_an_evaluation_works(
    name, cost, request, cli, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    model = request.getfixturevalue(name)
    task = classification("audio" if name == "ears" else "image")
    found = layerscope.evaluate(model, [task], layers=[1], out="scores", progress=False)
    chosen = layerscope.select(found, max_loss=1e5, cost=cost, out="choice", progress=False)
    assert (chosen.as_shipped, chosen.layer) == (False, 1), "there is something to truncate"
    assert (chosen.chosen.milliseconds is None) == (not cost)
    _, command, *options = shlex.split(ship(chosen)[0])
    assert cli(command, *options).status == 0
    assert cli(command, "choice", "--out", "again").status == 0
    assert cli(command, "scores", "--layer", "1", "--out", "third").status == 0
    for folder in (options[-1], "again", "third"):
        config = hf.AutoConfig.from_pretrained(folder)
        assert getattr(config, "vision_config", config).num_hidden_layers == 1
        assert name != "clip" or config.text_config.num_hidden_layers == 3, (
            "the tower that was judged is cut"
        )
