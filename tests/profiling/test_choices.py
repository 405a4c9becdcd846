"""What `rows`, `cka` and `cosine` choose: every form against numpy on the tokens that plain hooks saw."""

import itertools

import numpy as np
import pytest
from metrics import references
from models import zoo
from models.tokenizer import word_tokenizer
from profiling.test_values import texts, tokens_by_layer

from layerscope import LayerscopeError, profile
from layerscope.show.plots import Chart, HeatMap

METRICS = "prompt_entropy,dataset_entropy,cka,cka_rbf,cosine_similarity,angular_distance"
ROWS = ("unit", "raw", "centered")


@pytest.fixture(scope="module")
def chosen(tmp_path_factory):
    """Return a run in every form, and the tokens of each text by layer; one is long, and wider than the model."""
    model, tokenizer, samples = zoo.bert(), word_tokenizer(), [*texts()[:15], " ".join(texts()[:3])]
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
        prefixes=[3],
        progress=False,
        **how,
    )
    return run, [
        [layer.numpy() for layer in tokens_by_layer(model, tokenizer, text)] for text in samples
    ]


def variant(alpha: int, rows: str) -> str:
    return f"alpha={alpha}" + ("" if rows == "unit" else f",rows={rows}")


@pytest.mark.parametrize("rows", ROWS)
def test_entropies_of_rows_scaled_in_every_way(chosen, rows):
    run, tokens = chosen
    assert max(len(sample[0]) for sample in tokens) > zoo.D, "a Gram of features as well"
    for layer, alpha in itertools.product(range(zoo.L + 1), (1, 2)):
        each = [references.matrix_entropy(sample[layer], alpha, rows) for sample in tokens]
        found = run.metric("prompt_entropy", variant=variant(alpha, rows))
        assert found.loc[layer] == pytest.approx(np.mean(each), rel=1e-5)
        first = [references.matrix_entropy(sample[layer][:3], alpha, rows) for sample in tokens]
        found = run.metric("prompt_entropy", variant=f"{variant(alpha, rows)},prefix=3")
        assert found.loc[layer] == pytest.approx(np.mean(first), rel=1e-5, abs=1e-6)
        wanted = references.matrix_entropy(run.pooled(layer), alpha, rows)
        assert run.metric("dataset_entropy", variant=variant(alpha, rows)).loc[
            layer
        ] == pytest.approx(wanted, rel=1e-9)


def test_the_default_comes_first_and_every_title_names_another_choice(chosen):
    run, _ = chosen
    assert run.metric("prompt_entropy").equals(run.metric("prompt_entropy", variant="alpha=1"))
    parts = [part for section in run.document().sections for part in section.parts]
    maps = {part.title: part.name for part in parts if isinstance(part, HeatMap)}
    assert {
        "Biased CKA of every two layers",
        "Uncentred angular distance of every two layers",
    } <= set(maps)
    assert len(set(maps.values())) == len(maps)
    charts = {part.title for part in parts if isinstance(part, Chart)}
    assert {
        "Raw prompt entropy",
        "Centred dataset entropy",
        "Biased CKA to the last layer",
    } <= charts
    heads = [
        column.title
        for part in run.document().parts
        if hasattr(part, "columns")
        for column in part.columns
    ]
    for wanted in (
        "raw prompt entropy, alpha=2",
        "biased RBF CKA",
        "uncentred cosine",
        "CKA",
        "cosine",
    ):
        assert any(head.startswith(wanted) for head in heads)


def test_a_choice_alone_stands_in_titles_too(tmp_path):
    how = {"metrics": "cka,dataset_entropy", "views": 0, "progress": False}
    run = profile(
        zoo.bert(),
        texts(),
        processor=word_tokenizer(),
        out=tmp_path / "r",
        cka="biased",
        rows="raw",
        **how,
    )
    assert set(run.table()["variant"]) == {"linear,biased", "alpha=1,rows=raw"}
    heads = [
        column.title
        for part in run.document().parts
        if hasattr(part, "columns")
        for column in part.columns
    ]
    assert "biased CKA" in heads and "raw dataset entropy" in heads


def test_each_samples_cosine_is_kept_of_both(chosen):
    run, _ = chosen
    samples = run.samples().query("metric == 'cosine_to_last'")
    for name, center in (("centered", True), ("uncentered", False)):
        states = [run.pooled(layer).astype(np.float64) for layer in (1, zoo.L)]
        a, b = (x - x.mean(0) * center for x in states)
        wanted = (a * b).sum(1) / np.linalg.norm(a, axis=1) / np.linalg.norm(b, axis=1)
        own = samples[(samples["variant"] == name) & (samples["layer"] == 1)].sort_values("sample")[
            "value"
        ]
        np.testing.assert_allclose(own, wanted, atol=1e-9)
        assert run.metric("cosine_similarity", variant=name).loc[1, zoo.L] == pytest.approx(
            wanted.mean(), abs=1e-9
        )


def test_one_massive_token_beside_raw_and_centred_rows(tmp_path):
    """Where float32 Grams would have lost all but one token: 1 part in 10⁷ of noise is 4e-4 of entropy."""
    import torch

    from layerscope.metrics.factors import Tokens
    from layerscope.metrics.prompt_entropy import PROMPT_ENTROPY

    tokens = np.random.default_rng(0).normal(size=(40, 64)).astype(np.float32)
    tokens[0] *= 3000
    padded = torch.from_numpy(np.concatenate([tokens, np.full((5, 64), 7.0, dtype=np.float32)]))[
        None
    ]
    given = Tokens(padded, torch.arange(45)[None] < 40, rows=ROWS)
    found = PROMPT_ENTROPY.how.finish([PROMPT_ENTROPY.how.compute(given)], [1.0], slice(None))
    for rows in ROWS:
        wanted = references.matrix_entropy(tokens, 1, rows)
        assert float(found[variant(1, rows)]) == pytest.approx(wanted, rel=1e-5)
    assert (
        float(found["alpha=1,rows=raw"])
        < 1e-3
        < float(found["alpha=1,rows=centered"])
        < 1
        < float(found["alpha=1"])
    )


@pytest.mark.parametrize(
    ("option", "value", "known"),
    [
        ("rows", "row", "raw"),
        ("cka", "unbiased", "biased"),
        ("cosine", "centred", "centered"),
    ],
)
def test_an_unknown_choice_is_one_line(tmp_path, option, value, known):
    with pytest.raises(LayerscopeError, match=rf"{option} '{value}' does not exist.*{known}"):
        profile("minilm", ["one", "two"], out=tmp_path / "run", progress=False, **{option: value})
