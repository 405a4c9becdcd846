"""An evaluation in a terminal, in a notebook and as JSON."""

import json
import math

import pandas as pd
import pytest
from frames import M, N, scored, shipped
from typed import shown

import layerscope
from layerscope.scores import Evaluation, correlate, rules_table


def test_a_row_a_model_with_what_was_left_out(two_models):
    text = shown(two_models)
    rows = {
        line.split()[0]: line.split()
        for line in text.splitlines()
        if line[:2] in ("m ", "n ")
    }
    # first, mean, best (layer), last, oracle; layer 0 is not a candidate
    assert rows["m"][1:7] == ["10.00", "47.50", "80.00", "(2)", "40.00", "80.00"]
    assert rows["n"][1:7] == ["90.00", "40.00", "20.00", "(2)", "–", "20.00"]
    wanted = "n: left out with scores on fewer than 2 tasks: layer 3."
    assert wanted in text and "1 missing" in text


def test_names_say_what_tells_rows_apart():
    long = "0123456789abcdef0123456789abcdef01234567"
    one = scored({"a": M}, site="normed", pooling="mean")
    several = pd.concat([one, one.assign(revision=long), one.assign(site="raw")])
    text = shown(Evaluation(several))
    names = [line.split("  ")[0] for line in text.splitlines() if line.startswith("m@")]
    assert names == ["m@r normed", "m@0123456 normed", "m@r raw"]


def test_one_model_has_its_layers_by_task():
    rows = pd.concat([scored({"a": M, "b": N}), shipped(a=0.5, b=0.25)])
    rows["stderr"] = [0.0123, *[None] * 9]
    text = shown(Evaluation(rows), 80)
    table = text.partition("Layers by task, in %\n")[2].splitlines()
    assert table[0].split() == ["layer", "average", "a", "b"]
    assert [line.split() for line in table[2:7]] == [
        ["0", "50.00", "10.00", "±1.23", "90.00"],  # the highest on b, and no candidate
        ["1", "35.00", "60.00", "10.00"],
        ["2", "50.00", "◂", "80.00", "◂", "20.00"],
        ["3", "40.00", "40.00", "40.00", "◂"],
        ["as", "shipped", "37.50", "50.00", "25.00"],
    ]
    assert "± one standard error." in " ".join(text.split())
    assert max(map(len, text.splitlines())) <= 80
    rows["stderr"] = math.nan
    assert "±" not in shown(Evaluation(rows), 80)
    assert "Layers by task" not in shown(
        Evaluation(pd.concat([rows, scored({"a": M}, "n")]))
    )


def test_the_first_figure_is_the_average_by_layer():
    figure = Evaluation(scored({"a": M, "b": N})).plot()
    assert figure.data["value"].tolist()[:4] == pytest.approx([50, 35, 50, 40])


def line_of(text, begin):
    """Return the one line that begins so, as words."""
    (line,) = {line for line in text.splitlines() if line.startswith(begin)}
    return line.split()


def test_correlations_and_rules(two_models, lidar):
    whole = Evaluation(two_models.scores.fillna({"score": 0.4}))
    correlations = correlate(lidar, whole, statistics=["spearman", "pearson"])
    text = shown(whole, correlations=correlations, rules=rules_table(whole, lidar))
    words = line_of(text, "lidar")
    assert words == ["lidar", "d", "−1.00", "−1.00"]  # means over models
    one = Evaluation(whole.scores[whole.scores["model"] == "m"])
    alone = shown(one, correlations=correlate(lidar, one, statistics=["spearman"]))
    words = line_of(alone, "lidar")
    assert words == ["lidar", "d", "−1.00", "(−1.00", "…", "−1.00)"]
    words = line_of(text, "minimum lidar · d")
    # 80 less 40 in one model, nothing in the other
    assert words[-2:] == ["+20.00", "0.00"]
    assert "best of 12 rules looks better here than it is" in " ".join(text.split())


def test_json_holds_what_is_missing_as_null(two_models, lidar):
    rules = rules_table(two_models, lidar)
    correlations = correlate(lidar, two_models, statistics=["spearman"], bootstrap=0)
    found = two_models.as_dict(correlations=correlations, rules=rules)
    assert json.loads(json.dumps(found, allow_nan=False)) == found
    assert (
        found["missing"] == 1
        and found["summary"][1]["left_out"] == [3]
        and found["summary"][0]["baseline"] is None
    )
    assert [row["score"] for row in found["scores"]][-1] is None
    assert (
        found["correlations"][0]["estimate"] == pytest.approx(-1)
        and found["correlations"][0]["low"] is None
    )
    assert (
        found["rules"][0]["gain"] == pytest.approx(0.4)
        and found["rules"][0]["share"] is None
    )


def test_the_first_line_names_the_best_layer_its_error_and_what_it_wins():
    rows = pd.concat(
        [scored({"a": M, "b": [0.1, 0.2, 0.3, 0.7]}), shipped(a=0.4, b=0.3)]
    )
    found = Evaluation(rows.assign(stderr=0.03))
    line = "scores best on the average of 2 tasks: 55.00 ±2.12 %, +20.00 ±3.00 points against the model as shipped"
    answer = f"Layer 2 of 3 {line}"
    assert found.document().answer == answer == found.as_dict()["answer"]
    assert shown(found, 200).splitlines()[0] == answer
    one = Evaluation(scored({"a": M})).document().answer
    wanted = (
        "Layer 2 of 3 scores best on a: 80.00 %, +40.00 points against the last layer"
    )
    assert one == wanted
    equal = Evaluation(scored({"a": [0.1, 0.5, 0.5, 0.5]})).document().answer
    assert equal.startswith("No layer is measurably better than the last layer on a")


@pytest.mark.parametrize(
    "values, baseline, words",
    [
        (
            [0.9, 0.42, 0.43, 0.4],
            0.41,
            "No layer is measurably better than the model as shipped on a; "
            "the best one, 2, has 43.00 ±1.00 %, +2.00 ±1.41 points against the model as shipped; "
            "layer 0, the embedding output, has 90.00 % and is not a candidate",
        ),
        (
            [0.1, 0.2, 0.44, 0.4],
            0.4,
            "Layer 2 of 3 scores best on a: 44.00 ±1.00 %, +4.00 ±1.41 points against the model as shipped",
        ),
        (
            [0.1, 0.2, 0.42, 0.43],
            None,
            "Layer 3 of 3 scores best on a: 43.00 ±1.00 %",
        ),
    ],
)
def test_a_tie_is_called_one_by_the_judge_of_select(values, baseline, words):
    rows = [scored({"a": values}), *([] if baseline is None else [shipped(a=baseline)])]
    found = Evaluation(pd.concat(rows).assign(stderr=0.01))
    assert found.document().answer == words
    chosen = layerscope.select(found, cost=False)
    assert chosen.as_shipped == (not words.startswith("Layer 2"))


def test_of_several_models_the_first_line_counts_those_whose_best_layer_is_another():
    many = pd.concat(
        [scored({"a": [0.1, 0.5 + i / 100, 0.4]}, f"m{i}") for i in range(5)]
    )
    line = "in 5 of 5 models: +12.00 points on average, most for m4: +14.00 points"
    assert (
        Evaluation(many).document().answer
        == f"A layer before the last scores best on average {line}"
    )
    last = pd.concat([scored({"a": [0.1, 0.2]}, model) for model in "mn"])
    assert (
        Evaluation(last).document().answer
        == "The last layer scores best on average in each of 2 models"
    )
