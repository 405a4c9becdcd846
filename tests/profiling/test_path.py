"""How each sample's vector moves from layer to layer: theorem 2.1, assumption 1 and figure 11, against plain loops."""

import itertools
import math

import numpy as np
import pytest
import tiny

from layerscope import LayerscopeError, metrics, profile

METRICS = "monotone_triples,straightness,line_distance,norm_ratio,steady_norm"
DEPTH = 4


def cosine(a: np.ndarray, b: np.ndarray) -> float:
    return float(a @ b / np.linalg.norm(a) / np.linalg.norm(b))


def triples(path: np.ndarray) -> list[tuple[int, bool]]:
    """Each triple of layers by its last one, and whether it is in the order of the theorem."""
    found = itertools.combinations(range(len(path)), 3)
    return [(c, cosine(path[a], path[c]) <= cosine(path[b], path[c]) + 1e-12) for a, b, c in found]


@pytest.fixture(scope="module")
def walked(tmp_path_factory):
    out = tmp_path_factory.mktemp("path") / "run"
    how = {"metrics": METRICS, "cosine": "centered,uncentered", "progress": False, "views": 0}
    run = profile(tiny.Plain(depth=DEPTH, width=16), tiny.rows(60), out=out, **how)
    return run, np.stack([run.pooled(layer) for layer in range(DEPTH + 1)], 1).astype(np.float64)


@pytest.mark.parametrize("variant", ["centered", "uncentered"])
def test_monotone_triples_are_counted_by_sample(walked, variant):
    run, states = walked
    each = [triples(path) for path in (states - states.mean(0) if variant == "centered" else states)]
    table = run.table().query("variant == @variant")
    for layer in range(2, DEPTH + 1):
        shares = [np.mean([rises for last, rises in own if last == layer]) for own in each]
        row = table.query("metric == 'monotone_triples' and layer == @layer").iloc[0]
        assert row["value"] == pytest.approx(np.mean(shares)) and row["n"] == 60
        assert row["stderr"] == pytest.approx(np.std(shares, ddof=1) / math.sqrt(60))
    shares = [np.mean([rises for _, rises in own]) for own in each]
    row = table.query("metric == 'monotone_share'").iloc[0]
    assert (row["layer"], row["value"]) == (DEPTH, pytest.approx(np.mean(shares)))
    kept = run.samples().query("metric == 'monotone_share' and variant == @variant").sort_values("sample")["value"]
    assert kept.tolist() == pytest.approx(shares), "each sample's value is kept"


def test_the_way_is_that_of_every_sample(walked):
    run, states = walked
    steps = np.linalg.norm(np.diff(states, axis=1), axis=-1)
    whole = states[:, -1] - states[:, 0]
    straight = np.linalg.norm(states[:, 1:] - states[:, :1], axis=-1) / steps.cumsum(1)
    assert run.metric("straightness").to_dict() == pytest.approx(dict(enumerate(straight.mean(0), start=1)))
    np.testing.assert_allclose(metrics.straightness(states), straight[:, -1])
    assert run.metric("norm_ratio").tolist() == pytest.approx(
        (np.linalg.norm(states[:, :-1], axis=-1) / steps).mean(0).tolist()
    )
    norms = np.linalg.norm(states, axis=-1)
    steady = np.abs(norms[:, 1:] / norms[:, :-1] - 1) <= 0.1
    assert 0 < steady.mean() < 1 and run.metric("steady_norm").tolist() == pytest.approx(steady.mean(0).tolist())
    unit = whole / np.linalg.norm(whole, axis=1, keepdims=True)
    away = states[:, 1:-1] - states[:, :1]
    apart = away - (away * unit[:, None]).sum(-1, keepdims=True) * unit[:, None]
    wanted = (np.linalg.norm(apart, axis=-1) / np.linalg.norm(whole, axis=1)[:, None]).mean(0)
    found = run.metric("line_distance")
    assert found.index.tolist() == [1, 2, 3] and found.tolist() == pytest.approx(wanted.tolist())


def test_the_theorem_holds_for_straight_lines_and_half_of_the_time_by_chance():
    rng = np.random.default_rng(0)
    start, end = rng.normal(size=(2, 50, 1, 8))
    share = np.linspace(0, 1, 6)[None, :, None]
    assert float(metrics.monotone_share((1 - share) * start + share * end).min()) == 1.0
    assert float(metrics.monotone_share(rng.normal(size=(4000, 6, 8))).mean()) == pytest.approx(0.5, abs=0.01)
    back = (1 - share) * start + share * end
    assert float(metrics.monotone_share(back[:, [0, 4, 3, 2, 1, 5]]).max()) < 1.0


def test_layers_without_a_direction_are_left_out_and_short_paths_refused():
    path = np.array([[0.0, 0.0], [1.0, 0.0], [1.0, 1.0], [0.0, 1.0]])
    assert metrics.monotone_triples(path).isnan().tolist() == [True, False]
    assert metrics.monotone_triples(path)[1] == 1.0 == metrics.monotone_share(path)
    with pytest.raises(LayerscopeError, match="3 layers or more"):
        metrics.monotone_triples(path[:2])
