"""Retrieval: own files, and mteb's own kinds, at every layer."""

import pandas as pd
import pytest

import layerscope
from layerscope.evaluation.tasks import open_tasks

mteb = pytest.importorskip("mteb")


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
    from sentence_transformers import SentenceTransformer

    from layerscope.models.checks import embedded

    prompts = {
        "query": "the price of oil, a cat, and a man who plays: ",
        "document": "a woman, the weather and war: ",
    }
    plain = SentenceTransformer(embedded("minilm"), device="cpu", prompts=prompts)
    found = layerscope.evaluate(plain, f"retrieval:{answers}", layers=[0, 6])
    task = open_tasks({"retrieval": answers})[0][0]
    result = mteb.evaluate(
        plain, task, cache=None, co2_tracker=False, show_progress_bar=False
    ).task_results[0]
    bare = SentenceTransformer(embedded("minilm"), device="cpu")
    without = mteb.evaluate(
        bare, task, cache=None, co2_tracker=False, show_progress_bar=False
    ).task_results[0]
    assert result.get_score() != without.get_score()  # the prompts count
    assert found.baseline()["answers"].item() == pytest.approx(
        result.get_score(), abs=1e-3
    )
    assert found.table().loc[6, "answers"] == pytest.approx(
        result.get_score(), abs=1e-3
    )
    assert found.table().loc[0, "answers"] < found.table().loc[6, "answers"]


def written(folder, **columns):
    pd.DataFrame(columns).to_csv(folder / "rows.csv", index=False)
    return str(folder / "rows.csv")


def test_score_is_one_where_it_is_left_out_and_unanswered_queries_are_left_out(
    tmp_path,
):
    columns = {"query": ["a", "b", "b"], "document": ["x", "y", "x"]}
    task = open_tasks({"retrieval": written(tmp_path, **columns)})[0][0]
    data = task.dataset["default"]["test"]
    assert (
        data["relevant_docs"] == {"q0": {"d0": 1}, "q1": {"d1": 1, "d0": 1}}
        and len(data["corpus"]) == 2
    )
    columns = {"query": ["a", "b"], "document": ["x", "y"], "score": [2, 0]}
    task = open_tasks({"retrieval": written(tmp_path, **columns)})[0][0]
    data = task.dataset["default"]["test"]
    assert data["relevant_docs"] == {"q0": {"d0": 2}} and len(data["corpus"]) == 2
    assert list(data["queries"]["text"]) == ["a"]


@pytest.mark.parametrize(
    "columns, line",
    [
        (
            {"query": ["a", "b"], "document": ["x", "y"], "score": [0, 0]},
            "no document has a score above 0",
        ),
        (
            {"query": ["a", "b"], "document": ["x", "y"], "score": [1, 0.5]},
            "row 1 has the score",
        ),
        (
            {"query": ["a", " "], "document": ["x", "y"]},
            "row 1 has no query: fill it in, or leave the row out",
        ),
        (
            {"question": ["a"], "document": ["x"]},
            "has no column 'query': it needs query, document and has question",
        ),
    ],
)
def test_a_file_of_answers_that_cannot_be_judged_is_refused_in_one_line(
    cli, tmp_path, columns, line
):
    assert (
        line
        in cli(
            "evaluate", "minilm", "--data", f"retrieval:{written(tmp_path, **columns)}"
        ).line
    )
