"""What `rows`, `cka` and `cosine` choose: every form against numpy on the tokens that plain hooks saw."""

import itertools

import numpy as np
import pytest
import tiny
from metrics import references
from recorded import walk
from text_runs import profile

DEPTH, WIDTH = 3, 32
METRICS = (
    "prompt_entropy,dataset_entropy,cka,cka_rbf,cosine_similarity,angular_distance"
)
ROWS = ("unit", "raw", "centered")
HOW = {
    "rows": ",".join(ROWS),
    "cka": "debiased,biased",
    "cosine": ["centered", "uncentered"],
    "alpha": "1,2",
}


@pytest.fixture(scope="module")
def chosen(tmp_path_factory):
    """Return a run in every form, and the tokens of each text by layer; one is long, and wider than the model."""
    model, samples = tiny.bert(), [*tiny.texts(15), " ".join(tiny.WORDS[:50])]
    out = tmp_path_factory.mktemp("choices") / "run"
    run = profile(model, out, samples, metrics=METRICS, **HOW)
    return run, [walk(model, text)[0].numpy() for text in samples]


def variant(alpha, rows):
    return f"alpha={alpha}" + ("" if rows == "unit" else f",rows={rows}")


@pytest.mark.parametrize("rows", ROWS)
def test_entropies_of_rows_scaled_in_every_way(chosen, rows):
    run, tokens = chosen
    longest = max(sample.shape[1] for sample in tokens)
    assert longest > WIDTH, "a Gram of features as well"
    for layer, alpha in itertools.product(range(DEPTH + 1), (1, 2)):
        form, named = (alpha, rows), variant(alpha, rows)
        each = [references.matrix_entropy(sample[layer], *form) for sample in tokens]
        of_texts = run.metric("prompt_entropy", variant=named)[layer]
        assert of_texts == pytest.approx(np.mean(each), rel=1e-5)
        wanted = references.matrix_entropy(run.pooled(layer), *form)
        of_data = run.metric("dataset_entropy", variant=named)[layer]
        assert of_data == pytest.approx(wanted, rel=1e-9)


@pytest.mark.parametrize("name", HOW["cosine"])
def test_each_samples_cosine_is_kept_of_both(chosen, name):
    run, _ = chosen
    states = [run.pooled(layer).astype(np.float64) for layer in (1, DEPTH)]
    a, b = (x - x.mean(0) * (name == "centered") for x in states)
    wanted = (a * b).sum(1) / np.linalg.norm(a, axis=1) / np.linalg.norm(b, axis=1)
    of_both = "metric == 'cosine_to_last' and variant == @name and layer == 1"
    samples = run.samples().query(of_both).sort_values("sample")
    np.testing.assert_allclose(samples["value"], wanted, atol=1e-9)
    mean = run.metric("cosine_similarity", variant=name).loc[1, DEPTH]
    assert mean == pytest.approx(wanted.mean(), abs=1e-9)
