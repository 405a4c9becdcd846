"""Tasks of mteb on images, sounds and two towers: every layer from one forward a sample, scored as mteb scores one."""

from io import BytesIO

import mteb
import numpy as np
import pytest
import soundfile
import tiny
import torch
import transformers as hf
from datasets import Audio, Dataset, DatasetDict, Image
from mteb import abstasks
from mteb.abstasks.image import AbsTaskImageTextPairClassification
from mteb.abstasks.task_metadata import TaskMetadata
from mteb.models import ModelMeta
from mteb.similarity_functions import cos_sim
from sklearn.datasets import load_digits
from tiny import one_thread
from typed import cli

import layerscope
from layerscope.core.errors import LayerscopeError
from layerscope.evaluation.texts import TextStates

__all__ = ["cli", "one_thread"]
SMALL = {"hidden_size": 32, "num_hidden_layers": 3, "num_attention_heads": 4, "intermediate_size": 48}
N = 60


def png(pixels: np.ndarray) -> dict:
    from PIL import Image as Pillow

    file = BytesIO()
    Pillow.fromarray((pixels * 15).astype(np.uint8)).convert("RGB").save(file, "png")
    return {"bytes": file.getvalue(), "path": None}


def wav(samples: np.ndarray, rate: int) -> dict:
    file = BytesIO()
    soundfile.write(file, samples, rate, format="wav", subtype="PCM_16")
    return {"bytes": file.getvalue(), "path": None}


def digits() -> tuple[list[dict], list[int]]:
    images, labels = load_digits(return_X_y=True)
    return [png(image.reshape(8, 8)) for image in images[:N]], (labels[:N] % 3).tolist()


def tones() -> tuple[list[dict], list[int]]:
    """Sounds of three pitches, two of them at another rate."""
    rng, labels = np.random.default_rng(0), [i % 3 for i in range(N)]
    rates = [16000 if i % 7 else 8000 for i in range(N)]
    waves = [
        np.sin(np.arange(rate // 8) * (300 + 200 * label) / rate * 6.28) * 0.3 + rng.normal(size=rate // 8) * 0.3
        for label, rate in zip(labels, rates, strict=True)
    ]
    return [wav(wave.astype(np.float32), rate) for wave, rate in zip(waves, rates, strict=True)], labels


MEDIA = {"image": (digits, Image), "audio": (tones, Audio)}


def task(kind: str, type_: str, modalities: list[str], category: str, main: str, dataset: object, **about: object):
    metadata = TaskMetadata(
        name=type_, description="", type=type_, dataset={"path": "none", "revision": "1"}, eval_splits=["test"],
        eval_langs=["eng-Latn"], main_score=main, category=category, modalities=modalities,
    )  # fmt: skip
    own = kind if isinstance(kind, type) else getattr(abstasks, kind)
    made = type("Own", (own,), {"metadata": metadata, **about})()
    made.dataset, made.data_loaded = dataset, True
    return made


def table(modality: str, columns: list[str], rows: slice = slice(None), **others: list) -> Dataset:
    make, feature = MEDIA[modality]
    files = make()[0]
    shuffled = [files[i] for i in np.random.default_rng(1).permutation(len(files))]
    data = dict(zip(columns, (files, shuffled), strict=False)) | others
    known = Dataset.from_dict({name: cells[rows] for name, cells in data.items()})
    for column in columns:
        known = known.cast_column(column, feature(decode=False)).cast_column(column, feature())
    return known


def classification(modality: str) -> object:
    labels = MEDIA[modality][0]()[1]
    splits = {
        name: table(modality, [modality], rows, label=labels)
        for name, rows in (("train", slice(36)), ("test", slice(36, N)))
    }
    type_ = f"{modality.capitalize()}Classification"
    return task(
        "AbsTaskClassification", type_, [modality], f"{modality[0]}2c", "accuracy", DatasetDict(splits),
        input_column_name=modality, label_column_name="label", samples_per_label=8,
    )  # fmt: skip


def clustering(modality: str) -> object:
    data = DatasetDict(test=table(modality, [modality], labels=MEDIA[modality][0]()[1]))
    type_ = f"{modality.capitalize()}Clustering"
    return task(
        "AbsTaskClustering", type_, [modality], f"{modality[0]}2c", "v_measure", data, input_column_name=modality,
        label_column_name="labels", max_fraction_of_documents_to_embed=None, max_documents_per_cluster=N,
    )  # fmt: skip


def pairs(modality: str) -> object:
    scores = np.random.default_rng(2).integers(0, 2, N).tolist()
    two = ["image1", "image2"]
    if modality == "image":
        data = DatasetDict(test=table(modality, two, score=scores))
        return task("AbsTaskSTS", "VisualSTS(eng)", [modality], "i2i", "cosine_spearman", data, column_names=tuple(two))
    data = DatasetDict(test=table(modality, two, labels=scores))
    return task(
        "AbsTaskPairClassification", "AudioPairClassification", [modality], "a2a", "max_ap", data,
        input1_column_name="image1", input2_column_name="image2", label_column_name="labels",
    )  # fmt: skip


def retrieval(modality: str, category: str | None = None) -> object:
    """Files or texts that find files of their class; of sounds a reranking of some."""
    category = category or f"{modality[0]}2{modality[0]}"
    labels = MEDIA[modality][0]()[1]
    corpus = table(modality, [modality], slice(10, N), id=[f"d{i}" for i in range(N)])
    queries = table(modality, [modality], slice(10), id=[f"q{i}" for i in range(N)])
    texts = [modality]
    if category[0] == "t":
        queries = Dataset.from_dict({"id": [f"q{i}" for i in range(3)], "text": [f"w{i} w{i + 9}" for i in range(3)]})
        texts = ["text", modality]
    relevant = {
        query: {f"d{j}": 1 for j in range(10, N) if labels[j] == (labels[i] if texts == [modality] else i)}
        for i, query in enumerate(queries["id"])
    }
    ranked = {query: [f"d{j}" for j in range(10 + i, N, 2)] for i, query in enumerate(queries["id"])}
    split = {"corpus": corpus, "queries": queries, "relevant_docs": relevant}
    split["top_ranked"] = ranked if modality == "audio" else None
    type_ = "AudioReranking" if modality == "audio" else "Any2AnyRetrieval"
    return task("AbsTaskRetrieval", type_, texts, category, "ndcg_at_10", {"default": {"test": split}})


def zero_shot() -> object:
    data = DatasetDict(test=table("image", ["image"], label=digits()[1]))
    named = {"get_candidate_labels": lambda self: ["w1 w2", "w3 w4 w5", "w6"]}
    return task(
        "AbsTaskZeroShotClassification", "ZeroShotClassification", ["image", "text"], "i2t", "accuracy", data,
        input_column_name="image", label_column_name="label", **named,
    )  # fmt: skip


def captions() -> object:
    data = DatasetDict(test=table("image", ["a", "b"], one=tiny.texts(N), two=tiny.texts(N, seed=1)))
    return task(
        AbsTaskImageTextPairClassification, "Compositionality", ["image", "text"], "i2t", "accuracy", data,
        images_column_names=["a", "b"], texts_column_names=["one", "two"],
    )  # fmt: skip


class Plain:
    """A layer as a plain encoder of mteb, each sample alone, by transformers' own code."""

    def __init__(self, vector: object, modalities: list[str]) -> None:
        self.vector = vector
        self.mteb_model_meta = ModelMeta.create_empty(
            overwrites={"name": "a/b", "revision": "1", "modalities": modalities}
        )

    @torch.no_grad()
    def encode(self, inputs: object, **_: object) -> np.ndarray:
        rows = []
        for batch in inputs:
            modality = next(name for name in ("image", "audio", "text") if name in batch)
            rows += [self.vector(modality, cell).float().numpy() for cell in batch[modality]]
        return np.stack(rows)

    def similarity(self, one: object, two: object) -> object:
        return cos_sim(one, two)

    def similarity_pairwise(self, one: object, two: object) -> object:
        return cos_sim(one, two).diagonal()


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
    text = {**SMALL, "vocab_size": len(tokens), "eos_token_id": tokens.sep_token_id, "max_position_embeddings": 64}
    vision = {**SMALL, "num_hidden_layers": 4, "image_size": 16, "patch_size": 4}
    model = tiny.seeded(hf.CLIPModel, hf.CLIPConfig(text_config=text, vision_config=vision, projection_dim=24))
    model.save_pretrained(folder)
    images = hf.CLIPImageProcessor(size={"height": 16, "width": 16}, do_center_crop=False)
    hf.CLIPProcessor(images, tokens).save_pretrained(folder)
    return str(folder)


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many samples each forward held."""
    seen: list[int] = []
    batch = TextStates._batch
    monkeypatch.setattr(TextStates, "_batch", lambda self, given, n: seen.append(len(given)) or batch(self, given, n))
    return seen


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
    return mteb.evaluate(encoder, own, cache=None, co2_tracker=False, show_progress_bar=False)[0].get_score()


@pytest.mark.parametrize("modality", ["image", "audio"])
def test_every_layer_as_mteb_scores_it_alone(modality, vit, ears, counted, monkeypatch):
    if modality == "audio":  # the reference reads bytes
        monkeypatch.setitem(MEDIA, "audio", (tones, lambda decode=False: Audio(decode=False)))
    model = vit if modality == "image" else ears
    found = layerscope.evaluate(
        model, [make(modality) for make in MADE], sites="raw", pooling="mean", keep_states=True, progress=False
    )
    assert found.failed == {}
    assert sum(counted) == N, "once over each sample, for all layers and tasks"
    scores, baseline = found.table(), found.baseline().iloc[0]
    assert scores.shape == (4, 4)
    for make in MADE:
        name = make(modality).metadata.name
        for layer in (0, 2, 3):
            wanted = judged(found, make(modality), layers_of(modality, model, layer))
            assert scores.loc[layer, name] == pytest.approx(wanted, abs=1e-6), (name, layer)
        assert np.isfinite(baseline[name])


def towers_of(clip: str, layer: int) -> Plain:
    """The image tower cut after a layer, and the whole text tower, in the space that they share."""
    module, processor = hf.CLIPModel.from_pretrained(clip).eval(), hf.CLIPProcessor.from_pretrained(clip)
    encoder = module.vision_model.encoder
    encoder.layers = encoder.layers[:layer]

    def vector(modality: str, cell: object) -> torch.Tensor:
        if modality == "text":
            return module.get_text_features(**processor(text=cell, return_tensors="pt")).pooler_output[0]
        return module.get_image_features(**processor(images=cell, return_tensors="pt")).pooler_output[0]

    return Plain(vector, ["image", "text"])


def test_layers_of_the_image_tower_against_texts_in_the_space_they_share(clip, counted):
    made = [zero_shot, captions, lambda: retrieval("image", "t2i"), lambda: classification("image")]
    found = layerscope.evaluate(clip, [make() for make in made], keep_states=True, progress=False)
    assert found.failed == {}
    texts = 2 * N + 3 + 3  # captions, candidate labels, queries
    assert N + texts - 10 < sum(counted) <= N + texts, "once over each image and text"
    scores, baseline = found.table(), found.baseline().iloc[0]
    assert list(scores.index) == [0, 1, 2, 3, 4] and set(found.scores["site"].dropna()) == {"projected"}
    for make in made:
        name = make().metadata.name
        for layer in (0, 2, 4):
            wanted = judged(found, make(), towers_of(clip, layer))
            assert scores.loc[layer, name] == pytest.approx(wanted, abs=1e-6), (name, layer)
        assert baseline[name] == scores.loc[4, name], "as shipped: the last layer's own projection"
        assert scores[name].nunique() > 1


def test_a_tower_alone_is_judged_where_its_layers_are_read_and_as_shipped(clip, tmp_path):
    found = layerscope.evaluate(clip, classification("image"), tmp_path, sites="normed,projected", progress=False)
    by_site = found.table(site="projected"), found.table(site="normed")
    assert [len(table) for table in by_site] == [5, 5]
    assert found.baseline().iloc[0, 0] == by_site[0].iloc[-1, 0]
    again = layerscope.open_evaluation(tmp_path)
    assert again.table(site="projected").equals(by_site[0])


def video() -> object:
    return task("AbsTaskClassification", "VideoClassification", ["video"], "v2c", "accuracy", DatasetDict())


def mixed() -> object:
    return task("AbsTaskRetrieval", "Any2AnyRetrieval", ["image", "text"], "it2i", "ndcg_at_10", {})


def of_texts() -> object:
    data = DatasetDict(test=Dataset.from_dict({"text": tiny.texts(9), "label": [0, 1, 2] * 3}))
    return task("AbsTaskClassification", "Classification", ["text"], "t2c", "accuracy", data)


@pytest.mark.parametrize(
    ("model", "tasks", "line"),
    [
        ("vit", [video], "task VideoClassification reads video: evaluate takes texts, images and sounds"),
        ("clip", [mixed], r"task Any2AnyRetrieval mixes image and text in one input \(it2i\)"),
        ("vit", [zero_shot], r"tiny-vit reads no texts \(image\)"),
        ("vit", [lambda: classification("audio")], r"tiny-vit reads no sounds \(image\): give a model that does"),
        ("clip", [of_texts, lambda: clustering("image")], "whose layers are not the same: evaluate them apart"),
    ],
)
def test_refused_before_the_model_runs(model, tasks, line, request, counted):
    with pytest.raises(LayerscopeError, match=line):
        layerscope.evaluate(request.getfixturevalue(model), [make() for make in tasks], progress=False)
    assert counted == []


def test_sites_of_two_towers_are_one(clip):
    with pytest.raises(LayerscopeError, match="site 'normed' is not one of this model: it has projected"):
        layerscope.evaluate(clip, zero_shot(), sites="normed", progress=False)


def test_a_sound_that_cannot_be_read_fails_its_task_alone(ears):
    broken = clustering("audio")
    files, labels = tones()
    files[3]["bytes"] = b"no sound"
    broken.dataset = DatasetDict(test=Dataset.from_dict({"audio": files, "labels": labels}))
    found = layerscope.evaluate(ears, [broken, classification("audio")], progress=False)
    assert list(found.failed) == ["AudioClustering"] and list(found.table()) == ["AudioClassification"]
