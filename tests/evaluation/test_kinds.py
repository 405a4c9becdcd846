"""Kinds of tasks: one file each, known by its name; the one in the guide works as it stands there."""

import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import tiny
from sklearn.model_selection import StratifiedKFold, cross_val_score
from sklearn.neighbors import NearestCentroid

import layerscope
from layerscope.cli.choose import FILES as HELP
from layerscope.evaluation import kinds
from layerscope.evaluation.kinds import kind_names, kind_of

GUIDE = Path(__file__).parents[2] / "docs" / "guides" / "add-a-task.md"


def test_every_kind_has_the_name_of_its_file_and_says_what_it_reads_and_scores():
    for name in kind_names():
        kind = kind_of(name)
        assert kind.name == name and kind.reads and kind.score and name in HELP.help


@pytest.fixture
def guide(tmp_path, monkeypatch):
    """The kinds in the guide, each a file in a folder of kinds."""
    blocks = re.findall(r"```python\n(.*?)```", GUIDE.read_text(), re.DOTALL)
    for block in blocks:
        if path := re.match(r"# layerscope/evaluation/kinds/(\w+\.py)", block):
            (tmp_path / path[1]).write_text(block)
    monkeypatch.setattr(kinds, "__path__", [*kinds.__path__, str(tmp_path)])


def test_the_table_in_the_guide_is_judged_by_mteb(bert, guide):
    texts = tiny.texts(20)
    twins = pd.DataFrame({"text_a": texts, "text_b": texts})
    found = layerscope.evaluate(bert, {"bitext": twins}, layers=[1])
    assert found.table().loc[1, "frame"] == 1, "each text finds itself"


def test_the_probe_in_the_guide_is_that_of_scikit_learn(bert, guide, tmp_path):
    texts = tiny.texts(60)
    labels = np.array(["short", "long"])[
        np.argsort(np.argsort([*map(len, texts)])) // 30
    ]
    frame = pd.DataFrame({"text": texts, "label": labels})
    run = layerscope.profile(bert, frame, pooling="mean", out=tmp_path / "run")
    task = {"centroid-probe": frame}
    found = layerscope.evaluate(bert, task, seed=3, pooling="mean")
    folds = StratifiedKFold(5, shuffle=True, random_state=3)
    for layer in run.layers:
        rows = run.pooled(layer).astype(np.float64)
        rows /= np.linalg.norm(rows, axis=1, keepdims=True)
        hits = cross_val_score(NearestCentroid(), rows, labels, cv=folds)
        assert found.table().loc[layer].item() == pytest.approx(
            np.average(hits), abs=1e-9
        )
    alike = kind_of("centroid-probe").probe(np.ones((60, 4)), labels, seed=3)
    assert alike.mean == 0.5, "a layer that does not vary has a score"
