"""`select` chooses a layer and its dimensions: within one standard error, within bounds, judged apart, then shipped."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import layerscope
from layerscope.core.errors import LayerscopeError
from layerscope.core.options import checked
from layerscope.scores.evaluation import ModelOrigin
from layerscope.selection.selection import open_selection
from layerscope.truncation.cutting import resolved
from layerscope.truncation.truncator import truncate


def evaluation(score: Callable[[int, int | None, int], float], tasks: int = 1) -> layerscope.Evaluation:
    """Scores of layers 0 to 3 at 16, 32 and all 64 dimensions, by layer, dimensions and task."""
    rows = []
    for task in range(tasks):
        same = {"model": "m", "site": "raw", "pooling": "mean", "task": f"t{task}", "stderr": 0.01}
        for layer in range(4):
            for dim in (None, 16, 32):
                kind = {"kind": "prefix" if dim else "layer", "dims": dim}
                rows.append(same | kind | {"layer": layer, "score": score(layer, dim, task)})
        rows.append(same | {"site": None, "pooling": None, "kind": "baseline", "score": score(3, None, task)})
        rows.append(same | {"kind": "PCA", "layer": 1, "dims": 16, "score": 0.99})
    found = layerscope.Evaluation(pd.DataFrame(rows))
    found.origins = {"m": ModelOrigin(None, 3, 64)}
    return found


def by_hand(layer: int, dim: int | None, task: int) -> float:
    """Layer 2 is best; of it 32 dimensions are within one error, and 16 are not."""
    return [0.5, 0.7, 0.8, 0.78][layer] - {None: 0.0, 32: 0.008, 16: 0.05}[dim] + 0.001 * task


def select(scores: layerscope.Evaluation, **options: object):
    return layerscope.select(scores, cost=False, progress=False, **options)


def test_the_shallowest_layer_and_its_fewest_dimensions(tmp_path: Path):
    found = select(evaluation(by_hand))
    assert (found.layer, found.dim, found.width, found.as_shipped) == (2, 32, 64, False)
    assert found.chosen.score == pytest.approx(0.792)
    assert found.gain == pytest.approx(0.792 - 0.78), "against the model as shipped, at all dimensions"
    assert found.why == (
        "the shallowest layer, at its fewest dimensions, within one standard error (of the best score) of the best, "
        "layer 2"
    )
    assert "layer 2 of 3 at 32 of 64 dimensions" in found.document().answer
    assert found.document().answer.endswith("128 MB per million vectors, not 256")
    shipped = "layerscope truncate m --layer 2 --dim 32 --format sentence-transformers --pooling mean "
    assert found.document().commands == (f"{shipped}--out m-layer2-dim32",)
    opened = open_selection(found.save(tmp_path / "choice"))
    assert (opened.chosen, opened.cuts, opened.what) == (found.chosen, found.cuts, found.what)
    asked, _ = resolved(checked(truncate, {"given": found, "out": tmp_path / "out"}))
    assert (asked.layers, asked.dim) == ([2], 32)
    asked, _ = resolved(checked(truncate, {"given": found, "out": tmp_path / "out", "layer": 3, "layers": [3]}))
    assert asked.dim is None, "the dimensions are those of the layer that was chosen"


def test_a_bound_on_dimensions():
    scores = evaluation(by_hand)
    found = select(scores, max_dim=16)
    assert (found.layer, found.dim, found.gain) == (2, 16, pytest.approx(0.75 - 0.78))
    assert select(scores, max_dim=63).dim == 32
    assert select(scores, max_dim=64).dim == 32
    assert select(evaluation(lambda *at: by_hand(*at) - (at[1] is not None))).dim is None
    assert select(scores, rule="best", max_dim=64).dim is None, "all 64 are within it"
    assert select(scores, max_loss=4.0).dim == 16
    with pytest.raises(LayerscopeError, match="no layer has scores at 8 dimensions or fewer: the fewest are 16"):
        select(scores, max_dim=8)
    plain = layerscope.Evaluation(scores.scores[scores.scores["kind"].isin(["layer", "baseline"])])
    with pytest.raises(LayerscopeError, match="no layer has scores at 16 dimensions or fewer: evaluate with `dims`"):
        select(plain, max_dim=16)


def test_several_tasks_are_paired_and_judged_apart():
    rng = np.random.default_rng(0)
    noise = {(layer, dim): rng.normal(0, 0.02, 6) for layer in range(4) for dim in (None, 16, 32)}
    scores = evaluation(lambda layer, dim, task: by_hand(layer, dim, task) + noise[layer, dim][task], tasks=6)
    found = select(scores)
    columns = [(layer, dim) for layer in (1, 2, 3) for dim in (16, 32, None)]
    values = np.array([
        [by_hand(*at, task) + noise[at][task] for at in columns] for task in range(6)
    ])  # fmt: skip
    shipped = values[:, -1]
    values = np.c_[values, shipped]

    def choose(part: np.ndarray) -> int:
        best = int(part.mean(0).argmax())
        for column in range(part.shape[1]):
            apart = part[:, best] - part[:, column]
            if column == best or apart.mean() <= apart.std(ddof=1) / np.sqrt(len(apart)):
                return column
        raise AssertionError

    assert (found.layer, found.dim) == columns[choose(values)]
    led = [choose(np.delete(values, task, 0)) for task in range(6)]
    judged = values[np.arange(6), led]
    assert found.apart.score == pytest.approx(judged.mean())
    assert found.gain == pytest.approx((judged - shipped).mean())
    assert found.gain_error == pytest.approx((judged - shipped).std(ddof=1) / np.sqrt(6))
    alone = found.by_task[0]
    assert alone.dim in (16, 32, None)
    assert "at 32 dimensions" in " ".join(found.document().reasons) or found.dim is None


def test_without_dims_nothing_changes():
    scores = evaluation(by_hand)
    plain = layerscope.Evaluation(scores.scores[scores.scores["kind"].isin(["layer", "baseline"])])
    found = select(plain)
    assert (found.layer, found.dim, found.cuts) == (2, None, ())
    assert "dim" not in found.document().answer
    assert found.why == "the best score; no shallower layer comes within one standard error of it"
    assert not [part for part in found.document().parts if part.name == "dims"]


def test_the_table_marks_the_choice():
    (table,) = [part for part in select(evaluation(by_hand)).document().parts if part.name == "dims"]
    assert [column.title for column in table.columns] == ["layer", "16", "32", "all"]
    assert [[cell.marked for cell in row.cells] for row in table.rows][2] == [False, False, True, False]
    assert sum(cell.marked for row in table.rows for cell in row.cells) == 1
