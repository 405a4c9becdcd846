"""What a run gives back: its table, series, frames and states, held to computations of the test's own."""

import numpy as np
import pandas as pd
import pytest
import tiny
from profiling.recorded import walk
from text_runs import LABELS, TEXTS, profile
from typed import refused

import layerscope
from layerscope import metrics
from layerscope.probes import knn_probe, linear_probe
from layerscope.profiling import plan
from layerscope.runs import COLUMNS
from layerscope.runs.registry import SETS


def test_the_table_is_the_long_frame(run):
    table = run.table()
    assert {name: str(dtype) for name, dtype in table.dtypes.items()} == COLUMNS
    assert set(table["part"]) == {"model"} or table["part"].nunique() == 1
    for column in ("variant", "pooling", "site_b"):
        assert all(value is None or isinstance(value, str) for value in table[column])
    assert table["step"].isna().all()
    # the labels are classes
    measured = set(SETS["default"]) - {"ridge_probe"}
    assert set(table["metric"]) - {"zero_steps", "linear_probe_c"} == measured
    keys = ["metric", "variant", "layer", "site", "layer_b", "site_b", "pooling"]
    assert not table.duplicated(keys).any()
    pd.testing.assert_frame_equal(layerscope.open_run(run.path).table(), table)


def test_a_metric_is_a_series_by_layer(run):
    series = run.metric("curvature")
    assert (
        isinstance(series, pd.Series)
        and list(series.index) == [0, 1, 2, 3]
        and series.index.name == "layer"
    )
    frame = run.samples()
    own = (
        frame[(frame["metric"] == "curvature") & (frame["site"] == "raw")]
        .groupby("layer")["value"]
        .mean()
    )
    np.testing.assert_allclose(series, own, rtol=1e-6)
    assert list(run.metric("perplexity").index) == [0, 1, 2, 3]
    assert list(run.metric("dataset_entropy", site="normed").index) == [3]
    two = run.metric("dataset_entropy", variant="alpha=2", pooling="last")
    own = [
        metrics.dataset_entropy(run.pooled(layer, pooling="last"), alpha=2.0)
        for layer in range(4)
    ]
    np.testing.assert_allclose(two, own, rtol=1e-6)


def test_pairs_are_a_square_frame(run):
    names = [0, 1, 2, 3, "final"]
    for name, function in (
        ("cosine_similarity", metrics.cosine_similarity),
        ("cka", metrics.cka),
    ):
        square = run.metric(name, pooling="mean")
        assert list(square.index) == names and list(square.columns) == names
        states = [run.pooled(layer) for layer in range(4)] + [run.pooled(3, "final")]
        own = [
            [float(np.mean(np.asarray(function(a, b)))) for b in states] for a in states
        ]
        np.testing.assert_allclose(
            square.to_numpy(dtype=float), own, rtol=1e-6, atol=1e-6
        )
    raw = run.metric("cka", site="raw")
    assert list(raw.index) == [0, 1, 2, 3]


def test_samples_hold_what_is_averaged(run):
    frame = run.samples()
    assert {
        "sample",
        "name",
        "label",
        "length",
        "metric",
        "variant",
        "layer",
        "site",
        "pooling",
        "value",
    } == set(frame.columns)
    lengths = frame.drop_duplicates("sample").set_index("sample")["length"].sort_index()
    assert lengths.tolist() == [len(text.split()) for text in TEXTS]
    cosine = frame[frame["metric"] == "cosine_to_last"]
    states = (
        run.pooled(1, pooling="position"),
        run.pooled(3, "normed", pooling="position"),
    )
    own = np.asarray(metrics.cosine_similarity(*states))
    mine = (
        cosine[(cosine["layer"] == 1) & (cosine["site"] == "raw")]
        .set_index("sample")["value"]
        .sort_index()
    )
    np.testing.assert_allclose(mine, own, rtol=1e-6, atol=1e-6)


def test_pooled_states_stand_in_the_order_of_the_data(run):
    model = tiny.llama()
    for i in (0, 7, 39):
        states, *_ = walk(model, TEXTS[i])
        for layer, state in enumerate(states):
            np.testing.assert_allclose(run.pooled(layer)[i], state.mean(0), atol=1e-5)
            np.testing.assert_allclose(
                run.pooled(layer, pooling="last")[i], state[-1], atol=1e-5
            )
            normed = model.model.norm(state).detach()
            np.testing.assert_allclose(
                run.pooled(layer, "normed")[i], normed.mean(0), atol=1e-5
            )
    assert run.pooled(0).dtype == np.float32 and run.pooled(0).shape == (40, 32)
    np.testing.assert_array_equal(run.pooled(-1), run.pooled(3))
    np.testing.assert_array_equal(run.pooled(3, "final"), run.pooled(3, "normed"))


@pytest.mark.parametrize(
    "ask, line",
    [
        (
            lambda run: run.pooled(13),
            "layer 13 does not exist: this model has layers 0..3",
        ),
        (
            lambda run: run.pooled(-5),
            "layer -5 does not exist: this model has layers 0..3",
        ),
        (
            lambda run: run.pooled(0, "norm"),
            "site 'norm' is not in this run: it has raw, normed",
        ),
        (
            lambda run: run.pooled(0, pooling="cls"),
            "pooling 'cls' is not in this run: it has mean, last, position",
        ),
        (
            lambda run: run.metric("curvature", variant="x"),
            "variant 'x' is not there for curvature: it has none",
        ),
        (
            lambda run: run.metric("dime", pooling="cls"),
            "pooling 'cls' is not there for dime: it has mean, last",
        ),
        (
            lambda run: run.metric("dime", variant="N=7"),
            "variant 'N=7' is not there for dime: it has N=40,alpha=1, N=40,alpha=2",
        ),
        (
            lambda run: run.metric("cka", site="attn"),
            "site 'attn' is not there for cka: it has raw, normed",
        ),
    ],
)
def test_wrong_names_are_one_line(run, ask, line):
    with refused() as error:
        ask(run)
    assert str(error.value) == line


def test_an_unknown_metric_lists_those_of_the_run(run):
    with refused() as error:
        run.metric("curvatur")
    assert str(error.value).startswith(
        "metric 'curvatur' is not in this run, did you mean curvature?: it has "
    )


def test_every_position_is_read_unless_the_head_is_large(tmp_path, monkeypatch):
    texts = tiny.texts(40, longest=30)
    every, auto = (
        profile(
            tiny.llama(), tmp_path / str(n), texts, lens_tokens=n, metrics="perplexity"
        )
        for n in ("all", "auto")
    )
    pd.testing.assert_frame_equal(every.table(), auto.table())
    assert (
        auto.table()["n"].min() > plan.LENS_LEAST and (auto.table()["stderr"] > 0).all()
    )
    monkeypatch.setattr(plan, "LENS_WHOLE", 1000)
    share = profile(tiny.llama(), tmp_path / "share", texts, metrics="perplexity")
    assert set(share.table()["n"]) == {plan.LENS_LEAST}


def test_probes_are_those_of_the_public_functions(run):
    for layer in (0, 3):
        states = run.pooled(layer, "normed", "last")
        own = linear_probe(states, LABELS, seed=0)
        assert run.metric("linear_probe", pooling="last")[layer] == pytest.approx(
            own.mean
        )
        own = knn_probe(states, LABELS, k=10, seed=0)
        assert run.metric("knn_probe", pooling="last")[layer] == pytest.approx(own.mean)
    rows = run.table()
    rows = rows[rows["metric"] == "linear_probe"]
    assert (
        set(rows["n"]) == {40}
        and set(rows["site"]) == {"normed"}
        and (rows["stderr"] > 0).all()
    )
