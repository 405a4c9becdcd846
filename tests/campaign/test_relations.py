"""Numbers that must stay when order, batches, padding, threads, precision or names change, and those that must move."""

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import tiny
import torch
import transformers as hf
from campaign.relations import (
    RELATIONS,
    differing,
    labelled_digits,
    labelled_texts,
    threads,
)
from trials import Part

import layerscope
from layerscope.models.checks import embedded

one_thread = tiny.one_thread
SHAPE = {
    "hidden_size": 32,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "intermediate_size": 48,
}


@cache
def opened(model: str) -> tuple[torch.nn.Module, Any]:
    if Path(model).name == "vit":
        return hf.ViTModel.from_pretrained(
            model
        ).eval(), hf.ViTImageProcessor.from_pretrained(model)
    auto = hf.AutoModelForCausalLM if "stories" in model else hf.AutoModel
    tokenizer = hf.AutoTokenizer.from_pretrained(model)
    if tokenizer.pad_token is None:
        tokenizer.pad_token = tokenizer.eos_token
    return auto.from_pretrained(model).eval(), tokenizer


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Return folders of models, small ones first: stories260K where it is at hand, one of images, the embedded one."""
    vit = tmp_path_factory.mktemp("images") / "vit"
    tiny.seeded(
        hf.ViTModel, hf.ViTConfig(**SHAPE, image_size=16, patch_size=4)
    ).save_pretrained(vit)
    hf.ViTImageProcessor(size={"height": 16, "width": 16}).save_pretrained(vit)
    stories = Path(__file__).resolve().parents[3] / "shared/models/stories260K"
    return [
        *([str(stories)] if stories.is_dir() else []),
        str(vit),
        str(embedded("minilm")),
    ]


def profiled(
    model: str,
    frame: pd.DataFrame,
    folder: Path,
    *,
    side: str = "right",
    **options: Any,
) -> layerscope.Run:
    folder.mkdir()
    module, processor = opened(model)
    given = (
        (module, {"processor": processor}) if "dtype" not in options else (model, {})
    )
    if "image" in frame:
        data: Any = (list(frame["image"]), list(frame["label"]))
    else:
        data = str(folder / "data.csv")
        frame.to_csv(data, index=False)
        processor.padding_side = side
        options |= {"text_column": "text", "label_column": "label", "pooling": "mean"}
    with threads(options.pop("threads", 1)):
        return layerscope.profile(
            given[0],
            data,
            out=folder / "run",
            metrics="all",
            progress=False,
            **given[1],
            **options,
        )


def test_relations(models: list[str], tmp_path: Path) -> None:
    part = Part("numbers", share=0.15)
    bases: dict[tuple[str, int], layerscope.Run] = {}
    for trial in part.trials():
        with trial:
            draw, number = divmod(trial.seed, len(RELATIONS))
            relation = RELATIONS[number]
            fitting = [
                model
                for model in models
                if not (relation.texts and Path(model).name == "vit")
            ]
            model = fitting[(draw + number) % len(fitting)]
            rng = np.random.default_rng(draw)
            frame = (
                labelled_digits(rng)
                if Path(model).name == "vit"
                else labelled_texts(rng)
            )
            key = model, draw
            if key not in bases:
                bases[key] = profiled(model, frame, tmp_path / f"{trial.seed}-base")
            changed = relation.change(frame, rng)
            run = profiled(
                model, changed, tmp_path / str(trial.seed), **relation.options
            )
            found = differing(bases[key].table(), run.table(), relation)
            if relation.choice:
                layers = [
                    layerscope.select(each, cost=False, progress=False).layer
                    for each in (bases[key], run)
                ]
                found += (
                    [f"layer {layers[1]} is chosen for {layers[0]}"]
                    if layers[0] != layers[1]
                    else []
                )
            trial.outcome = f"{Path(model).name}: held"
            assert not found, f"{relation.name}, {Path(model).name}: {'; '.join(found)}"
