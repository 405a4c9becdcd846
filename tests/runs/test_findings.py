"""Which layer reads the labels best, and what else stands out, in sentences."""

import math

import numpy as np
import pandas as pd
import pytest

import layerscope
from layerscope.core.labels import WHOLE
from layerscope.profiling.source import FOLDS
from layerscope.runs.curves import curves
from layerscope.runs.findings import findings as sentences

BEST = {
    "clearly better": ([0.5, 0.6, 0.9, 0.8, 0.7], 0.02, 2, False, "use layer 2 of 4: it reads"),
    "within the error": ([0.5, 0.6, 0.72, 0.7, 0.7], 0.02, 2, True, "no layer is measurably better"),
    "intervals overlap": ([0.5, 0.9, 0.918, 0.6, 0.796], 0.035, 2, False, "use layer 2 of 4"),
    "the last": ([0.5, 0.6, 0.7, 0.65, 0.9], 0.01, 4, False, "keep the whole model: its last layer"),
    "a tie with the last": ([0.5, 0.6, 0.9, 0.65, 0.9], 0.01, 4, True, "best, layers 2 and 4, has"),
    "a tie before the last": ([0.5, 0.9, 0.7, 0.9, 0.6], 0.01, 1, False, "use layer 1 of 4"),
    "all alike": ([0.5, 0.433, 0.433, 0.433, 0.433], 0.01, None, True, "every layer from 1 on reads"),
    "an unknown error": ([0.5, 0.6, 0.9, 0.8, 0.7], math.nan, 2, None, "how sure that is, is not known"),
    "below chance": ([0.3, 0.41, 0.3, 0.38, 0.3], 0.06, None, True, "no layer reads the labels above chance"),
    "layer 0 is no candidate": ([0.95, 0.6, 0.7, 0.65, 0.6], 0.01, 2, False, "use layer 2 of 4"),
}  # fmt: skip


def findings(run):
    return sentences(run, curves(run))


def named(found, name):
    return [f for f in found if f.name == name]


@pytest.mark.parametrize("probe", ["linear_probe", "knn_probe"])
@pytest.mark.parametrize("case", BEST)
def test_the_layer_that_reads_the_labels_best(written, by_layer, case, probe):
    values, error, layer, within, words = BEST[case]
    run = written(by_layer(probe, values, [error] * 5, pooling="mean"))
    (found,) = findings(run)
    assert (found.numbers["layer"], found.numbers["within_error"]) == (layer, within)
    assert words in found.text and found.answer in (
        run.document().answer,
        run.as_dict()["answer"],
    )
    if case == "below chance":
        assert found.text.startswith(found.answer), "another probe may read them"
    assert found.numbers["last"] == values[4] and found.numbers["value"] == max(
        values[1:]
    )
    assert (
        f"always guessing the most frequent label gives {100 / 3:.1f} %" in found.text
    )


@pytest.mark.parametrize("upset, within", [(3, True), (12, False)])
def test_two_layers_are_paired_over_the_samples(written, by_layer, upset, within):
    """Of 200 samples layer 2 gets a few right that the last gets wrong: by unpaired errors no number of them tells."""
    right = np.arange(200) < 140
    better = right | (np.arange(200) < 140 + upset)
    hits = [right & (np.arange(200) < 60), better, right]
    values = [hit.mean() for hit in (right, *hits)]
    run = written(
        by_layer("linear_probe", values, [0.03] * 4, pooling="mean", n=200), depth=3
    )
    kept = [
        pd.DataFrame(
            {"sample": np.arange(200), "metric": "linear_probe", "pooling": "mean", "layer": layer,
             "site": "raw", "value": hit.astype(float), "variant": None}
        )
        for layer, hit in enumerate(hits, 1)
    ]  # fmt: skip
    run.folder.write_table("samples.probes", pd.concat(kept))
    (found,) = named(findings(run), "best_layer")
    assert found.numbers["within_error"] is within
    answer = run.document().answer
    assert answer.startswith("No layer is measurably" if within else "Use layer 2 of 3")


def test_a_real_run_and_select_judge_by_one_margin(labelled):
    (found,) = named(findings(labelled), "best_layer")
    accuracy = labelled.metric("linear_probe")
    assert found.numbers["last"] == accuracy[3]
    assert found.numbers["value"] == accuracy.drop(0).max()
    chosen = layerscope.select(labelled, cost=False)
    ties = "within the margin" in labelled.document().answer
    assert ties == bool(chosen.within) and chosen.as_shipped == ties


def test_of_a_sample_the_whole_is_named(written, by_layer):
    run = written(
        by_layer("linear_probe", [0.5, 0.6, 0.7, 0.65, 0.9], [0.01] * 5, n=50),
        drawn_from=1422,
    )
    answer = "Keep the whole model: its last layer reads 50 of your 1,422 labels best"
    assert run.document().answer.startswith(answer)
    assert "60 of 1,422 samples" in run.document().facts


def test_too_few_labels_name_no_layer(written, by_layer):
    run = written(by_layer("linear_probe", [0.4, 0.6, 0.9, 0.8, 0.7], [0.01] * 5, n=12))
    assert run.document().answer.startswith(
        "No layer is named: only 12 samples, 3 classes"
    )
    assert not any("select" in command for command in run.document().commands)


def test_the_most_frequent_label_is_what_accuracy_is_measured_against(
    written, by_layer
):
    run = written(by_layer("linear_probe", [0.3, 0.6, 0.9, 0.5], [0.02] * 4), depth=3)
    plan = run.folder.plan
    originals = plan.index[plan["view"] == 0]
    for among, share in (
        ([0] * 36 + [1] * 20 + [2] * 4, 36 / 56),
        ([0] * 30 + [1] * 30, 0.5),
    ):
        plan.loc[originals, "label"] = among
        plan.loc[plan["view"] != 0, "label"] = 1
        assert findings(run)[0].numbers["chance"] == share
    run.folder.plan.drop(columns="label", inplace=True)
    assert findings(run)[0].numbers["above_chance"] is None


@pytest.mark.parametrize(
    "values, error, layer, interior",
    [
        ([3.0, 2.5, 2.0, 2.4, 2.6], 0.1, 2, True),
        ([3.0, 2.5, 2.4, 2.3, 2.0], 0.1, 4, False),  # the end of the stack
        ([1.0, 2.5, 2.0, 2.3, 2.6], 0.1, 2, False),  # lower still at layer 0
        ([2.4, 2.5, 2.3, 2.5, 2.4], 0.1, 2, False),  # flat within the error
        ([2.6, 3.5, 2.3, 3.5, 2.9], 0.15, 2, False),  # within the error of layer 0
    ],
)
def test_a_valley_of_prompt_entropy_lies_inside_the_stack(
    written, by_layer, values, error, layer, interior
):
    (found,) = findings(written(by_layer("prompt_entropy", values, [error] * 5)))
    assert found.numbers == {
        "layer": layer,
        "value": values[layer],
        "interior": interior,
    }
    assert ("a valley inside" in found.text) == interior and "best" not in found.text


@pytest.mark.parametrize(
    "to_last, layer",
    [
        ([0.1, 0.95, 0.92, 0.97, 1.0], 1),
        ([0.1, 0.95, 0.85, 0.97, 1.0], 3),
        ([math.nan, 0.95, math.nan, 0.97, 1.0], 3),
        ([0.1, 0.3, 0.85, 0.89, 1.0], None),
    ],
)
def test_where_the_cosine_to_the_last_layer_stays_high(written, pairs, to_last, layer):
    square = np.eye(5)
    square[:, -1] = to_last
    (found,) = findings(written(pairs("cosine_similarity", square)))
    words = (
        f"layer {layer} of 4 on" if layer else "No other layer has a cosine above 0.9"
    )
    assert found.numbers["layer"] == layer and words in found.text


def test_without_labels_the_first_line_is_an_observation(written, by_layer, pairs):
    rows = by_layer("prompt_entropy", [3.0, 2.0, 2.5], [0.01] * 3)
    rows += pairs("cosine_similarity", [[1, 0.5, 0.4], [0.5, 1, 0.95], [0.4, 0.95, 1]])
    answer = written(rows, depth=2).document().answer
    assert answer.startswith(
        "No labels were probed, so no layer is named: prompt entropy"
    )
    assert (
        "from layer 1 of 2 on, all are close to the last" in answer
        and "best" not in answer
    )


def test_a_run_without_a_value_says_so(written):
    assert (
        written([]).document().answer == "None of the chosen metrics has a value here"
    )


def test_samples_a_label_needs_are_the_folds_of_the_probes():
    assert FOLDS == WHOLE


def test_each_pooling_has_its_own_best_layer(written, by_layer):
    rows = by_layer(
        "linear_probe", [0.5, 0.9, 0.2, 0.2, 0.3], [0.01] * 5, pooling="mean"
    )
    rows += by_layer(
        "linear_probe", [0.5, 0.2, 0.2, 0.8, 0.3], [0.01] * 5, pooling="cls"
    )
    found = findings(written(rows, pooling=["mean", "cls"]))
    assert [(f.numbers["pooling"], f.numbers["layer"]) for f in found] == [
        ("mean", 1),
        ("cls", 3),
    ]
    assert "mean pooling" in found[0].text and "cls pooling" in found[1].text
