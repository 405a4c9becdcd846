"""Scores of tasks and exit thresholds that must stay when order, copies, batches, padding, threads or names change."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import tiny
import torch
import transformers as hf
from campaign.relations import (
    labelled_digits,
    labelled_texts,
    other_columns,
    renamed,
    scored_pairs,
    shuffled_rows,
    threads,
    twice,
)
from campaign.test_relations import SHAPE, opened
from trials import MINUTES, Part

import layerscope
from layerscope.early_exit import Calibration, ExitModel, calibrate
from layerscope.models.checks import embedded

one_thread = tiny.one_thread
ROUNDING = 1e-4
ONE_OF_A_HALF = 1 / 15
"""What a probe's accuracy on 15 of 30 texts changes by where rounding moves one of them."""
SCORES: list[tuple[str, Any, Any, dict[str, Any], float, float]] = [
    ("labels with other names", renamed, None, {}, 0, 0),
    ("columns in another order, and more of them", other_columns, other_columns, {}, 0, 0),
    ("pairs in another order", None, shuffled_rows, {}, 0, ROUNDING),
    ("every pair twice", None, twice, {}, 0, ROUNDING),
    ("two threads", None, None, {"threads": 2}, ONE_OF_A_HALF, ROUNDING),
    ("padding on the left", None, None, {"side": "left"}, ONE_OF_A_HALF, ROUNDING),
]
"""What is done to texts, to pairs and to the run; by how much the score of probes and of pairs may change."""


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The embedded model in the campaign, a tiny one in the ordinary tests."""
    if MINUTES:
        return str(embedded("minilm"))
    return str(
        tiny.saved(tiny.bert(), tmp_path_factory.mktemp("texts") / "tiny-bert", special=True)
    )


def judged(
    model: str,
    texts: pd.DataFrame,
    pairs: pd.DataFrame,
    folder: Path,
    side: str = "right",
    number: int = 1,
) -> pd.Series:
    folder.mkdir()
    texts.to_csv(folder / "texts.csv", index=False)
    pairs.to_csv(folder / "pairs.csv", index=False)
    module, tokenizer = opened(model)
    tokenizer.padding_side = side
    tasks = [f"{kind}:{folder / 'texts.csv'}" for kind in ("linear-probe", "knn-probe")]
    with threads(number):
        found = layerscope.evaluate(
            module,
            [*tasks, f"sts:{folder / 'pairs.csv'}"],
            processor=tokenizer,
            jobs=1,
            progress=False,
        )
    assert not found.failed
    return found.scores.set_index(["kind", "layer", "task"])["score"]


def test_scores(model: str, tmp_path: Path) -> None:
    bases: dict[int, pd.Series] = {}
    for trial in Part("scores", few=1, share=0.03).trials():
        with trial:
            draw, number = divmod(trial.seed, len(SCORES))
            name, of_texts, of_pairs, options, of_probes, of_sts = SCORES[number]
            rng = np.random.default_rng(draw)
            texts = labelled_texts(rng)
            pairs = scored_pairs(texts, rng)
            if draw not in bases:
                bases[draw] = judged(model, texts, pairs, tmp_path / f"{trial.seed}-base")
            texts, pairs = (
                change(frame, rng) if change else frame
                for change, frame in ((of_texts, texts), (of_pairs, pairs))
            )
            side, number_of_threads = options.get("side", "right"), options.get("threads", 1)
            found = judged(model, texts, pairs, tmp_path / str(trial.seed), side, number_of_threads)
            away = (bases[draw] - found.reindex(bases[draw].index)).abs()
            is_sts = away.index.get_level_values("task") == "pairs"
            assert len(found) == len(away) and is_sts.any() and not is_sts.all()
            for worst, allowed in ((away[~is_sts].max(), of_probes), (away[is_sts].max(), of_sts)):
                assert worst <= allowed + 1e-9, (
                    f"{name}: a score changes by {worst:.1e}, {allowed:.1e} is allowed"
                )


def classifier(images: bool, seed: int) -> tuple[Any, Any]:
    """Return a classifier whose layers agree often, and what it reads with."""
    torch.manual_seed(seed)
    if images:
        config: Any = hf.ViTConfig(
            **SHAPE, image_size=16, patch_size=4, num_labels=3, initializer_range=0.1
        )
        return hf.ViTForImageClassification(config).eval(), hf.ViTImageProcessor(
            size={"height": 16, "width": 16}
        )
    config = hf.BertConfig(
        **tiny.COMMON, max_position_embeddings=64, num_labels=3, initializer_range=0.1
    )
    return hf.BertForSequenceClassification(config).eval(), tiny.tokenizer(special=True)


THRESHOLDS: list[tuple[str, Any, dict[str, Any], bool]] = [
    ("rows in another order", shuffled_rows, {}, True),
    ("batches of one", None, {"batch_size": 1}, True),
    ("two threads", None, {"threads": 2}, True),
    ("labels with other names", renamed, {}, True),
    ("every sample twice", twice, {}, True),
    ("columns in another order, and more of them", other_columns, {}, False),
    ("padding on the left", None, {"side": "left"}, False),
]
"""What is done to data and to the run, and whether it is done to images too."""


def certified(
    model: ExitModel, frame: pd.DataFrame, file: Path, options: dict[str, Any]
) -> Calibration:
    options = dict(options)
    if "image" in frame:
        data: Any = (list(frame["image"]), list(frame["label"]))
    else:
        model.processor.padding_side = options.pop("side", "right")
        frame.to_csv(data := file, index=False)
        options |= {"text_column": "text", "label_column": "label"}
    with threads(options.pop("threads", 1)):
        return calibrate(
            model, data, max_disagreement=0.3, confidence=0.9, progress=False, **options
        )


def test_thresholds(tmp_path: Path) -> None:
    part = Part("thresholds", few=len(THRESHOLDS) + 2, share=0.03)
    for trial in part.trials():
        with trial:
            draw, number = divmod(trial.seed, len(THRESHOLDS))
            name, change, options, also_images = THRESHOLDS[number]
            rng, images = np.random.default_rng(draw), also_images and draw % 2 == 1
            module, processor = classifier(images, draw)
            model = ExitModel(module, processor=processor)
            frame = (
                labelled_digits(rng, each=30)
                if images
                else pd.DataFrame({"text": tiny.texts(90, seed=draw)})
            )
            frame["label"] = (
                [f"t{i % 3}" for i in range(len(frame))] if not images else frame["label"]
            )
            one = certified(model, frame, tmp_path / "one.csv", {})
            two = certified(
                model, change(frame, rng) if change else frame, tmp_path / "two.csv", options
            )
            left = "held" if one.mean_layer < one.depth else "none left"
            trial.outcome = f"{'images' if images else 'texts'}: {left}"
            if (
                change is twice
            ):  # of the same shares of twice as many samples at least as much is certain
                assert two.n == 2 * one.n and two.threshold <= one.threshold + ROUNDING, (
                    f"{name}: {one} {two}"
                )
            else:
                same = [
                    getattr(each, field)
                    for each in (one, two)
                    for field in ("n", "errors", "tested", "mean_layer")
                ]
                assert same[:4] == same[4:], f"{name}: {one} {two}"
                assert np.isclose(one.threshold, two.threshold, rtol=ROUNDING), (
                    f"{name}: {one} {two}"
                )
