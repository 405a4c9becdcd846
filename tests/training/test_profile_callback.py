"""Layers are profiled while any Trainer trains: logged where it logs, at no change of the training."""

from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import tiny
import torch
import transformers as hf
from datasets import Dataset
from sentence_transformers import (
    SentenceTransformer,
    SentenceTransformerTrainer,
    SentenceTransformerTrainingArguments,
)
from sentence_transformers.losses import CosineSimilarityLoss
from trainers import same, weights

import layerscope
from layerscope import LayerscopeError
from layerscope.training import ProfileCallback, profile_callback

TEXTS = tiny.texts(60)
DATA = pd.DataFrame({"text": TEXTS, "label": [i % 2 for i in range(len(TEXTS))]})
HOW = {"per_device_train_batch_size": 4, "save_strategy": "no", "disable_tqdm": True}


def trained(folder: Path, **callback: Any) -> tuple[Any, Any]:
    """Return a Trainer of four steps that has trained, and its callback, None where it has none."""
    torch.manual_seed(0)
    model, tokenizer = tiny.classifier(), tiny.tokenizer(special=True)
    rows = Dataset.from_list([dict(tokenizer(text), labels=i % 2) for i, text in enumerate(TEXTS)])
    arguments = hf.TrainingArguments(
        str(folder), max_steps=4, logging_steps=2, report_to=["tensorboard"], seed=0, **HOW
    )
    trainer = hf.Trainer(model, arguments, train_dataset=rows, processing_class=tokenizer)
    profiles = ProfileCallback(trainer, DATA, **callback) if callback else None
    if profiles is not None:
        trainer.add_callback(profiles)
    trainer.train()
    return trainer, profiles


def test_every_value_is_in_tensorboards_files_and_equals_the_runs(tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    trainer, profiles = trained(tmp_path, every=3, metrics="dataset_entropy,linear_probe")
    runs = profiles.runs
    assert [run.path.name for run in runs] == ["step-0", "step-3", "step-4"]
    (events,) = {path.parent for path in tmp_path.rglob("events.out.tfevents*")}
    board = EventAccumulator(str(events)).Reload()
    tags = [tag for tag in board.Tags()["scalars"] if "layers/" in tag]
    assert len(tags) == 2 * 4 + 1
    for tag in tags:
        scalars = board.Scalars(tag)
        assert [scalar.step for scalar in scalars] == [0, 3, 4]
        _, metric, *layer = tag[tag.index("layers/") :].split("/")
        if layer:
            wanted = [run.metric(metric).loc[int(layer[0])] for run in runs]
            assert [scalar.value for scalar in scalars] == pytest.approx(wanted, rel=1e-6)
    how = {"metrics": "dataset_entropy", "views": 0, "samples": 500, "progress": False}
    processor = trainer.processing_class
    last = layerscope.profile(
        trainer.model, DATA, processor=processor, out=tmp_path / "alone", **how
    )
    entropies = (run.metric("dataset_entropy") for run in (last, runs[-1]))
    pd.testing.assert_series_equal(*entropies)
    assert len(layerscope.compare(runs, progress=False).runs) == 3


def test_the_training_is_what_it_is_without(tmp_path: Path, capsys, monkeypatch) -> None:
    def drawing(*args: Any, **options: Any) -> layerscope.Run:
        torch.rand(7)  # as a model's own code may
        return layerscope.profile(*args, **options)

    monkeypatch.setattr(profile_callback, "profile", drawing)
    plain, watched = trained(tmp_path / "plain")[0], trained(tmp_path / "watched", every=1)[0]
    assert same(weights(plain.model), weights(watched.model))
    assert "5 profiles of 3 layers took" in capsys.readouterr().err


def test_a_sentence_transformer_in_its_own_trainer(tmp_path: Path) -> None:
    folder = tiny.saved(tiny.bert(), tmp_path / "bert", special=True)
    model = SentenceTransformer(str(folder), device="cpu")
    rows = Dataset.from_dict({"a": TEXTS[:16], "b": TEXTS[16:32], "score": [0.0, 1.0] * 8})
    arguments = SentenceTransformerTrainingArguments(
        str(tmp_path / "out"), max_steps=2, report_to=[], **HOW
    )
    loss = CosineSimilarityLoss(model)
    trainer = SentenceTransformerTrainer(model, arguments, train_dataset=rows, loss=loss)
    out = tmp_path / "runs"
    profiles = ProfileCallback(trainer, TEXTS, every=2, metrics="effective_rank", out=out)
    trainer.add_callback(profiles)
    trainer.train()
    before, after = profiles.runs
    assert [before.path, after.path] == [out / "step-0", out / "step-2"]
    assert before.metric("effective_rank").ne(after.metric("effective_rank")).any()
    names = {f"layers/effective_rank/{layer}" for layer in range(4)}
    assert names <= trainer.state.log_history[0].keys()


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"every": 0}, "every is 0: give a number of steps, at least 1"),
        (
            {"every": 1, "metrics": "cka"},
            "cka compares pairs of layers: name metrics with a number",
        ),
        ({"every": 1, "metrics": "ranks"}, "metric 'ranks' does not exist"),
    ],
)
def test_what_cannot_be_logged_is_refused_before_the_training(tmp_path, wrong, message) -> None:
    with pytest.raises(LayerscopeError, match=f"^{message}"):
        trained(tmp_path, **wrong)
