"""Tasks of `evaluate` on data or models that do not fit: one line, and nothing is written."""

import pytest
from typed import refused

import layerscope
from layerscope.evaluation.kinds import kind_names

TEXTS = {"text": ["w1 w2", "w3"] * 6}
ANSWERS = {"query": ["a", "b"], "document": ["x", "y"]}
NEEDED = "it reads tokens and labels, two lists of equal length per row"
CLASSES = "give a column label, or a sub-folder for each class"


@pytest.mark.parametrize(
    "kind, columns, line",
    [
        (
            "classification",
            {"text": ["a", "b"], "label": ["x", "x"]},
            "every row has the label 'x'",
        ),
        (
            "classification",
            {"text": ["a", "b"], "label": ["x", "y"]},
            "a different label",
        ),
        (
            "sts",
            {"text_a": ["a", "b"], "text_b": ["a", ""], "score": [1, 2]},
            "row 1 has no text_b: fill it in",
        ),
        ("retrieval", ANSWERS | {"score": [0, 0]}, "no document has a score above 0"),
        ("retrieval", ANSWERS | {"score": [1, 0.5]}, "row 1 has the score"),
        (
            "retrieval",
            ANSWERS | {"query": ["a", " "]},
            "row 1 has no query: fill it in, or leave the row out",
        ),
        (
            "retrieval",
            {"question": ["a"], "document": ["x"]},
            "has no column 'query': it needs query, document and has question",
        ),
        (
            "knn-probe",
            TEXTS | {"label": list("abcdefghijkl")},
            "rows: fewer than 2 classes have 5 samples: give more of each",
        ),
        ("knn-probe", TEXTS, f"rows has no labels to probe: {CLASSES}"),
        (
            "linear-prob",
            TEXTS,
            "task kind 'linear-prob' does not exist, did you mean linear-probe? "
            f"(choose {', '.join(kind_names())})",
        ),
        ("token-probe", TEXTS, f"/rows.csv has no column 'tokens': {NEEDED}"),
    ],
)
def test_wrong_data_are_refused_in_one_line(
    refusal, table, tmp_path, kind, columns, line
):
    task = f"{kind}:{table(**columns)}"
    assert line in refusal(
        "evaluate", "minilm", "--data", task, "--out", tmp_path / "out"
    )


def test_models_that_do_not_fit_are_refused_in_one_line(vit, llama, texts, tmp_path):
    probe = f"linear-probe:{texts}"
    for model, tasks, line in (
        (
            vit,
            probe,
            "this model reads images and the data are texts: give images, or a model of texts",
        ),
        (
            vit,
            ["linear-probe:digits", f"classification:{texts}"],
            r"tiny-vit reads no texts \(image\): give it probes, such as linear-probe:PATH",
        ),
        (llama, [probe, probe], r"two tasks have the name 'topics \(linear probe\)'"),
        (llama, probe.replace("topics", "topic"), r"did you mean topics.csv\?"),
    ):
        with refused(line):
            layerscope.evaluate(model, tasks, tmp_path / "out")
        assert not (tmp_path / "out").exists()
