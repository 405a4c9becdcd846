"""A sentence-transformers loss at every layer, held to the losses of models that are cut after each."""

from pathlib import Path
from typing import Any

import pytest
import tiny
import torch
from datasets import Dataset
from sentence_transformers import (
    SentenceTransformer,
    SentenceTransformerTrainer,
    SentenceTransformerTrainingArguments,
)
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
from sentence_transformers.models import Dense, Normalize, Pooling, Transformer
from tiny import one_thread
from torch import nn

from layerscope import LayerscopeError
from layerscope.training import AlignedLoss

__all__ = ["one_thread"]


def served(folder: Path, make: Any = tiny.bert) -> SentenceTransformer:
    path = tiny.saved(make(), folder / "model", special=make is tiny.bert)
    torch.manual_seed(1)
    modules = [Transformer(str(path)), Pooling(32, pooling_mode="mean"), Dense(32, 8), Normalize()]
    model = SentenceTransformer(modules=modules, device="cpu").train()
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0
    return model


def columns(model: SentenceTransformer, n: int) -> list[dict[str, Any]]:
    return [model.preprocess(tiny.texts(6, seed=seed)) for seed in range(n)]


def blocks_of(model: SentenceTransformer) -> tuple[nn.Module, str]:
    module = model[0].auto_model
    return (module.encoder, "layer") if hasattr(module, "encoder") else (module, "layers")


LOSSES = {
    "ranking": (lambda m: MultipleNegativesRankingLoss(m), 3, None),
    "triplets": (lambda m: BatchAllTripletLoss(m), 1, torch.tensor([0, 0, 1, 1, 2, 2])),
    "cosine": (lambda m: CosineSimilarityLoss(m), 2, torch.linspace(0, 1, 6)),
    "matryoshka": (lambda m: MatryoshkaLoss(m, MultipleNegativesRankingLoss(m), [8, 4]), 2, None),
}


@pytest.mark.parametrize("kind", LOSSES)
@pytest.mark.parametrize("make", [tiny.bert, tiny.llama], ids=["bert", "llama, a final norm"])
def test_loss_and_gradients_are_those_of_models_cut_after_each_layer(
    tmp_path: Path, kind: str, make: Any
):
    model = served(tmp_path, make)
    build, n, labels = LOSSES[kind]
    loss, batch = build(model), columns(model, n)
    parent, name = blocks_of(model)
    whole, wanted = getattr(parent, name), 0.0
    for layer in (1, 2, 3):
        setattr(parent, name, whole[:layer])
        part = layer / 6 * loss([dict(column) for column in batch], labels)
        part.backward()
        wanted += part.item()
    setattr(parent, name, whole)
    expected = {
        key: value.grad.clone() for key, value in model.named_parameters() if value.grad is not None
    }
    model.zero_grad()
    runs = []
    handle = whole[0].register_forward_hook(lambda *_: runs.append(1))
    found = AlignedLoss(loss)
    runs.clear()
    value = found(batch, labels)
    assert (
        0 < len(runs) <= n
    )  # one run of the transformer for each column, or fewer where the loss joins them
    handle.remove()
    value.backward()
    assert value.item() == pytest.approx(wanted, rel=1e-5) and len(expected) > 20
    for key, one in expected.items():
        torch.testing.assert_close(
            model.get_parameter(key).grad, one, rtol=1e-4, atol=1e-5, msg=key
        )
    assert "forward" not in model[0].__dict__ and not any(block._forward_hooks for block in whole)
    assert set(batch[0]) == set(columns(model, 1)[0])


def ranked(one: torch.Tensor, two: torch.Tensor, _: Any) -> torch.Tensor:
    return nn.functional.cross_entropy(20 * one @ two.T, torch.arange(len(one)))


def ordered(one: torch.Tensor, two: torch.Tensor, truth: torch.Tensor) -> torch.Tensor:
    cosine = 20 * (one * two).sum(-1)
    wrong = [
        cosine[i] - cosine[j]
        for i in range(len(one))
        for j in range(len(one))
        if truth[i] < truth[j]
    ]
    return torch.stack([torch.zeros_like(cosine[0]), *wrong]).logsumexp(0)


def looped(
    model: SentenceTransformer, batch: Any, labels: Any, formula: Any, planted: str
) -> float:
    """The loss of models cut after each layer at every prefix, one by one, written out; its gradients are added up."""
    parent, name = blocks_of(model)
    whole, total = getattr(parent, name), 0.0
    dims = (2, 5) if planted == "without the full width" else (2, 5, 8)
    for layer in (1, 2, 3):
        setattr(parent, name, whole[:layer])
        sides = [model(dict(column))["sentence_embedding"] for column in batch]
        for d in dims:
            cuts = [side[:, -d:] if planted == "the other end" else side[:, :d] for side in sides]
            ready = (
                cuts if planted == "not scaled" else [nn.functional.normalize(cut) for cut in cuts]
            )
            share = 1 if planted == "a sum" else 1 / len(dims)
            part = (1 / 3 if planted == "uniform" else layer / 6) * share * formula(*ready, labels)
            part.backward(retain_graph=True)
            total += part.item()
    setattr(parent, name, whole)
    return total


@pytest.mark.parametrize("kind", ["ranking", "order"])
def test_every_layer_and_prefix_is_the_explicit_double_loop(tmp_path: Path, kind: str):
    model = served(tmp_path).double()
    build, formula, labels = {
        "ranking": (MultipleNegativesRankingLoss, ranked, None),
        "order": (CoSENTLoss, ordered, torch.linspace(0, 1, 6).double()),
    }[kind]
    batch, runs = columns(model, 2), []
    loss = AlignedLoss(build(model), dims=(5, 2))
    assert loss.dims == (2, 5, 8)
    handle = (
        blocks_of(model)[0]
        .get_submodule("layer")[0]
        .register_forward_hook(lambda *_: runs.append(1))
    )
    value = loss(batch, labels)
    assert len(runs) <= 2  # for three layers and three prefixes of both columns
    handle.remove()
    value.backward()
    found = {key: one.grad.clone() for key, one in model.named_parameters() if one.grad is not None}

    def largest_difference(planted: str = "") -> float:
        model.zero_grad()
        total = looped(model, batch, labels, formula, planted)
        apart = [
            float((found[key] - one.grad).abs().max())
            for key, one in model.named_parameters()
            if key in found
        ]
        assert len(apart) > 20
        return max(abs(total - value.item()), *apart)

    assert largest_difference() < 1e-6
    for planted in ("without the full width", "the other end", "not scaled", "a sum", "uniform"):
        assert largest_difference(planted) > 1e-4, planted
    with torch.no_grad():
        states = AlignedLoss(build(model)).embeddings(batch[0])
        torch.testing.assert_close(states[-1], model(dict(batch[0]))["sentence_embedding"])
    assert states.shape == (3, 6, 8)


@pytest.mark.parametrize(
    ("dims", "message"),
    [
        ([16, 4], r"dims \[16, 4\]: give different whole numbers from 1 to 8, the model's width"),
        ([0, 4], r"dims \[0, 4\]: give different"),
        ([4, 4], r"dims \[4, 4\]: give different"),
        ([], r"dims \[\]: give"),
    ],
)
def test_dims_that_a_model_does_not_have_are_refused(tmp_path: Path, dims: list[int], message: str):
    with pytest.raises(LayerscopeError, match=message):
        AlignedLoss(MultipleNegativesRankingLoss(served(tmp_path)), dims=dims)


def test_few_exits_keep_their_depths(tmp_path: Path):
    model = served(tmp_path)
    loss, batch = MultipleNegativesRankingLoss(model), columns(model, 2)
    one, two = (AlignedLoss(loss, [layer])(batch).item() for layer in (1, 3))
    assert AlignedLoss(loss, [1, 3])(batch).item() == pytest.approx(one / 4 + 3 * two / 4)
    assert AlignedLoss(loss, [1, 3], "uniform")(batch).item() == pytest.approx((one + two) / 2)
    assert two == pytest.approx(loss(batch, None).item()) and one != pytest.approx(two)


def test_a_trainer_trains_every_layer_with_it(tmp_path: Path):
    model = served(tmp_path)
    pairs = tiny.texts(32, seed=3, longest=8)
    data = Dataset.from_dict(
        {"anchor": pairs, "positive": [" ".join(reversed(text.split())) for text in pairs]}
    )
    args = SentenceTransformerTrainingArguments(
        str(tmp_path / "out"),
        max_steps=20,
        per_device_train_batch_size=8,
        learning_rate=3e-3,
        logging_steps=1,
        report_to="none",
        use_cpu=True,
        disable_tqdm=True,
        save_strategy="no",
        seed=0,
    )
    trainer = SentenceTransformerTrainer(
        model=model,
        args=args,
        train_dataset=data,
        loss=AlignedLoss(MultipleNegativesRankingLoss(model)),
    )
    trainer.train()
    losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
    assert sum(losses[-4:]) < 0.7 * sum(losses[:4])
    model.save_pretrained(str(tmp_path / "saved"))
    again = SentenceTransformer(str(tmp_path / "saved"), device="cpu")
    torch.testing.assert_close(
        again.encode(pairs[:3], convert_to_tensor=True),
        model.eval().encode(pairs[:3], convert_to_tensor=True),
    )


def test_what_cannot_be_asked_at_every_layer_is_told(tmp_path: Path):
    model = served(tmp_path)
    cached = CachedMultipleNegativesRankingLoss(model)
    for loss in (cached, MatryoshkaLoss(model, cached, [8])):
        with pytest.raises(
            LayerscopeError,
            match="CachedMultipleNegativesRankingLoss runs the model again after its loss",
        ):
            AlignedLoss(loss)
    inner = MatryoshkaLoss(model, MultipleNegativesRankingLoss(model), [8])
    with pytest.raises(
        LayerscopeError, match="MatryoshkaLoss has dimensions of its own: leave `dims` out"
    ):
        AlignedLoss(inner, dims=[4])
    with pytest.raises(
        LayerscopeError,
        match="AdaptiveLayerLoss trains every layer itself: give it to the Trainer as",
    ):
        AlignedLoss(AdaptiveLayerLoss(model, MultipleNegativesRankingLoss(model)))
    with pytest.raises(
        LayerscopeError, match="ContrastiveTensionLoss holds 2 SentenceTransformers"
    ):
        AlignedLoss(ContrastiveTensionLoss(model))
    with pytest.raises(LayerscopeError, match="CrossEntropyLoss holds no SentenceTransformer"):
        AlignedLoss(nn.CrossEntropyLoss())
    with pytest.raises(
        LayerscopeError, match=r"exits \[0, 3\]: give increasing layers from 1 to 3"
    ):
        AlignedLoss(MultipleNegativesRankingLoss(model), [0, 3])
