"""What `rows`, `cka` and `cosine` choose: every form against numpy on the tokens that plain hooks saw."""

import itertools

import numpy as np
import pytest
from metrics import references
from models import zoo
from models.tokenizer import word_tokenizer
from profiling.test_values import texts, tokens_by_layer

from layerscope import profile

METRICS = (
    "prompt_entropy,dataset_entropy,cka,cka_rbf,cosine_similarity,angular_distance"
)
ROWS = ("unit", "raw", "centered")


@pytest.fixture(scope="module")
def chosen(tmp_path_factory):
    """Return a run in every form, and the tokens of each text by layer; one is long, and wider than the model."""
    model, tokenizer, samples = (
        zoo.bert(),
        word_tokenizer(),
        [*texts()[:15], " ".join(texts()[:3])],
    )
    how = {
        "rows": ",".join(ROWS),
        "cka": "debiased,biased",
        "cosine": ["centered", "uncentered"],
        "alpha": "1,2",
    }
    run = profile(
        model,
        samples,
        processor=tokenizer,
        out=tmp_path_factory.mktemp("choices") / "run",
        metrics=METRICS,
        views=0,
        **how,
    )
    return run, [
        [layer.numpy() for layer in tokens_by_layer(model, tokenizer, text)]
        for text in samples
    ]


def variant(alpha, rows):
    return f"alpha={alpha}" + ("" if rows == "unit" else f",rows={rows}")


@pytest.mark.parametrize("rows", ROWS)
def test_entropies_of_rows_scaled_in_every_way(chosen, rows):
    run, tokens = chosen
    assert max(len(sample[0]) for sample in tokens) > zoo.D, (
        "a Gram of features as well"
    )
    for layer, alpha in itertools.product(range(zoo.L + 1), (1, 2)):
        each = [
            references.matrix_entropy(sample[layer], alpha, rows) for sample in tokens
        ]
        found = run.metric("prompt_entropy", variant=variant(alpha, rows))
        assert found.loc[layer] == pytest.approx(np.mean(each), rel=1e-5)
        wanted = references.matrix_entropy(run.pooled(layer), alpha, rows)
        assert run.metric("dataset_entropy", variant=variant(alpha, rows)).loc[
            layer
        ] == pytest.approx(wanted, rel=1e-9)


def test_each_samples_cosine_is_kept_of_both(chosen):
    run, _ = chosen
    samples = run.samples().query("metric == 'cosine_to_last'")
    for name, center in (("centered", True), ("uncentered", False)):
        states = [run.pooled(layer).astype(np.float64) for layer in (1, zoo.L)]
        a, b = (x - x.mean(0) * center for x in states)
        wanted = (a * b).sum(1) / np.linalg.norm(a, axis=1) / np.linalg.norm(b, axis=1)
        own = samples[
            (samples["variant"] == name) & (samples["layer"] == 1)
        ].sort_values("sample")["value"]
        np.testing.assert_allclose(own, wanted, atol=1e-9)
        assert run.metric("cosine_similarity", variant=name).loc[
            1, zoo.L
        ] == pytest.approx(wanted.mean(), abs=1e-9)
