"""What was scored is what is shipped: a truncated model's own scores are its layer's."""

from pathlib import Path

import pytest
from tiny import one_thread

import layerscope
from layerscope.evaluation import task_from_file

__all__ = ["one_thread"]
FILES = [("classification", "trec"), ("sts", "stsbenchmark")]


def test_a_truncated_model_scores_as_its_layer_did(shared: Path, tmp_path: Path):
    mteb = pytest.importorskip("mteb")
    from sentence_transformers import SentenceTransformer

    def tasks() -> list[object]:
        return [task_from_file(kind, shared / "data" / name, samples=100) for kind, name in FILES]

    scores = layerscope.evaluate(
        "minilm", tasks(), layers=[3], device="cpu", progress=False
    ).table()
    small = layerscope.truncate("minilm", 3, tmp_path / "small", progress=False)
    model = SentenceTransformer(str(small), device="cpu")
    for result in mteb.evaluate(
        model, tasks(), cache=None, co2_tracker=False, show_progress_bar=False
    ).task_results:
        assert scores.loc[3, result.task_name] == pytest.approx(result.get_score(), abs=1e-3)
