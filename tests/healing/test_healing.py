"""Healing: closer to the full model on samples held out, the same after a kill, and never worse than the cut."""

import math
from contextlib import contextmanager
from dataclasses import replace

import numpy as np
import pytest
import tiny
import torch
from sentence_transformers import SentenceTransformer

import layerscope
from layerscope import LayerscopeError
from layerscope.core.progress import Reporter
from layerscope.healing.healing import EVALUATIONS, STATE, Plan, heal
from layerscope.healing.lessons import lessons_of
from layerscope.healing.outputs import Pupil, distances_on
from layerscope.inputs import open_corpus
from layerscope.models import LoadOptions, Override
from layerscope.truncation import costs
from layerscope.truncation.pipeline import write_cut
from layerscope.truncation.source import open_source

TEXTS = tiny.texts(200)
MODELS = {"bert": tiny.bert, "gpt2": tiny.gpt2, "classifier": tiny.classifier}
PLAN = Plan(minutes=10, learning_rate=5e-3)


@pytest.fixture(autouse=True)
def _timed_once(monkeypatch):
    monkeypatch.setattr(costs, "FEWEST", 1)
    monkeypatch.setattr(costs, "SECONDS", 0.0)


def pupil(name, folder):
    """Return a tiny model without its middle block, and the whole one."""
    tiny.saved(MODELS[name](), folder / "full")
    sources = [open_source(folder / "full", None, Override(), LoadOptions())]
    write_cut(sources[0], (0, 2), folder / "cut")
    sources.append(open_source(folder / "cut", None, Override(), LoadOptions()))
    return Pupil(sources[1].model, sources[0].model, "mean")


class Interrupting(Reporter):
    """Ends a healing after some steps, as Ctrl-C does."""

    def __init__(self, after):
        self.left = after

    @contextmanager
    def bar(self, *_):
        def advance(steps, note=""):
            self.left -= steps
            if self.left < 0:
                raise KeyboardInterrupt

        yield advance


@pytest.mark.parametrize("name", MODELS)
def test_the_distance_falls_on_samples_held_out(name, tmp_path):
    pair = pupil(name, tmp_path)
    lessons = lessons_of(open_corpus(TEXTS), pair.teacher, seed=0)
    parts = [set(part) for part in (lessons.learn, lessons.validation, lessons.held)]
    assert sum(map(len, parts)) == len(set.union(*parts)) > 150
    before = distances_on(lessons.held, pair)
    done = heal(pair, lessons.learn, lessons.validation, PLAN, tmp_path, Reporter())
    every = math.ceil(done.steps / EVALUATIONS)
    assert len(done.measured) == 1 + math.ceil(done.step / every) > 3
    best = distances_on(lessons.validation, pair).mean()
    assert best == pytest.approx(min(done.measured)) and best < done.measured[0]
    after = distances_on(lessons.held, pair)
    assert len(after) == len(lessons.held) and after.mean() < 0.7 * before.mean()
    embedding, full = (
        model.module.get_input_embeddings().weight
        for model in (pair.student, pair.teacher)
    )
    assert torch.equal(embedding, full)


def test_a_killed_healing_ends_with_the_weights_of_one_that_was_not(tmp_path):
    pairs = [pupil("bert", tmp_path / name) for name in ("whole", "killed")]
    lessons = lessons_of(open_corpus(TEXTS), pairs[0].teacher, seed=0)
    parts = lessons.learn, lessons.validation, PLAN
    whole = heal(pairs[0], *parts, tmp_path / "whole", Reporter())
    with pytest.raises(KeyboardInterrupt):
        heal(pairs[1], *parts, tmp_path / "killed", Interrupting(whole.steps // 2))
    with pytest.raises(LayerscopeError, match="of another healing"):
        other = replace(PLAN, seed=1)
        heal(pairs[1], *parts[:2], other, tmp_path / "killed", Reporter())
    fresh = pupil("bert", tmp_path / "killed")
    resumed = heal(fresh, *parts, tmp_path / "killed", Reporter())
    assert resumed == whole
    one, two = (pair.student.module.state_dict() for pair in (pairs[0], fresh))
    assert all(torch.equal(one[key], two[key]) for key in one)
    (tmp_path / "killed" / STATE).write_bytes(b"cut short")
    with pytest.raises(LayerscopeError, match="is damaged"):
        heal(fresh, *parts, tmp_path / "killed", Reporter())


def test_a_loss_that_is_not_finite_ends_it_and_the_best_weights_stay(tmp_path):
    pair = pupil("bert", tmp_path)
    lessons = lessons_of(open_corpus(TEXTS), pair.teacher, seed=0)
    before = distances_on(lessons.validation, pair)
    plan = replace(PLAN, learning_rate=1e30)
    done = heal(pair, lessons.learn, lessons.validation, plan, tmp_path, Reporter())
    assert "is NaN" in done.stopped and done.step < done.steps
    np.testing.assert_array_equal(distances_on(lessons.validation, pair), before)


def test_truncate_heals_what_it_writes(tmp_path):
    plain = tiny.saved(tiny.bert().base_model, tmp_path / "plain")
    tiny.sentence_encoder(plain).save_pretrained(str(tmp_path / "full"))
    (tmp_path / "texts.txt").write_text("\n".join(TEXTS))
    options = {"drop": [2], "progress": False}
    cut = layerscope.truncate(tmp_path / "full", out=tmp_path / "cut", **options)
    options |= {"heal": tmp_path / "texts.txt", "minutes": 0.2}
    healed = layerscope.truncate(tmp_path / "full", out=tmp_path / "healed", **options)
    assert not (tmp_path / "healed.healing").exists()
    assert "healed: 1 − cosine from" in (healed / "README.md").read_text()
    new = tiny.texts(50, seed=1)
    vectors = [
        SentenceTransformer(str(folder), device="cpu").encode(
            new, normalize_embeddings=True
        )
        for folder in (tmp_path / "full", cut, healed)
    ]
    kept = [(vectors[0] * others).sum(1).mean() for others in vectors[1:]]
    assert kept[1] > kept[0] + 0.01


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"heal": TEXTS[:20]}, "healing needs 50"),
        ({"heal": TEXTS, "format": "onnx"}, "leave `format` out"),
    ],
)
def test_what_cannot_be_healed(options, words, tmp_path):
    folder = tiny.saved(tiny.bert().base_model, tmp_path / "full")
    with pytest.raises(LayerscopeError, match=words):
        layerscope.truncate(folder, 2, out=tmp_path / "out", progress=False, **options)
    assert {path.name for path in tmp_path.iterdir()} == {"full"}
