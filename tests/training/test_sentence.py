"""A sentence-transformers loss at every layer, held to the losses of models that are cut after each."""

import pytest
import tiny
import torch
from sentence_transformers.losses import (
    AdaptiveLayerLoss,
    BatchAllTripletLoss,
    CachedMultipleNegativesRankingLoss,
    ContrastiveTensionLoss,
    CoSENTLoss,
    CosineSimilarityLoss,
    MatryoshkaLoss,
    MultipleNegativesRankingLoss,
)
from sentence_transformers.models import Dense, Normalize
from trainers import gradients, still
from typed import refused

from layerscope.training import AlignedLoss


def served(folder, make=tiny.bert):
    path = tiny.saved(make(), folder / "model")
    torch.manual_seed(1)
    return still(tiny.sentence_encoder(path, Dense(32, 8), Normalize()).train())


def columns(model, n):
    return [model.preprocess(tiny.texts(6, seed=seed)) for seed in range(n)]


def blocks_of(model):
    module = model[0].auto_model
    return (
        (module.encoder, "layer") if hasattr(module, "encoder") else (module, "layers")
    )


def at_each_layer(model, loss):
    """Add up the gradients of a loss of models cut after each layer, one by one, and return their weighted sum."""
    parent, name = blocks_of(model)
    whole, total = getattr(parent, name), 0.0
    model.zero_grad()
    for layer in (1, 2, 3):
        setattr(parent, name, whole[:layer])
        part = layer / 6 * loss()
        part.backward()
        total += part.item()
    setattr(parent, name, whole)
    return total


def ranking(model):
    return MultipleNegativesRankingLoss(model)


LOSSES = {
    "ranking": (ranking, 3, None),
    "triplets": (BatchAllTripletLoss, 1, torch.tensor([0, 0, 1, 1, 2, 2])),
    "cosine": (CosineSimilarityLoss, 2, torch.linspace(0, 1, 6)),
    "order": (CoSENTLoss, 2, torch.linspace(0, 1, 6)),
    "matryoshka": (lambda m: MatryoshkaLoss(m, ranking(m), [8, 4]), 2, None),
}
"""A loss, how many columns of texts it reads, and their labels."""


@pytest.mark.parametrize(
    "kind, make, dims",
    [
        *((kind, tiny.bert, None) for kind in LOSSES),
        ("ranking", tiny.llama, None),
        ("ranking", tiny.bert, [5, 2]),
        ("order", tiny.bert, [5, 2]),
    ],
)
def test_loss_and_gradients_are_those_of_models_cut_after_each_layer(
    tmp_path, kind, make, dims
):
    model, (build, n, labels) = served(tmp_path, make), LOSSES[kind]
    plain, batch, runs = build(model), columns(model, n), []
    if dims:
        plain = MatryoshkaLoss(model, plain, [8, *dims], [1 / 3] * 3)
    wanted = at_each_layer(
        model, lambda: plain([dict(column) for column in batch], labels)
    )
    expected = gradients(model)
    model.zero_grad()
    aligned = AlignedLoss(build(model), dims=dims)
    blocks = getattr(*blocks_of(model))
    handle = blocks[0].register_forward_hook(lambda *_: runs.append(1))
    value = aligned(batch, labels)
    assert 0 < len(runs) <= n, (
        "one run for each column, or fewer where the loss joins them"
    )
    handle.remove()
    value.backward()
    assert value.item() == pytest.approx(wanted, rel=1e-5) and len(expected) > 20
    for name, one in gradients(model).items():
        torch.testing.assert_close(one, expected[name], rtol=1e-4, atol=1e-5, msg=name)
    assert "forward" not in model[0].__dict__
    assert not any(block._forward_hooks for block in blocks)
    assert set(batch[0]) == set(columns(model, 1)[0])


def test_embeddings_of_every_exit(tmp_path):
    model = served(tmp_path)
    (batch,), loss = columns(model, 1), AlignedLoss(ranking(model), dims=(5, 2))
    assert loss.dims == (2, 5, 8)
    states = loss.embeddings(batch)
    assert states.shape == (3, 6, 8)
    last = model(dict(batch))["sentence_embedding"]
    torch.testing.assert_close(states[-1], last)


def test_few_exits_keep_their_depths(tmp_path):
    model = served(tmp_path)
    loss, batch = ranking(model), columns(model, 2)

    def at(*layers, **weights):
        return AlignedLoss(loss, layers, **weights)(batch).item()

    one, two = at(1), at(3)
    assert at(1, 3) == pytest.approx(one / 4 + 3 * two / 4)
    assert at(1, 3, weights="uniform") == pytest.approx((one + two) / 2)
    assert two == pytest.approx(loss(batch, None).item()) and one != pytest.approx(two)


DIMS = r": give whole numbers from 1 to 8, the model's width"
WRONG = [
    (CachedMultipleNegativesRankingLoss, {}, "CachedMultipleNegativesRankingLoss chooses its layers or runs"),
    (lambda m: MatryoshkaLoss(m, ranking(m), [8]), {"dims": [4]},
     "MatryoshkaLoss has dimensions of its own: leave `dims` out"),
    (lambda m: AdaptiveLayerLoss(m, ranking(m)), {}, "AdaptiveLayerLoss chooses its layers or runs"),
    (ContrastiveTensionLoss, {}, "ContrastiveTensionLoss does not hold one SentenceTransformer"),
    (ranking, {"layers": [0, 3]}, r"exits \[0, 3\]: give increasing layers from 1 to 3"),
    (ranking, {"dims": [16, 4]}, rf"dims \[16, 4\]{DIMS}"),
]  # fmt: skip


def test_what_no_layer_can_learn_is_told(tmp_path):
    model = served(tmp_path)
    for build, options, line in WRONG:
        with refused(line):
            AlignedLoss(build(model), **options)
