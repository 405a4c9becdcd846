"""Columns that are not there, and labels that are none."""

import json

import pytest

LISTED = "(its columns: text, team)"
COLUMNS = [
    (
        ["--text-column", "txt"],
        f"{{}} has no column 'txt', did you mean text? {LISTED}",
    ),
    (["--text-column", ""], f"{{}} has no column '' {LISTED}"),
    (
        ["--label-column", "tem"],
        f"{{}} has no column 'tem', did you mean team? {LISTED}",
    ),
    (
        ["--label-column", "text"],
        "{}: column 'text' cannot hold both texts and labels: name another for one",
    ),
]


@pytest.mark.parametrize("options, message", COLUMNS)
def test_a_wrong_column(unprofiled, bert, tmp_path, options, message):
    path = tmp_path / "data.csv"
    path.write_text("text,team\nw1 w2,a\nw3,b\n")
    assert unprofiled(bert, path, *options) == message.format(path)


@pytest.mark.parametrize("option", ["--text-column", "--label-column"])
def test_a_column_of_what_has_none(unprofiled, bert, tmp_path, option):
    (tmp_path / "novel.txt").write_text("w1 w2\nw3\n")
    (tmp_path / "photos").mkdir()
    for place in (tmp_path / "novel.txt", tmp_path / "photos", "stdlib-docs"):
        line = unprofiled(bert, place, option, "team")
        assert line == f"{option} team: {place} has no columns, leave it out"


NO_CLASSES = (
    "no labels: column 'label' holds neither classes nor numbers (but lists or nothing)"
)
LABELS = {
    "missing": (
        ["a", None, "b", "a"],
        ["1 row without a label left out: 1", "the labels cannot be probed: {}"],
    ),
    "all missing": ([None] * 4, [NO_CLASSES]),
    "scores": (
        [0.5, 0.25, 0.1, 0.2],
        [
            "column 'label' holds numbers to predict, not classes: 4 differ",
            "the labels cannot be probed: it needs ten distinct samples whose numbers differ (label more)",
        ],
    ),
    "lists": ([[1], [2], [1], [2]], [NO_CLASSES]),
    "one each": (["a", "b", "c", "d"], ["the labels cannot be probed: {}"]),
}
PROBE = "it needs two classes with five distinct samples each (label more)"


@pytest.mark.parametrize("name", LABELS)
def test_labels_that_are_none_are_told_and_the_rest_goes_on(told, bert, tmp_path, name):
    labels, lines = LABELS[name]
    path = tmp_path / "data.jsonl"
    rows = [{"text": f"w{i} w1 w2", "label": label} for i, label in enumerate(labels)]
    path.write_text("\n".join(map(json.dumps, rows)))
    guesses = ["text column: 'text' (guessed)", "label column: 'label' (guessed)"]
    found = told(bert, path, "--views", 0)
    assert sorted(found) == sorted(guesses + [line.format(PROBE) for line in lines])


def test_of_drawn_samples_more_may_be_drawn(told, bert, tmp_path):
    path = tmp_path / "data.csv"
    rows = [f"w{i} w1 w2,{'ab'[i % 2]}" for i in range(20)]
    path.write_text("\n".join(["text,label", *rows]))
    lines = told(bert, path, "--views", 0, "--samples", 4)
    (line,) = (line for line in lines if "probed" in line)
    assert line.endswith("(take more --samples or label more)")


def test_a_named_label_column_of_no_classes_is_refused(unprofiled, bert, tmp_path):
    path = tmp_path / "data.jsonl"
    path.write_text('{"text": "w1", "score": [1]}\n{"text": "w2", "score": [2]}\n')
    line = f"{path}: column 'score' holds neither classes nor numbers (but lists or nothing): leave it out"
    assert unprofiled(bert, path, "--label-column", "score") == line
