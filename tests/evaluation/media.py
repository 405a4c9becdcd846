"""Tasks of mteb on images and sounds, made in memory, and an encoder of plain transformers that mteb judges alone."""

from io import BytesIO

import numpy as np
import soundfile
import tiny
import torch
from datasets import Audio, Dataset, DatasetDict, Image
from mteb import abstasks
from mteb.abstasks.task_metadata import TaskMetadata
from mteb.models import ModelMeta
from mteb.similarity_functions import cos_sim
from sklearn.datasets import load_digits

SMALL = {
    "hidden_size": 32,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "intermediate_size": 48,
}
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
        np.sin(np.arange(rate // 8) * (300 + 200 * label) / rate * 6.28) * 0.3
        + rng.normal(size=rate // 8) * 0.3
        for label, rate in zip(labels, rates, strict=True)
    ]
    return [
        wav(wave.astype(np.float32), rate) for wave, rate in zip(waves, rates, strict=True)
    ], labels


MEDIA = {"image": (digits, Image), "audio": (tones, Audio)}


def task(
    kind: str,
    type_: str,
    modalities: list[str],
    category: str,
    main: str,
    dataset: object,
    **about: object,
):
    metadata = TaskMetadata(
        name=type_,
        description="",
        type=type_,
        dataset={"path": "none", "revision": "1"},
        eval_splits=["test"],
        eval_langs=["eng-Latn"],
        main_score=main,
        category=category,
        modalities=modalities,
    )
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
        "AbsTaskClassification",
        type_,
        [modality],
        f"{modality[0]}2c",
        "accuracy",
        DatasetDict(splits),
        input_column_name=modality,
        label_column_name="label",
        samples_per_label=8,
    )


def clustering(modality: str) -> object:
    data = DatasetDict(test=table(modality, [modality], labels=MEDIA[modality][0]()[1]))
    type_ = f"{modality.capitalize()}Clustering"
    return task(
        "AbsTaskClustering",
        type_,
        [modality],
        f"{modality[0]}2c",
        "v_measure",
        data,
        input_column_name=modality,
        label_column_name="labels",
        max_fraction_of_documents_to_embed=None,
        max_documents_per_cluster=N,
    )


def pairs(modality: str) -> object:
    scores = np.random.default_rng(2).integers(0, 2, N).tolist()
    two = ["image1", "image2"]
    if modality == "image":
        data = DatasetDict(test=table(modality, two, score=scores))
        return task(
            "AbsTaskSTS",
            "VisualSTS(eng)",
            [modality],
            "i2i",
            "cosine_spearman",
            data,
            column_names=tuple(two),
        )
    data = DatasetDict(test=table(modality, two, labels=scores))
    return task(
        "AbsTaskPairClassification",
        "AudioPairClassification",
        [modality],
        "a2a",
        "max_ap",
        data,
        input1_column_name="image1",
        input2_column_name="image2",
        label_column_name="labels",
    )


def retrieval(modality: str) -> object:
    """Files that find files of their class; of sounds a reranking of some."""
    labels = MEDIA[modality][0]()[1]
    relevant = {
        f"q{i}": {f"d{j}": 1 for j in range(10, N) if labels[j] == labels[i]} for i in range(10)
    }
    ranked = {f"q{i}": [f"d{j}" for j in range(10 + i, N, 2)] for i in range(10)}
    split = {
        "corpus": table(modality, [modality], slice(10, N), id=[f"d{i}" for i in range(N)]),
        "queries": table(modality, [modality], slice(10), id=[f"q{i}" for i in range(N)]),
        "relevant_docs": relevant,
        "top_ranked": ranked if modality == "audio" else None,
    }
    type_ = "AudioReranking" if modality == "audio" else "Any2AnyRetrieval"
    category = f"{modality[0]}2{modality[0]}"
    return task(
        "AbsTaskRetrieval", type_, [modality], category, "ndcg_at_10", {"default": {"test": split}}
    )


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


def video() -> object:
    return task(
        "AbsTaskClassification", "VideoClassification", ["video"], "v2c", "accuracy", DatasetDict()
    )


def mixed() -> object:
    return task("AbsTaskRetrieval", "Any2AnyRetrieval", ["image", "text"], "it2i", "ndcg_at_10", {})


def of_texts() -> object:
    data = DatasetDict(test=Dataset.from_dict({"text": tiny.texts(9), "label": [0, 1, 2] * 3}))
    return task("AbsTaskClassification", "Classification", ["text"], "t2c", "accuracy", data)
