"""Probes as tasks of `evaluate` on data or models that do not fit: one line, and nothing is written."""

import pandas as pd
import pytest
from typed import refused

import layerscope


def wrong(tmp_path, kind, **columns):
    path = tmp_path / "rows.csv"
    pd.DataFrame(columns).to_csv(path, index=False)
    return f"{kind}:{path}"


ONE = {"text": ["w1 w2", "w3"] * 6, "label": ["x"] * 12}
OWN = {"text": ["w1 w2", "w3"] * 6, "label": list("abcdefghijkl")}
BARE = {"text": ["w1 w2", "w3"] * 6}


@pytest.mark.parametrize(
    "kind, columns, line",
    [
        (
            "knn-probe",
            OWN,
            "rows: fewer than 2 classes have 5 samples: give more of each",
        ),
        (
            "knn-probe",
            BARE,
            "rows has no labels to probe: give a column label, or a sub-folder for each class",
        ),
        (
            "linear-prob",
            ONE,
            "task kind 'linear-prob' does not exist, did you mean linear-probe? (choose "
            "classification, clustering, knn-probe, linear-probe, lm, "
            "pairs, retrieval, sts, token-probe)",
        ),
        (
            "token-probe",
            ONE,
            "{} has no column 'tokens': it reads tokens and labels, two lists of equal length per "
            "row",
        ),
    ],
)
def test_wrong_data_are_refused_in_one_line(cli, tmp_path, kind, columns, line):
    task = wrong(tmp_path, kind, **columns)
    printed = cli("evaluate", "minilm", "--data", task, "--out", tmp_path / "out")
    assert printed.status == 2 and not (tmp_path / "out").exists()
    assert printed.line == line.format(task.partition(":")[2])


def test_models_that_do_not_fit_are_refused_in_one_line(vit, llama, texts, tmp_path):
    def line(model, tasks, **options):
        with refused() as caught:
            layerscope.evaluate(model, tasks, tmp_path / "out", **options)
        assert not (tmp_path / "out").exists()
        return str(caught.value)

    probe = f"linear-probe:{texts}"
    assert (
        line(vit, probe)
        == "this model reads images and the data are texts: give images, or a model of texts"
    )
    assert line(vit, ["linear-probe:digits", f"classification:{texts}"]) == (
        "tiny-vit reads no texts (image): give it probes, such as linear-probe:PATH"
    )
    assert (
        line(llama, probe, layers=[7])
        == "layer 7 does not exist: tiny-llama has the layers 0 to 3"
    )
    assert line(llama, [probe, probe]).startswith(
        "two tasks have the name 'topics (linear probe)'"
    )
    assert "did you mean topics.csv?" in line(llama, probe.replace("topics", "topic"))


def test_a_folder_of_other_things_is_no_folder_of_results(llama, texts, tmp_path):
    (tmp_path / "thesis.tex").write_text("mine")
    with refused(r"exists and holds no evaluation: name a new folder"):
        layerscope.evaluate(llama, f"knn-probe:{texts}", tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {"thesis.tex", "topics.csv"}
