"""Values by sample of mteb's scores: their mean is the score, their spread the error, also between two layers."""

import numpy as np
import pandas as pd
import pytest
import tiny
from scipy import stats

import layerscope
from layerscope.core.rank_correlation import spearman_by_sample
from layerscope.scores.opening import _by_sample
from layerscope.scores.probe_results import BY_SAMPLE, packed, unpacked

N = 120


def weighted_spearman(one, two, weights):
    """Spearman's correlation where each sample counts as often as its weight says; n² comparisons."""
    shares = weights / weights.sum()
    ranks = []
    for values in (one, two):
        above = (values[:, None] > values) + 0.5 * (values[:, None] == values)
        ranks.append(above @ shares - 0.5)
    x, y = ranks
    return float(shares @ (x * y) / np.sqrt((shares @ x**2) * (shares @ y**2)))


def test_values_are_the_score_and_how_it_moves_with_the_weight_of_a_sample():
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 6, N).astype(float)
    similarities = np.round(labels + 1.5 * rng.standard_normal(N), 1)
    values, ones, step = spearman_by_sample(labels, similarities), np.ones(N), 1e-5
    reference = stats.spearmanr(labels, similarities)[0]
    assert values.mean() == pytest.approx(reference, abs=1e-12)
    moved = [
        weighted_spearman(labels, similarities, ones + step * unit)
        - weighted_spearman(labels, similarities, ones - step * unit)
        for unit in np.eye(N)
    ]
    assert values - reference == pytest.approx(
        N * np.array(moved) / (2 * step), abs=1e-6
    )


def frames():
    texts = tiny.texts(2 * N)
    one, two = texts[:N], texts[N:]
    long = [len(text) for text in one]
    return {
        "classification": pd.DataFrame(
            {"text": texts, "label": [len(t) % 2 for t in texts]}
        ),
        "sts": pd.DataFrame({"text_a": one, "text_b": two, "score": long}),
        "retrieval": pd.DataFrame({"query": one, "document": two}),
    }


@pytest.mark.parametrize("kind", frames())
def test_own_files_have_their_error_and_layers_are_paired(bert, kind):
    found = layerscope.evaluate(bert, {kind: frames()[kind]})
    rows = found.scores
    assert rows["stderr"].notna().all() and rows["right"].notna().all()
    for row in rows.to_dict("records"):
        values = unpacked(row["right"], row["n"])
        assert len(values) == row["n"] and values.mean() == pytest.approx(
            row["score"], abs=1e-6
        )
        assert row["stderr"] == pytest.approx(values.std() / row["n"] ** 0.5, rel=1e-4)
    choice = layerscope.select(found)
    layer = choice.layers[1]
    values = [
        unpacked(
            *rows.loc[
                rows["layer"].eq(1) if one else rows["layer"].isna(), ["right", "n"]
            ].iloc[0]
        )
        for one in (True, False)
    ]
    assert layer.difference_error == pytest.approx(
        stats.sem(values[0] - values[1]), rel=1e-3
    )
    assert "unknown" not in choice.why


def test_subsets_count_alike_whatever_their_sizes():
    rng = np.random.default_rng(0)
    sets = [rng.random(40), rng.random(300) > 0.5]
    scores = {"test": [{BY_SAMPLE: packed(values.astype(float))} for values in sets]}
    mean = float(np.mean([values.mean() for values in sets]))
    found = _by_sample(scores, mean)
    errors = [values.std() / len(values) ** 0.5 for values in sets]
    assert found["stderr"] == pytest.approx(np.hypot(*errors) / 2, rel=1e-5)
    assert unpacked(found["right"]).mean() == pytest.approx(mean, abs=1e-6)
    assert _by_sample({"test": [*scores["test"], {}]}, mean) == {}
