"""Tasks of mteb on images: every layer from one forward an image, scored as mteb scores one."""

import shlex
from io import BytesIO

import mteb
import numpy as np
import pytest
import tiny
import torch
import transformers as hf
from datasets import Dataset, DatasetDict, Image
from mteb import abstasks
from mteb.abstasks.task_metadata import TaskMetadata
from mteb.models import ModelMeta
from mteb.similarity_functions import cos_sim
from PIL import Image as Pillow
from sklearn.datasets import load_digits
from tiny import one_thread
from typed import cli

import layerscope
from layerscope.core.errors import LayerscopeError
from layerscope.selection.document import ship

__all__ = ["cli", "one_thread"]
N = 60
LABELS = (load_digits().target[:N] % 3).tolist()


def png(pixels: np.ndarray) -> dict:
    file = BytesIO()
    Pillow.fromarray((pixels * 15).astype(np.uint8)).convert("RGB").save(file, "png")
    return {"bytes": file.getvalue(), "path": None}


FILES = [png(image) for image in load_digits().images[:N]]


def task(
    type_: str,
    kind: str,
    main: str,
    dataset: object,
    reads: str = "image",
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
        category="i2i",
        modalities=reads.split(),
    )
    made = type(
        "Own", (getattr(abstasks, f"AbsTask{kind}"),), {"metadata": metadata, **about}
    )()
    made.dataset, made.data_loaded = dataset, True
    return made


def table(columns: list[str], rows: slice = slice(None), **others: list) -> Dataset:
    shuffled = [FILES[i] for i in np.random.default_rng(1).permutation(N)]
    data = dict(zip(columns, (FILES, shuffled), strict=False)) | others
    made = Dataset.from_dict({name: cells[rows] for name, cells in data.items()})
    for column in columns:
        made = made.cast_column(column, Image(decode=False)).cast_column(
            column, Image()
        )
    return made


def classification() -> object:
    halves = {"train": slice(36), "test": slice(36, N)}
    data = {name: table(["image"], rows, label=LABELS) for name, rows in halves.items()}
    about = {
        "input_column_name": "image",
        "label_column_name": "label",
        "samples_per_label": 8,
    }
    kind = "ImageClassification", "Classification", "accuracy"
    return task(*kind, DatasetDict(data), **about)


def pairs() -> object:
    scores = np.random.default_rng(2).integers(0, 2, N).tolist()
    data = DatasetDict(test=table(["image1", "image2"], score=scores))
    return task(
        "VisualSTS(eng)",
        "STS",
        "cosine_spearman",
        data,
        column_names=("image1", "image2"),
    )


def retrieval() -> object:
    """Images that find images of their class."""
    there = range(10, N)
    split = {
        "corpus": table(["image"], slice(10, N), id=[f"d{i}" for i in range(N)]),
        "queries": table(["image"], slice(10), id=[f"q{i}" for i in range(N)]),
        "relevant_docs": {
            f"q{i}": {f"d{j}": 1 for j in there if LABELS[j] == LABELS[i]}
            for i in range(10)
        },
        "top_ranked": None,
    }
    return task(
        "Any2AnyRetrieval", "Retrieval", "ndcg_at_10", {"default": {"test": split}}
    )


class Plain:
    """Mean-pooled hidden states of one layer as a plain encoder of mteb, each image alone, by transformers."""

    def __init__(self, model: str, layer: int) -> None:
        self.module, self.layer = hf.AutoModel.from_pretrained(model).eval(), layer
        self.processor = hf.AutoImageProcessor.from_pretrained(model)
        about = {"name": "a/b", "revision": "1", "modalities": ["image"]}
        self.mteb_model_meta = ModelMeta.create_empty(overwrites=about)

    def encode(self, inputs: object, **_: object) -> np.ndarray:
        return np.stack(
            [self.vector(image) for batch in inputs for image in batch["image"]]
        )

    @torch.no_grad()
    def vector(self, image: object) -> np.ndarray:
        pixels = self.processor(image, return_tensors="pt")
        states = self.module(**pixels, output_hidden_states=True).hidden_states
        return states[self.layer][0].mean(0).numpy()

    def similarity(self, one: object, two: object) -> object:
        return cos_sim(one, two)

    def similarity_pairwise(self, one: object, two: object) -> object:
        return cos_sim(one, two).diagonal()


@pytest.fixture(scope="module")
def clip(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("models") / "tiny-clip"
    tokens = tiny.tokenizer(special=True)
    small = {
        "hidden_size": 32,
        "num_hidden_layers": 3,
        "num_attention_heads": 4,
        "intermediate_size": 48,
    }
    text = {
        **small,
        "vocab_size": len(tokens),
        "eos_token_id": tokens.sep_token_id,
        "max_position_embeddings": 64,
    }
    vision = {**small, "num_hidden_layers": 4, "image_size": 16, "patch_size": 4}
    config = hf.CLIPConfig(text_config=text, vision_config=vision, projection_dim=24)
    tiny.seeded(hf.CLIPModel, config).save_pretrained(folder)
    images = hf.CLIPImageProcessor(
        size={"height": 16, "width": 16}, do_center_crop=False
    )
    hf.CLIPProcessor(images, tokens).save_pretrained(folder)
    return str(folder)


def test_every_layer_as_mteb_scores_it_alone(vit, counted):
    made = [classification, pairs, retrieval]
    tasks = [make() for make in made]
    found = layerscope.evaluate(vit, tasks, sites="raw", pooling="mean", progress=False)
    assert found.failed == {}
    assert len(counted) == len(made) * N, (
        "once over each image of a task, for all layers"
    )
    quiet = {"cache": None, "co2_tracker": False, "show_progress_bar": False}
    for make in made:
        name = make().metadata.name
        for layer in (0, 2, 3):
            (wanted,) = mteb.evaluate(Plain(vit, layer), make(), **quiet).task_results
            score = found.table().loc[layer, name]
            assert score == pytest.approx(wanted.get_score(), abs=1e-6), (name, layer)
        assert np.isfinite(found.baseline().iloc[0][name])


def test_a_tower_alone_is_judged_where_its_layers_are_read_and_as_shipped(
    clip, tmp_path
):
    sites = "normed,projected"
    found = layerscope.evaluate(
        clip, classification(), tmp_path, sites=sites, progress=False
    )
    by_site = found.table(site="projected"), found.table(site="normed")
    assert [len(table) for table in by_site] == [5, 5]
    assert found.baseline().iloc[0, 0] == by_site[0].iloc[-1, 0]
    again = layerscope.open_evaluation(tmp_path)
    assert again.table(site="projected").equals(by_site[0])


def test_refused_before_the_model_runs(vit, clip, counted):
    texts = DatasetDict(
        test=Dataset.from_dict({"text": tiny.texts(9), "label": [0, 1, 2] * 3})
    )
    of_texts = task("Classification", "Classification", "accuracy", texts, "text")
    video = task(
        "VideoClassification", "Classification", "accuracy", DatasetDict(), "video"
    )
    mixed = task("Any2AnyRetrieval", "Retrieval", "ndcg_at_10", {}, "image text")
    for model, tasks, line in (
        (
            vit,
            [video],
            "task VideoClassification reads video: evaluate takes tasks of mteb on",
        ),
        (
            clip,
            [mixed],
            "task Any2AnyRetrieval reads image and text: evaluate takes tasks of mteb",
        ),
        (vit, [of_texts], r"tiny-vit reads no texts \(image\): give it probes"),
        (
            clip,
            [of_texts, pairs()],
            "whose layers are not the same: evaluate them separately",
        ),
    ):
        with pytest.raises(LayerscopeError, match=line):
            layerscope.evaluate(model, tasks, progress=False)
    assert counted == []


def test_an_image_that_cannot_be_read_fails_its_task_alone(vit):
    broken, files = pairs(), [*FILES[:9], {"bytes": b"no image", "path": None}]
    rows = Dataset.from_dict({"image1": files, "image2": files, "score": [0, 1] * 5})
    broken.dataset = DatasetDict(test=rows)
    found = layerscope.evaluate(vit, [broken, classification()], progress=False)
    assert list(found.failed) == ["VisualSTS(eng)"]
    assert list(found.table()) == ["ImageClassification"]


@pytest.mark.parametrize("name", ["vit", "clip"])
def test_the_next_command_after_an_evaluation_works(
    name, request, cli, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    model = request.getfixturevalue(name)
    task = classification()
    found = layerscope.evaluate(model, [task], layers=[1], out="scores", progress=False)
    chosen = layerscope.select(
        found, max_loss=1e5, cost=False, out="choice", progress=False
    )
    assert (chosen.as_shipped, chosen.layer) == (False, 1), (
        "there is something to truncate"
    )
    _, command, *options = shlex.split(ship(chosen)[0])
    assert cli(command, *options).status == 0
    assert cli(command, "choice", "--out", "again").status == 0
    for folder in (options[-1], "again"):
        config = hf.AutoConfig.from_pretrained(folder)
        assert getattr(config, "vision_config", config).num_hidden_layers == 1
        assert name != "clip" or config.text_config.num_hidden_layers == 3, (
            "the judged tower alone"
        )
