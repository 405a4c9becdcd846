"""How each sample's vector moves from layer to layer: theorem 2.1 and assumption 1, against plain loops."""

import itertools
import math

import numpy as np
import pytest
import tiny

from layerscope import LayerscopeError, metrics, profile

METRICS = "monotone_triples,straightness"
DEPTH = 4


def cosine(a: np.ndarray, b: np.ndarray) -> float:
    return float(a @ b / np.linalg.norm(a) / np.linalg.norm(b))


def triples(path: np.ndarray) -> list[tuple[int, bool]]:
    """Each triple of layers by its last one, and whether it is in the order of the theorem."""
    found = itertools.combinations(range(len(path)), 3)
    return [
        (c, cosine(path[a], path[c]) <= cosine(path[b], path[c]) + 1e-12)
        for a, b, c in found
    ]


@pytest.fixture(scope="module")
def walked(tmp_path_factory):
    out = tmp_path_factory.mktemp("path") / "run"
    how = {
        "metrics": METRICS,
        "cosine": "centered,uncentered",
        "progress": False,
        "views": 0,
    }
    run = profile(tiny.Plain(depth=DEPTH, width=16), tiny.rows(60), out=out, **how)
    return run, np.stack([run.pooled(layer) for layer in range(DEPTH + 1)], 1).astype(
        np.float64
    )


@pytest.mark.parametrize("variant", ["centered", "uncentered"])
def test_monotone_triples_are_counted_by_sample(walked, variant):
    run, states = walked
    each = [
        triples(path)
        for path in (states - states.mean(0) if variant == "centered" else states)
    ]
    table = run.table().query("variant == @variant")
    for layer in range(2, DEPTH + 1):
        shares = [
            np.mean([rises for last, rises in own if last == layer]) for own in each
        ]
        row = table.query("metric == 'monotone_triples' and layer == @layer").iloc[0]
        assert row["value"] == pytest.approx(np.mean(shares)) and row["n"] == 60
        assert row["stderr"] == pytest.approx(np.std(shares, ddof=1) / math.sqrt(60))


def test_the_way_is_that_of_every_sample(walked):
    run, states = walked
    steps = np.linalg.norm(np.diff(states, axis=1), axis=-1)
    straight = np.linalg.norm(states[:, 1:] - states[:, :1], axis=-1) / steps.cumsum(1)
    assert run.metric("straightness").to_dict() == pytest.approx(
        dict(enumerate(straight.mean(0), start=1))
    )
    np.testing.assert_allclose(metrics.straightness(states), straight[:, -1])


def test_layers_without_a_direction_are_left_out_and_short_paths_refused():
    path = np.array([[0.0, 0.0], [1.0, 0.0], [1.0, 1.0], [0.0, 1.0]])
    assert metrics.monotone_triples(path).isnan().tolist() == [True, False]
    assert metrics.monotone_triples(path)[1] == 1.0
    with pytest.raises(LayerscopeError, match="3 layers or more"):
        metrics.monotone_triples(path[:2])
