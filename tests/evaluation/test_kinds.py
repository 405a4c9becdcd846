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


def test_the_kind_in_the_guide_is_one_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    blocks = re.findall(r"```python\n(.*?)```", GUIDE.read_text(), re.DOTALL)
    (code,) = [block for block in blocks if block.startswith("# layerscope/evaluation/kinds/")]
    (tmp_path / "centroid_probe.py").write_text(code)
    monkeypatch.setattr(kinds, "__path__", [*kinds.__path__, str(tmp_path)])
    texts = tiny.texts(60)
    labels = np.array(["short", "long"])[np.argsort(np.argsort([*map(len, texts)])) // 30]
    frame = pd.DataFrame({"text": texts, "label": labels})
    model, tokenizer = tiny.bert(), tiny.tokenizer(special=True)
    options = {"processor": tokenizer, "pooling": "mean", "progress": False}
    run = layerscope.profile(model, frame, **options, out=tmp_path / "run")
    found = layerscope.evaluate(model, {"centroid-probe": frame}, seed=3, **options)
    folds = StratifiedKFold(5, shuffle=True, random_state=3)
    for layer in run.layers:
        rows = run.pooled(layer).astype(np.float64)
        rows /= np.linalg.norm(rows, axis=1, keepdims=True)
        hits = cross_val_score(NearestCentroid(), rows, labels, cv=folds)
        assert found.table().loc[layer].item() == pytest.approx(np.average(hits), abs=1e-9)
