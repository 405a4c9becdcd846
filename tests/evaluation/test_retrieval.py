"""Retrieval: own files, and mteb's own kinds, at every layer."""

import pandas as pd
import pytest
from evaluation.references import scores_by_mteb
from sentence_transformers import SentenceTransformer

import layerscope
from layerscope.evaluation.tasks import open_tasks
from layerscope.models.checks import embedded


@pytest.fixture
def answers(shared, tmp_path):
    """Paraphrases of STS as queries and answers, the unlike ones as documents that are none."""
    rows = pd.read_csv(shared / "data" / "stsbenchmark" / "test.csv")[:60]
    rows = rows.rename(columns={"text_a": "query", "text_b": "document"})
    rows.assign(score=(rows["score"] >= 3.5).astype(int)).to_csv(
        tmp_path / "answers.csv", index=False
    )
    return tmp_path / "answers.csv"


def test_a_file_of_answers_is_judged_as_mteb_judges_the_model_itself(answers):
    prompts = {
        "query": "the price of oil, a cat, and a man who plays: ",
        "document": "a woman, the weather and war: ",
    }
    plain, bare = (
        SentenceTransformer(embedded("minilm"), device="cpu", prompts=each)
        for each in (prompts, None)
    )
    task = {"retrieval": answers}
    score = scores_by_mteb(plain, task)["answers"]
    assert score != scores_by_mteb(bare, task)["answers"], "the prompts count"
    found = layerscope.evaluate(plain, task, layers=[0, 6])
    scores = found.table()["answers"]
    assert found.baseline()["answers"].item() == pytest.approx(score, abs=1e-3)
    assert scores[0] < scores[6] == pytest.approx(score, abs=1e-3)


def test_score_is_one_where_it_is_left_out_and_unanswered_queries_are_left_out(table):
    def opened(**columns):
        (task,) = open_tasks({"retrieval": table(**columns)})[0]
        return task.dataset["default"]["test"]

    data = opened(query=["a", "b", "b"], document=["x", "y", "x"])
    assert data["relevant_docs"] == {"q0": {"d0": 1}, "q1": {"d1": 1, "d0": 1}}
    assert len(data["corpus"]) == 2
    data = opened(query=["a", "b"], document=["x", "y"], score=[2, 0])
    assert data["relevant_docs"] == {"q0": {"d0": 2}} and len(data["corpus"]) == 2
    assert list(data["queries"]["text"]) == ["a"]
