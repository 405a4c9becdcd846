"""Scores of layers against plain references: the same definitions, written out on all states at once."""

import numpy as np
import pytest
import torch
from typed import refused

from layerscope.metrics import cosine_similarity, neural_collapse
from layerscope.training.layer_scores import LayerScores, logged

L, D, K = 3, 6, 4
LAYERS = (1, 2, 3)


def batches(sizes=(5, 1, 9, 6)):
    """Return states [L, n, D] and labels [n] of each batch, and a head a layer."""
    torch.manual_seed(0)
    heads = [torch.nn.Linear(D, K).double().requires_grad_(False) for _ in LAYERS]
    labels = [torch.randint(0, K, (n,)) for n in sizes]
    states = [torch.randn(L, len(y), D).double() + y[:, None] * 0.3 for y in labels]
    return list(zip(states, labels, strict=True)), heads


def at_once(rows):
    """Return states [L, N, D] and labels [N] of all batches."""
    states, labels = zip(*rows, strict=True)
    return torch.cat(states, 1), torch.cat(labels)


def scored(rows, heads, **options):
    scores = LayerScores(L, **options)
    for states, labels in rows:
        scores.update(states.__getitem__, heads, labels)
    return scores


def entry(rows, metric, layer, variant=None):
    of_layer = [row for row in rows if (row["metric"], row["layer"]) == (metric, layer)]
    (row,) = [row for row in of_layer if variant in (None, row["variant"])]
    return row


def values(rows, metric, layers=LAYERS):
    return [entry(rows, metric, layer)["value"] for layer in layers]


def test_scores_are_those_of_all_states_at_once():
    given, heads = batches()
    rows = scored(given, heads, collapse=(K, D)).compute()
    states, labels = at_once(given)
    n = len(labels)
    logits = [head(one) for head, one in zip(heads, states, strict=True)]
    chances = torch.stack(logits).softmax(-1)
    tops, likely = chances.argmax(-1), chances[:, torch.arange(n), labels]
    centred = states - states.mean(1, keepdim=True)
    cosines = torch.nn.functional.cosine_similarity(centred, centred[-1:], dim=-1)
    by_sample = {
        "layer_accuracy": (tops == labels).double(),
        "label_probability": likely,
        "cross_entropy": -likely.log(),
        "cosine_similarity": cosines,
    }
    for name, samples in by_sample.items():
        for layer, one in zip(LAYERS, samples, strict=True):
            row = entry(rows, name, layer)
            assert row["value"] == pytest.approx(one.mean().item(), rel=1e-9)
            error = one.std().item() / n**0.5
            assert row["stderr"] == pytest.approx(error, rel=1e-9, abs=1e-9)
            assert (row["n"], row["n_skipped"], row["site"]) == (n, 0, "head")
    nc1 = neural_collapse(states, labels).nc1.tolist()
    assert values(rows, "nc1") == pytest.approx(nc1, rel=1e-8)
    agrees = tops == tops[-1]
    settled = agrees.flip(0).cummin(0).values.flip(0)  # from this layer on they agree
    assert values(rows, "saturated") == settled.double().mean(-1).tolist()
    assert values(rows, "agreement") == agrees.double().mean(-1).tolist()
    depth = (4 - settled.sum(0)).double().mean()
    assert entry(rows, "saturation_layer", L)["value"] == depth
    right = values(rows, "layer_accuracy")
    first = next(layer for layer in LAYERS if right[layer - 1] >= right[-1] - 0.01)
    for name, depth in (("last", first), ("all", L)):
        variant = f"relative_to={name},epsilon=0.01"
        assert entry(rows, "effective_depth", L, variant)["value"] == depth


def test_of_many_rows_an_even_sample_has_the_cosine(monkeypatch):
    monkeypatch.setattr("layerscope.training.layer_scores.COSINE_BYTES", 4 * L * D * 9)
    given, heads = batches(sizes=(7, 9, 3, 14))
    rows = scored(given, heads).compute()
    # 33 rows, at most 9 of them kept
    kept = at_once(given)[0][:, ::4]
    wanted = [float(cosine_similarity(one, kept[-1]).mean()) for one in kept]
    assert values(rows, "cosine_similarity") == pytest.approx(wanted, rel=1e-9)
    assert entry(rows, "cosine_similarity", 1)["n"] == 9


def test_states_that_are_not_finite_are_skipped_and_counted():
    given, heads = batches(sizes=(3,))
    given[0][0][0, 2] = torch.nan
    rows = scored(given, heads, collapse=(K, D)).compute()
    assert {(row["n"], row["n_skipped"]) for row in rows} == {(2, 1)}
    assert all(np.isfinite(row["value"]) for row in rows)
    assert np.isfinite(entry(rows, "cosine_similarity", 1)["stderr"])  # of two


def test_logits_are_made_in_chunks(monkeypatch):
    given, heads = batches(sizes=(50,))
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
    ((states, labels),), heads = batches(sizes=(3,))
    assert scored([(states, torch.full((3,), -100))], heads).compute() == []
    assert logged([], language_model=False) == {}
    for wrong, line in (
        (torch.tensor([0, 1, 4]), "label 4 is outside the head's 4 classes"),
        (labels[:2], "give one label for each state"),
    ):
        with refused(line):
            scored([(states, wrong)], heads)
    one_class = scored(
        [(states, torch.zeros(3, dtype=torch.long))], heads, collapse=(K, D)
    )
    assert not [row for row in one_class.compute() if row["metric"] == "nc1"]
