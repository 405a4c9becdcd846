"""Scores of layers against plain references: the same definitions, written out on all states at once."""

import numpy as np
import pytest
import torch
from sklearn.metrics import f1_score

from layerscope import LayerscopeError
from layerscope.metrics import cosine_similarity, neural_collapse
from layerscope.metrics.class_sums import ClassSums
from layerscope.training.layer_scores import LayerScores, logged, no_collapse
from layerscope.training.some_rows import SomeRows

L, D, K = 3, 6, 4


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def batches(sizes=(5, 1, 9, 6), seed: int = 0):
    """Return states [L, n, D] and labels [n] of each batch, and a head a layer."""
    rng = generator(seed)
    heads = [torch.randn(K, D, generator=rng, dtype=torch.float64) for _ in range(L)]
    found = []
    for n in sizes:
        labels = torch.randint(0, K, (n,), generator=rng)
        states = torch.randn(L, n, D, generator=rng, dtype=torch.float64) + labels[:, None] * 0.3
        found.append((states, labels))
    return found, [lambda rows, w=weight: rows @ w.T for weight in heads], heads


def scored(given, heads, **options) -> LayerScores:
    scores = LayerScores(L, **options)
    for states, labels in given:
        scores.update(states.__getitem__, heads, labels)
    return scores


def value(rows, metric, layer, variant=None):
    (row,) = [
        r
        for r in rows
        if (r["metric"], r["layer"]) == (metric, layer) and variant in (None, r["variant"])
    ]
    return row["value"], row["stderr"], row["n"], row["n_skipped"]


def plain_nc1(states: np.ndarray, labels: np.ndarray) -> float:
    """Papyan, Han, Donoho by the letter: sums of outer products and a pseudo-inverse."""
    centre, classes = states.mean(0), np.unique(labels)
    within = sum(
        np.outer(x - states[labels == y].mean(0), x - states[labels == y].mean(0))
        for x, y in zip(states, labels, strict=True)
    ) / len(states)
    means = [states[labels == y].mean(0) - centre for y in classes]
    between = sum(np.outer(m, m) for m in means) / len(classes)
    return float(np.trace(within @ np.linalg.pinv(between, rcond=1e-10)) / len(classes))


def test_scores_are_those_of_all_states_at_once():
    given, heads, weights = batches()
    rows = scored(given, heads, collapse=(K, D)).compute()
    states, labels = (
        torch.cat([s for s, _ in given], 1).numpy(),
        torch.cat([y for _, y in given]).numpy(),
    )
    n, tops, likely = len(labels), [], []
    middle = states.mean(1, keepdims=True)
    for layer in range(L):
        logits = states[layer] @ weights[layer].numpy().T
        chances = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
        right, own = chances.argmax(1) == labels, chances[np.arange(n), labels]
        pairs = zip(states[layer] - middle[layer], states[-1] - middle[-1], strict=True)
        cosine = np.array([a @ b / np.sqrt((a @ a) * (b @ b)) for a, b in pairs])
        tops.append(chances.argmax(1))
        likely.append(own)
        for metric, values in (
            ("layer_accuracy", right),
            ("label_probability", own),
            ("cross_entropy", -np.log(own)),
            ("cosine_similarity", cosine),
        ):
            wanted = (np.mean(values), np.std(values, ddof=1) / np.sqrt(n), n, 0)
            assert value(rows, metric, layer + 1) == pytest.approx(wanted, rel=1e-9, abs=1e-9)
        assert value(rows, "nc1", layer + 1)[0] == pytest.approx(
            plain_nc1(states[layer], labels), rel=1e-8
        )
        assert value(rows, "f1", layer + 1)[0] == pytest.approx(
            f1_score(labels, tops[-1], average="macro")
        )
        found = neural_collapse(states[layer], labels)
        assert value(rows, "nc2_norms", layer + 1)[0] == pytest.approx(
            found.nc2_norms.item(), rel=1e-8
        )
        assert value(rows, "nc2_angles", layer + 1)[0] == pytest.approx(
            found.nc2_angles.item(), rel=1e-8
        )
    settled = np.array(
        [
            next(k for k in range(L) if all(t[i] == tops[-1][i] for t in tops[k:])) + 1
            for i in range(n)
        ]
    )
    assert value(rows, "saturation_layer", L)[0] == settled.mean()
    assert [value(rows, "saturated", k)[0] for k in (1, 2, 3)] == [
        (settled <= k).mean() for k in (1, 2, 3)
    ]
    agrees = [(tops[k - 1] == tops[-1]).mean() for k in (1, 2, 3)]
    assert [value(rows, "agreement", k)[0] for k in (1, 2, 3)] == agrees and agrees[0] > (
        settled == 1
    ).mean()
    right = [value(rows, "layer_accuracy", k)[0] for k in (1, 2, 3)]
    first = next(k for k, share in enumerate(right, start=1) if share >= right[-1] - 0.01)
    assert value(rows, "effective_depth", L, "relative_to=last,epsilon=0.01")[0] == first
    assert value(rows, "effective_depth", L, "relative_to=all,epsilon=0.01")[0] == L
    rises = np.diff(likely, axis=0) > 0
    assert [value(rows, "label_probability_rises", k)[0] for k in (2, 3)] == rises.mean(1).tolist()
    assert value(rows, "label_probability_monotone", L)[0] == rises.all(0).mean()
    assert {row["site"] for row in rows} == {"head"}


def test_f1_of_two_classes_is_that_of_the_second_and_nc3_reads_the_head():
    rng = generator(3)
    head = torch.nn.Linear(D, 2).double()
    states, labels = torch.randn(L, 40, D, generator=rng, dtype=torch.float64), torch.arange(40) % 2
    rows = scored([(states, labels)], [head] * L, collapse=(2, D)).compute()
    for layer in range(L):
        top = head(states[layer]).argmax(-1)
        assert value(rows, "f1", layer + 1)[0] == pytest.approx(f1_score(labels, top))
        wanted = neural_collapse(states[layer], labels, head.weight.detach()).nc3
        assert value(rows, "nc3", layer + 1)[0] == pytest.approx(float(wanted), rel=1e-9)


def test_of_many_rows_an_even_sample_has_the_cosine(monkeypatch):
    monkeypatch.setattr("layerscope.training.layer_scores.COSINE_BYTES", 4 * L * D * 10)
    given, heads, _ = batches(sizes=(7, 9, 3, 14))
    rows = scored(given, heads).compute()
    states = torch.cat([s for s, _ in given], 1)[:, ::4]  # 33 rows, at most 10 of them kept
    for layer in range(L):
        wanted = cosine_similarity(states[layer], states[-1]).mean()
        assert value(rows, "cosine_similarity", layer + 1)[0] == pytest.approx(
            float(wanted), rel=1e-9
        )
    assert value(rows, "cosine_similarity", 1)[2:] == (9, 0)
    some = SomeRows(5)
    for start in range(0, 40, 8):
        some.add((start + some.choose(8))[:, None])
    assert some.rows[:, 0].tolist() == [0, 8, 16, 24, 32]


def test_merged_halves_are_the_whole():
    given, heads, _ = batches()
    whole, half = (scored(part, heads, collapse=(K, D)) for part in (given, given[:2]))
    half.merge(scored(given[2:], heads, collapse=(K, D)))
    half.merge(LayerScores(L, collapse=(K, D)))
    for one, two in zip(whole.compute(), half.compute(), strict=True):
        assert one["metric"] == two["metric"]
        assert one["value"] == pytest.approx(two["value"], rel=1e-10)


@pytest.mark.parametrize("offset", [0.0, 1e5])
@pytest.mark.parametrize("spread", [1.0, 1e-4], ids=["loose", "collapsed"])
def test_streamed_nc1_is_that_of_all_states(offset, spread):
    rng = generator()
    labels = torch.randint(0, 7, (200,), generator=rng)
    labels[labels == 5] = 6  # a class of the head that no sample has
    points = torch.randn(7, 20, generator=rng, dtype=torch.float64) + offset
    states = points[labels] + spread * torch.randn(200, 20, generator=rng, dtype=torch.float64)
    whole, halves = ClassSums.empty(7, 20), [ClassSums.empty(7, 20), ClassSums.empty(0, 20)]
    for number, start in enumerate(range(0, 200, 30)):
        part = slice(start, start + 30)
        whole.update(states[part], labels[part])
        halves[number % 2].update(states[part], labels[part])
    wanted = float(neural_collapse(states, labels).nc1)
    assert wanted == pytest.approx(plain_nc1(states.numpy(), labels.numpy()), rel=1e-6)
    assert float(whole.collapse().nc1) == pytest.approx(wanted, rel=1e-8)
    assert float((halves[0] + halves[1]).collapse().nc1) == pytest.approx(wanted, rel=1e-8)


def test_tokens_are_shifted_and_ignored_ones_left_out():
    rng = generator(1)
    states = torch.randn(L, 2, 5, D, generator=rng, dtype=torch.float64)
    labels = torch.tensor([[0, 1, 2, -100, 3], [3, 2, -100, -100, -100]])
    weight = torch.randn(K, D, generator=rng, dtype=torch.float64)
    scores = scored(
        [(states, labels)], [lambda rows: rows @ weight.T] * L, shift=True, language_model=True
    )
    rows = scores.compute()
    places = [
        (0, 0, 1),
        (0, 1, 2),
        (0, 3, 3),
        (1, 0, 2),
    ]  # sample, position that predicts, its label
    for layer in range(L):
        losses = [
            torch.nn.functional.cross_entropy(states[layer, b, t] @ weight.T, torch.tensor(y))
            for b, t, y in places
        ]
        found = value(rows, "perplexity", layer + 1)
        assert found[0] == pytest.approx(torch.stack(losses).mean().exp().item(), rel=1e-9)
        assert found[2:] == (4, 0)
    told = logged(rows, language_model=True)
    assert told["perplexity"] == told["perplexity_layer_3"] == value(rows, "perplexity", 3)[0]
    assert "accuracy" not in told and "nc1" not in told


def test_states_that_are_not_finite_are_skipped_and_counted():
    given, heads, _ = batches(sizes=(8,))
    states, labels = given[0]
    states[0, 2] = torch.nan
    rows = scored(given, heads, collapse=(K, D)).compute()
    assert value(rows, "layer_accuracy", 1)[2:] == (7, 1)
    assert value(rows, "nc1", 1)[2:] == (7, 1)
    assert (
        value(rows, "label_probability_rises", 2)[2:]
        == value(rows, "cosine_similarity", 3)[2:]
        == (7, 1)
    )
    assert value(rows, "layer_accuracy", 2)[2:] == (8, 0)
    assert value(rows, "saturation_layer", 3)[2:] == (7, 1)


def test_logits_are_made_in_chunks(monkeypatch):
    given, heads, _ = batches(sizes=(50,))
    sizes = []

    def head(rows):
        sizes.append(len(rows))
        return heads[0](rows)

    whole = scored(given, [heads[0]] * L).compute()
    monkeypatch.setattr("layerscope.training.layer_scores.CHUNK", 4 * K)
    parts = scored(given, [head] * L).compute()
    assert max(sizes) == 4
    for one, two in zip(whole, parts, strict=True):
        assert one["value"] == pytest.approx(two["value"], rel=1e-12)


def test_nothing_counted_is_no_row_and_wrong_labels_are_told():
    given, heads, _ = batches(sizes=(3,))
    states, labels = given[0]
    assert scored([(states, torch.full((3,), -100))], heads).compute() == []
    assert logged([], language_model=False) == {}
    with pytest.raises(LayerscopeError, match="label 4 is outside the head's 4 classes"):
        scored([(states, torch.tensor([0, 1, 4]))], heads)
    with pytest.raises(LayerscopeError, match="give one label for each state"):
        scored([(states, labels[:2])], heads)
    one_class = scored([(states, torch.zeros(3, dtype=torch.long))], heads, collapse=(K, D))
    assert not [row for row in one_class.compute() if row["metric"] == "nc1"]


def test_nc1_is_left_out_where_it_would_not_fit():
    assert no_collapse(12, 10, 768, language_model=False) is None
    assert "classes are its tokens" in no_collapse(12, 10, 768, language_model=True)
    assert no_collapse(12, 1000, 768, language_model=False) is None
    assert "MiB" in no_collapse(32, 10, 4096, language_model=False)
