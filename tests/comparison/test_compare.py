"""What `compare` returns: held to the functions of each metric and to sums of the test's own."""

import math
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import tiny
from typed import refused

import layerscope
from layerscope import metrics
from layerscope.comparison.findings import by_checkpoint, headline, most_alike, pairs
from layerscope.comparison.plots import checkpoint_map


def test_similarity_is_that_of_every_two_layers(three, deep):
    found = layerscope.compare([three[0], deep])
    square = found.similarity(metric="cka")
    assert list(square.index) == [0, 1, 2, 3] and list(square.columns) == list(range(7))
    for a in square.index:
        for b in square.columns:
            wanted = float(metrics.cka(three[0].pooled(a), deep.pooled(b)))
            assert square.loc[a, b] == pytest.approx(wanted, abs=1e-9)
    assert found.forms == (("cka", "linear,debiased"),), "the widths differ: no cosine"
    turned = found.similarity(1, 0)
    assert turned.loc[5, 2] == square.loc[2, 5]


def test_similarities_of_samples_have_errors_and_leave_out_what_has_none(
    make, tmp_path
):
    data = tiny.rows(60, seed=5)
    # what lies at the mean has no direction where the first block begins
    data[0] = data[1:].mean(0)
    runs = [make(tmp_path / str(seed), data, seed=seed) for seed in (0, 1)]
    found = layerscope.compare(runs, similarity="cosine_similarity,angular_distance")
    for name in ("cosine_similarity", "angular_distance"):
        each = np.asarray(getattr(metrics, name)(runs[0].pooled(1), runs[1].pooled(2)))
        row = (
            found.table("similarity")
            .query("metric == @name and layer == 1 and layer_b == 2")
            .iloc[0]
        )
        assert row["stderr"] == pytest.approx(
            np.nanstd(each, ddof=1) / math.sqrt(60), rel=1e-6
        )
        first = found.table("similarity").query(
            "metric == @name and layer == 0 and layer_b == 2"
        )
        assert list(first["n"]) == [59] and list(first["n_skipped"]) == [1]


def test_the_smallest_distance_is_the_most_alike(three):
    result = layerscope.compare(
        three[:2],
        similarity="angular_distance",
        metrics="effective_rank",
    )
    square = result.similarity()
    near = square.loc[1:, 1:]
    wanted = [None, *(1 + near.to_numpy(dtype=float).argmin(1)).tolist()]
    assert most_alike(square, "angular_distance") == wanted
    nearest = near.min(axis=1)
    values = (
        f"{nearest.mean():.2f} on average, {nearest.min():.2f} to {nearest.max():.2f}"
    )
    assert values in headline(pairs(result)[0])


def test_differences_by_sample_are_paired(spoken):
    found = layerscope.compare(spoken)
    runs = [layerscope.open_run(path) for path in spoken]
    tables = [run.samples() for run in runs]
    rows = found.table("difference")
    for metric in ("prompt_entropy", "curvature"):
        for layer in (0, 2):
            a, b = (
                t[
                    (t["metric"] == metric)
                    & (t["layer"] == layer)
                    & (t["site"] == "raw")
                ].set_index("sample")["value"]
                for t in tables
            )
            gap = (b - a).dropna()
            row = rows[
                (rows["metric"] == metric)
                & (rows["layer"] == layer)
                & (rows["site"] == "raw")
            ].iloc[0]
            assert row["value"] == pytest.approx(gap.mean(), abs=1e-6)
            assert row["stderr"] == pytest.approx(
                gap.std() / math.sqrt(len(gap)), rel=1e-5
            )
            assert (row["n"], row["n_skipped"], row["paired"]) == (
                len(gap),
                40 - len(gap),
                True,
            )
            assert row["value"] == pytest.approx(row["value_b"] - row["value_a"])
    assert (
        found.table("difference")["metric"].eq("curvature").any() and len(gap) < 40
    ), "some have no curvature"


def test_layer_0_is_shown_and_never_a_candidate(three):
    result = layerscope.compare(three[:2])
    frame, at_0 = result.frame.copy(), result.frame["layer"] == 0
    frame.loc[
        at_0 & (frame["layer_b"] == 0) & (frame["kind"] == "similarity"), "value"
    ] = 1.0
    frame.loc[at_0 & (frame["kind"] == "difference"), ["value", "stderr"]] = [
        900.0,
        1.0,
    ]
    altered = replace(result, frame=frame)
    assert result.similarity().loc[0, 0] < 1 == altered.similarity().loc[0, 0]
    assert headline(pairs(altered)[0]) == headline(pairs(result)[0])
    maps, table = altered.document().sections
    assert all(part.rings[0] is None for part in maps.parts) and maps.parts
    marked = [
        line.cells for line in table.parts[0].rows if any(c.marked for c in line.cells)
    ]
    assert marked and all(cells[0].text != "0" for cells in marked)


@pytest.mark.parametrize(
    "square, answer",
    [
        (
            [[0.9, 0.3, 0.3], [0.3, 0.9, 0.3], [0.3, 0.3, 0.9]],
            "0.90 on average, 0.90 to 0.90, 0 % of the depth away; the last layers 0.90.",
        ),
        (
            [[0.1, 0.2, 0.6], [0.1, 0.2, 0.7], [0.6, 0.1, 0.1]],
            "0.63 on average, 0.60 to 0.70, 56 % of the depth away; the last layers 0.10.",
        ),
    ],
)
def test_the_answer_says_how_alike_layers_are_and_at_which_depth(three, square, answer):
    result = layerscope.compare(three[:2], similarity="cka", metrics="effective_rank")
    frame = result.frame.copy()
    inside = (
        (frame["kind"] == "similarity") & (frame["layer"] > 0) & (frame["layer_b"] > 0)
    )
    places = [frame.loc[inside, name].astype(int) - 1 for name in ("layer", "layer_b")]
    frame.loc[inside, "value"] = np.array(square)[tuple(places)]
    assert answer in headline(pairs(replace(result, frame=frame))[0])


def test_a_series_is_not_named_after_one_of_its_pairs(three):
    first, *rest = layerscope.compare(three).document().members
    assert first.title == ("3 checkpoints",) and len(rest) == 2
    assert "From the first to the last checkpoint" in first.answer
    assert all("against" in member.title[0] for member in rest)


def test_differences_of_tables_combine_standard_errors(spoken):
    found = layerscope.compare(spoken, metrics="saturated")
    row = found.table("difference").iloc[1]
    a, b = (
        layerscope.open_run(path)
        .table()
        .query("metric == 'saturated'")
        .set_index("layer")
        for path in spoken
    )
    layer = row["layer"]
    assert row["value"] == pytest.approx(b.loc[layer, "value"] - a.loc[layer, "value"])
    assert row["stderr"] == pytest.approx(
        math.hypot(a.loc[layer, "stderr"], b.loc[layer, "stderr"])
    )
    assert not row["paired"]


def test_what_a_head_says_of_other_tokens_is_not_compared(spoken):
    one, two = map(layerscope.open_run, spoken)
    same = layerscope.compare([one, two])
    two.info["data"]["tokens"] = "of another tokenizer"
    other = layerscope.compare([one, two])
    kept, left = ({*found.table("difference")["metric"]} for found in (same, other))
    assert kept - left == {"perplexity", "layer_accuracy"}
    assert "perplexity is not compared: the models use different tokens" in other.notes


def test_other_depths_stand_beside_each_other_by_percent(three, deep):
    rows = layerscope.compare([three[0], deep], metrics="effective_rank").table(
        "difference"
    )
    beside = [
        (0, 0),
        (0, 1),
        (1, 2),
        (1, 3),
        (2, 4),
        (2, 5),
        (3, 6),
    ]  # every layer of the deeper one
    assert list(zip(rows["layer"], rows["layer_b"], strict=True)) == beside
    back = layerscope.compare([deep, three[0]], metrics="effective_rank").table(
        "difference"
    )
    assert list(zip(back["layer_b"], back["layer"], strict=True)) == beside
    assert list(back["value"]) == pytest.approx([-value for value in rows["value"]])


def test_a_sample_that_breaks_in_one_run_is_left_out_of_all(make, tmp_path):
    data = tiny.rows(60, seed=4)
    data[[7, 30], 0] = 1.0  # marks that make a block give NaN
    whole, broken = (
        make(tmp_path / "a", data),
        make(tmp_path / "b", data, breaks=2, seed=1),
    )
    found = layerscope.compare([whole, broken])
    assert (
        "InfoNCE is not compared: the runs measured it with different options"
        in found.notes
    )
    assert (found.n, found.left_out) == (58, 2) and "2 samples broken" in found.notes[0]
    kept = [i for i in range(60) if i not in (7, 30)]
    wanted = float(metrics.cka(whole.pooled(3)[kept], broken.pooled(3)[kept]))
    assert found.similarity(metric="cka").loc[3, 3] == pytest.approx(wanted, abs=1e-9)
    assert set(found.table("similarity")["n_skipped"]) == {2}


def test_a_series_is_shown_by_checkpoint(three):
    found = layerscope.compare(three)
    assert found.series
    [(metric, title, course), *metrics_by_checkpoint] = by_checkpoint(found)
    assert (metric, title) == ("cka", "CKA to the first checkpoint")
    heads = [f"Plain (step{step})" for step in (3, 20, 100)]
    for head, run in zip(heads[1:], three[1:], strict=True):
        wanted = float(metrics.cka(three[0].pooled(2), run.pooled(2)))
        assert course.loc[2, head] == pytest.approx(wanted, abs=1e-9)
    title, ranks = next(
        entry[1:] for entry in metrics_by_checkpoint if entry[0] == "effective_rank"
    )
    assert title == "Effective rank by checkpoint" and list(ranks) == heads
    assert checkpoint_map(metric, title, ranks).note == ""
    assert "do not vary" in checkpoint_map(metric, title, ranks * math.nan).note
    for head, run in zip(ranks, three, strict=True):
        assert ranks[head].to_numpy() == pytest.approx(
            run.metric("effective_rank").to_numpy()
        )


def test_runs_of_other_models_are_no_series(three, deep):
    found = layerscope.compare([*three[:2], deep])
    assert not found.series
    assert set(found.table("similarity")["run_b"]) == {
        member.name for member in found.runs[1:]
    }
    with refused("every run is compared with the first"):
        found.similarity(1, 2)


def test_what_was_saved_is_what_is_opened(three, tmp_path):
    found = layerscope.compare(three, out=tmp_path / "kept")
    again = layerscope.open_comparison(tmp_path / "kept")
    pd.testing.assert_frame_equal(again.frame, found.frame)
    assert (again.runs, again.n, again.notes, again.series) == (
        found.runs,
        found.n,
        found.notes,
        found.series,
    )
    with refused("holds no comparison"):
        layerscope.open_comparison(tmp_path)


def test_the_pooling_and_the_site_are_those_asked_for(spoken):
    runs = [layerscope.open_run(path) for path in spoken]
    for how in ({"pooling": "last"}, {"site": "normed"}):
        found = layerscope.compare(spoken, metrics="dataset_entropy", **how)
        a, b = (run.pooled(1, **how) for run in runs)
        wanted = float(metrics.cka(a, b))
        assert found.similarity().loc[1, 1] == pytest.approx(wanted, abs=1e-9)
        pooling = {how.get("pooling", "mean")}
        assert set(found.table("difference")["pooling"]) == pooling
    assert list(found.similarity().index) == [0, 1, 2, "final"]


def test_a_choice_that_is_not_the_default_stands_in_names(three):
    found = layerscope.compare(
        three[:2],
        similarity="cka,cosine_similarity",
        cka="biased",
        cosine="uncentered",
        metrics="effective_rank",
    )
    assert found.forms == (
        ("cka", "linear,biased"),
        ("cosine_similarity", "uncentered"),
    )
    wanted = float(metrics.cka(three[0].pooled(1), three[1].pooled(2), debiased=False))
    assert found.similarity().loc[1, 2] == pytest.approx(wanted, abs=1e-9)
    assert headline(pairs(found)[0]).startswith("Biased CKA ")
