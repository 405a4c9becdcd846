"""Which layer reads the labels best, and what else stands out, in sentences."""

import math

import numpy as np
import pandas as pd
import pytest

import layerscope
from layerscope.inputs.corpus import WHOLE
from layerscope.profiling.source import FOLDS
from layerscope.runs.findings import findings


def named(found, name):
    return [f for f in found if f.name == name]


def test_a_better_layer_beyond_the_error(written, by_layer):
    run = written(by_layer("linear_probe", [0.5, 0.6, 0.9, 0.8, 0.7], [0.02] * 5))
    (found,) = findings(run)
    assert found.numbers["layer"] == 2 and found.numbers["within_error"] is False
    assert (
        "layer 2 reads the labels best, 90.0 ±2.0 % against 70.0 ±2.0 % at the last layer"
        in found.text
    )
    assert "; the difference exceeds the margin of error;" in found.text


def test_a_better_layer_within_the_error(written, by_layer):
    run = written(by_layer("linear_probe", [0.5, 0.6, 0.72, 0.7, 0.7], [0.02] * 5))
    (found,) = findings(run)
    assert found.numbers["within_error"] is True
    assert "; the difference is within the margin of error;" in found.text


@pytest.mark.parametrize(("upset", "within"), [(3, True), (12, False)])
def test_two_layers_are_paired_over_the_samples(written, by_layer, upset, within):
    """Of 200 samples layer 2 gets a few right that the last gets wrong: by unpaired errors no number of them tells."""
    right = np.arange(200) < 140
    better = right | (np.arange(200) < 140 + upset)
    hits = [right & (np.arange(200) < 60), better, right]
    values = [hit.mean() for hit in (right, *hits)]
    run = written(by_layer("linear_probe", values, [0.03] * 4, pooling="mean", n=200), depth=3)
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
    chosen = layerscope.select(labelled, cost=False, progress=False)
    ties = "within the margin" in labelled.document().answer
    assert ties == bool(chosen.within) and chosen.as_shipped == ties
    for layer in labelled.layers[1:-1]:
        row = chosen.layers[labelled.layers.index(layer)]
        hits = labelled.folder.read_table("samples.probes")
        hits = hits[(hits["metric"] == "linear_probe") & (hits["pooling"] == "mean")]
        one, last = (
            hits[hits["layer"] == which].set_index("sample")["value"]
            for which in (layer, labelled.depth)
        )
        assert row.difference == pytest.approx((one - last).mean())
        assert row.difference_error == pytest.approx((one - last).sem())


def test_overlapping_intervals_are_no_test_of_a_difference(written, by_layer):
    (found,) = findings(
        written(by_layer("linear_probe", [0.5, 0.918, 0.796], [0.05, 0.028, 0.041]), depth=2)
    )
    assert found.numbers["within_error"] is False
    assert (
        "91.8 ±2.8 % against 79.6 ±4.1 % at the last layer; the difference exceeds the margin of error"
        in found.text
    )


def test_the_last_layer_can_be_the_best(written, by_layer):
    (found,) = findings(written(by_layer("linear_probe", [0.5, 0.6, 0.7, 0.65, 0.9], [0.01] * 5)))
    assert found.text.startswith(
        "Linear probe: the last layer reads the labels best, 90.0 ±1.0 %; next best from layer 1 on is layer 2, with "
        "70.0 ±1.0 %; the difference exceeds"
    )
    assert found.numbers["layer"] == 4 and found.numbers["within_error"] is False


def test_of_a_sample_the_whole_is_named(written, by_layer):
    run = written(
        by_layer("linear_probe", [0.5, 0.6, 0.7, 0.65, 0.9], [0.01] * 5, n=50), drawn_from=1422
    )
    assert run.document().answer.startswith(
        "Keep the whole model: its last layer reads 50 of your 1,422 labels best"
    )
    assert "60 of 1,422 samples" in run.document().facts


@pytest.mark.parametrize(
    ("values", "words", "layer"),
    [
        (
            [0.5, 0.6, 0.9, 0.65, 0.9],
            "layers 2 and 4 tie for the best at 90.0 ±1.0 %; always guessing the most",
            4,
        ),
        (
            [0.5, 0.6, 0.918, 0.918, 0.918],
            "layers 2 to 4 tie for the best at 91.8 ±1.0 %; always guessing the most",
            4,
        ),
        (
            [0.5, 0.9, 0.7, 0.9, 0.6],
            "layers 1 and 3 tie for the best at 90.0 ±1.0 % against 60.0 ±1.0 % at the",
            1,
        ),
        (
            [0.5, 0.433, 0.433, 0.433, 0.433],
            "every layer from 1 on reads the labels alike, 43.3 ±1.0 %",
            None,
        ),
        ([0.433] * 5, "every layer reads the labels alike, 43.3 ±1.0 %", None),
    ],
)
def test_ties_are_told(written, by_layer, values, words, layer):
    (found,) = findings(written(by_layer("linear_probe", values, [0.01] * 5)))
    assert words in found.text and found.numbers["layer"] == layer


def test_the_most_frequent_label_is_what_accuracy_is_measured_against(written, by_layer):
    run = written(by_layer("linear_probe", [0.3, 0.6, 0.9, 0.5], [0.02] * 4), depth=3)
    plan = run.folder.plan
    originals = plan.index[plan["view"] == 0]
    for among, share in (([0] * 36 + [1] * 20 + [2] * 4, 100 * 36 / 56), ([0] * 30 + [1] * 30, 50)):
        plan.loc[originals, "label"] = among
        plan.loc[plan["view"] != 0, "label"] = 1
        (found,) = findings(run)
        assert f"always guessing the most frequent label gives {share:.1f} %." in found.text
    run.folder.plan.drop(columns="label", inplace=True)
    assert (
        "most frequent" not in findings(run)[0].text
        and findings(run)[0].numbers["above_chance"] is None
    )


def test_samples_a_label_needs_are_the_folds_of_the_probes():
    assert FOLDS == WHOLE


@pytest.mark.parametrize("start", [0.3, 0.9])
def test_below_chance_no_layer_is_the_best(written, by_layer, start):
    run = written(by_layer("linear_probe", [start, 0.41, 0.30, 0.38], [0.06] * 4), depth=3)
    (found,) = findings(run)
    words = "no layer" if start == 0.3 else "no layer from 1 on"
    assert found.text.startswith(
        f"Linear probe: {words} reads the labels above chance: the highest has 41.0 ±6.0 %, "
        "and always guessing the most frequent label gives 33.3 %."
    )
    assert ("Layer 0, what the first block reads, has 90.0" in found.text) == (start == 0.9)
    assert (
        "best" not in found.text
        and found.numbers["layer"] is None
        and found.numbers["above_chance"] is False
    )


def test_another_best_layer_by_knn_is_told(written, by_layer):
    linear = by_layer("linear_probe", [0.5, 0.6, 0.9, 0.7], [0.02] * 4)
    for values, words in (
        ([0.5, 0.8, 0.7, 0.6], " The kNN probe is best at layer 1, 80.0 ±3.0 %."),
        ([0.5, 0.6, 0.8, 0.6], ""),
        ([0.5, 0.38, 0.35, 0.3], ""),
    ):
        (found,) = findings(written(linear + by_layer("knn_probe", values, [0.03] * 4), depth=3))
        assert found.text.endswith(f"label gives 33.3 %.{words} Judged: 50 samples, 3 classes.")


def test_layer_0_is_told_but_is_no_candidate(written, by_layer):
    (found,) = findings(written(by_layer("knn_probe", [0.95, 0.6, 0.7, 0.65, 0.6], [0.01] * 5)))
    assert found.numbers["layer"] == 2
    assert (
        "Layer 0, what the first block reads, has 95.0 ±1.0 % and is not a candidate" in found.text
    )


def test_each_pooling_has_its_own_best_layer(written, by_layer):
    rows = by_layer("linear_probe", [0.5, 0.9, 0.2, 0.2, 0.3], [0.01] * 5, pooling="mean")
    rows += by_layer("linear_probe", [0.5, 0.2, 0.2, 0.8, 0.3], [0.01] * 5, pooling="cls")
    found = findings(written(rows, pooling=["mean", "cls"]))
    assert [(f.numbers["pooling"], f.numbers["layer"]) for f in found] == [("mean", 1), ("cls", 3)]
    assert "mean pooling" in found[0].text and "cls pooling" in found[1].text


@pytest.mark.parametrize(
    ("values", "words", "interior"),
    [
        (
            [3.0, 2.5, 2.0, 2.4, 2.6],
            "a valley inside the stack, between 3.00 at layer 0 and 2.60 at the last layer",
            True,
        ),
        ([3.0, 2.5, 2.4, 2.3, 2.0], "the end of the stack: no valley", False),
        ([1.0, 2.5, 2.0, 2.3, 2.6], "lower still at layer 0 (1.00): no valley", False),
    ],
)
def test_the_valley_of_prompt_entropy(written, by_layer, values, words, interior):
    (found,) = findings(written(by_layer("prompt_entropy", values, [0.1] * 5)))
    assert words in found.text and found.numbers["interior"] is interior
    assert "best" not in found.text


@pytest.mark.parametrize(
    ("values", "error", "words"),
    [
        (
            [2.4, 2.5, 2.3, 2.5, 2.4],
            0.1,
            "is flat within the error: highest at layer 1 (2.50), lowest at layer 2 of 4 (2.30",
        ),
        (
            [2.6, 3.5, 2.3, 3.5, 2.9],
            0.15,
            "within the error of layer 0: no valley inside the stack",
        ),
        (
            [2.4, 3.5, 2.3, 3.5, 2.4],
            0.15,
            "within the error of layer 0 and the last layer: no valley",
        ),
        (
            [2.3004, 2.5, 2.3, 2.5, 2.3002],
            0.02,
            "(2.3000 ±0.02 nats), between 2.3004 at layer 0 and 2.3002 at the last",
        ),
        ([1.0, 2.5, 2.49, 2.5, 2.5], 0.1, "and lower still at layer 0 (1.00): no valley"),
        ([2.3, 2.5, 2.3, 2.5, 2.4], 0.01, "and as low at layer 0 (2.30): no valley"),
    ],
)
def test_a_dip_within_the_error_is_no_valley(written, by_layer, values, error, words):
    (found,) = findings(written(by_layer("prompt_entropy", values, [error] * 5)))
    assert words in found.text and found.numbers["interior"] is False


def test_without_an_error_a_valley_is_not_sure(written, by_layer):
    (found,) = findings(written(by_layer("prompt_entropy", [3.0, 2.5, 2.0, 2.4, 2.6])))
    assert found.numbers["interior"] is True and found.text.endswith(
        "the error of the difference is unknown."
    )


def test_which_of_several_variants_or_poolings_is_told(written, by_layer, pairs):
    rows = [
        r
        for a in (1, 2)
        for r in by_layer("prompt_entropy", [3.0, 2, 3], [0.1] * 3, variant=f"alpha={a}")
    ]
    rows += [
        r for p in ("position", "mean") for r in pairs("cosine_similarity", np.eye(3), pooling=p)
    ]
    texts = [f.text for f in findings(written(rows, depth=2))]
    assert texts[0].startswith("Prompt entropy (alpha=1) is lowest at layer 1")
    assert texts[1].startswith(
        "No other layer has a cosine (one token of each sample) above 0.9 to the last layer"
    )


def test_a_final_norm_can_end_a_valley(written, by_layer):
    rows = by_layer("prompt_entropy", [3.0, 2.5, 2.0, 2.4, 2.6]) + by_layer(
        "prompt_entropy", [1.5], site="normed", first=4
    )
    (found,) = findings(written(rows, sites=("raw", "normed")))
    assert "after the final norm (1.50): no valley" in found.text


@pytest.mark.parametrize(
    ("to_last", "layer", "words"),
    [
        ([0.1, 0.95, 0.92, 0.97, 1.0], 1, "From layer 1 of 4 on"),
        ([0.1, 0.95, 0.85, 0.97, 1.0], 3, "From layer 3 of 4 on"),
        ([math.nan, 0.95, math.nan, 0.97, 1.0], 3, "From layer 3 of 4 on"),
        (
            [0.1, 0.3, 0.85, 0.89, 1.0],
            None,
            "No other layer has a cosine above 0.9 to the last layer (layer 2: 0.850, layer 3: 0.890)",
        ),
    ],
)
def test_where_the_cosine_to_the_last_layer_stays_high(written, pairs, to_last, layer, words):
    square = np.eye(5)
    square[:, -1] = to_last
    (found,) = findings(written(pairs("cosine_similarity", square)))
    assert found.numbers["layer"] == layer and words in found.text


def test_decisions_of_a_head(written, by_layer):
    rows = by_layer("perplexity", [900.0, 400.0, 50.0, 60.0, 40.0], [9.0] * 5, site="normed")
    rows += by_layer("saturation_layer", [3.25], [0.05], site="normed", first=4)
    rows += by_layer("saturated", [0.1, 0.3, 0.6, 1.0], site="normed", first=1)
    found = findings(written(rows, sites=("raw", "normed"), language_model=True))
    texts = [f.text for f in found]
    assert texts == [
        "Predictions stop changing at layer 3.25 of 4 on average (±0.05); 30.0 % have by half depth (layer 2).",
        "Perplexity at the last layer: 40.0 ±9.",
    ]


def test_findings_of_a_real_run_are_its_numbers(labelled):
    found = findings(labelled)
    (best,) = named(found, "best_layer")
    accuracy = labelled.metric("linear_probe")
    assert best.numbers["last"] == accuracy[3]
    assert best.numbers["value"] == accuracy.drop(0).max()
    assert f"{100 * accuracy.drop(0).max():.1f}" in best.text
    (saturation,) = named(found, "saturation")
    assert saturation.numbers["mean_layer"] == float(labelled.metric("saturation_layer").iloc[0])
    assert saturation.numbers["saturated_by_half"] == labelled.metric("saturated")[1]
    (accuracy_finding,) = named(found, "layer_accuracy")
    assert accuracy_finding.numbers["last"] == labelled.metric("layer_accuracy")[3]
