"""Information about labels in states, against the definition with whole Grams."""

import numpy as np
import pytest

import layerscope
from layerscope.metrics import label_information


def entropy(gram: np.ndarray, alpha: float) -> float:
    values = np.linalg.eigvalsh(gram / np.trace(gram)).clip(0)
    if alpha == 1:
        values = values[values > 1e-15]
        return float(-(values * np.log(values)).sum())
    return float(np.log((values**alpha).sum()) / (1 - alpha))


def defined(states: np.ndarray, labels: np.ndarray, alpha: float) -> float:
    """Return S(A) + S(B) − S(A ∘ B) of whole Grams [N, N]."""
    unit = states / np.linalg.norm(states, axis=1, keepdims=True)
    A, B = unit @ unit.T, (labels[:, None] == labels[None]).astype(float)
    return entropy(A, alpha) + entropy(B, alpha) - entropy(A * B, alpha)


@pytest.mark.parametrize("alpha", [1.0, 1.5, 2.0])
@pytest.mark.parametrize("width", [3, 60])
def test_is_its_definition(rng: np.random.Generator, alpha: float, width: int) -> None:
    states, labels = rng.standard_normal((40, width)), rng.integers(0, 5, 40)
    found = label_information(states, np.array(list("abcde"))[labels], alpha=alpha, draws=3, seed=7)
    assert found.value == pytest.approx(defined(states, labels, alpha), abs=1e-9)
    orders, classes = np.random.default_rng(7), np.unique(labels, return_inverse=True)[1]
    chances = [defined(states, orders.permutation(classes), alpha) for _ in range(3)]
    assert found.chance == pytest.approx(np.mean(chances), abs=1e-9)
    assert found.spread == pytest.approx(np.std(chances, ddof=1), abs=1e-9)


def test_labels_that_states_know_exceed_chance_and_others_do_not(rng: np.random.Generator) -> None:
    labels = rng.integers(0, 4, 200)
    knowing = np.eye(4)[labels] @ rng.standard_normal((4, 16)) + 0.3 * rng.standard_normal(
        (200, 16)
    )
    known, unknown = (
        label_information(knowing, labels),
        label_information(rng.standard_normal((200, 16)), labels),
    )
    assert known.value - known.chance > 50 * known.spread
    assert abs(unknown.value - unknown.chance) < 4 * unknown.spread
    assert unknown.chance > 0.1  # few samples in many directions look as if they knew


def test_a_run_has_it_by_layer(tmp_path) -> None:
    texts = [
        f"{word} {other}"
        for word in ("good", "bad")
        for other in ("food", "book", "film", "day", "house", "play")
    ]
    labels = ["praise"] * 6 + ["blame"] * 6
    run = layerscope.profile(
        "minilm",
        texts,
        labels=labels,
        metrics="label_information",
        views=0,
        out=tmp_path / "run",
        progress=False,
    )
    found = run.table().query("metric == 'label_information'")
    assert len(found) == run.depth + 1
    for layer in (0, 3):
        states = run.pooled(layer, site=found.query(f"layer == {layer}")["site"].item())
        wanted = label_information(states, labels)
        row = found.query(f"layer == {layer}").iloc[0]
        assert row["value"] == pytest.approx(wanted.value - wanted.chance, abs=1e-6)
        assert row["stderr"] == pytest.approx(wanted.spread, abs=1e-6)


def test_the_first_line_of_a_run_names_the_layer_that_knows_most_or_that_none_does(
    tmp_path,
) -> None:
    rng = np.random.default_rng(0)
    texts = [
        f"{a} {b}"
        for a in ("good", "fine", "bad", "poor")
        for b in ("food", "book", "film", "day", "play", "cup")
    ]
    options = {"metrics": "label_information", "views": 0, "progress": False}
    known = layerscope.profile(
        "minilm", texts, labels=[i < 12 for i in range(24)], out=tmp_path / "a", **options
    )
    value = known.metric("label_information")
    layer = int(value[1:].idxmax())
    assert (
        f"no layer is named: the states of layer {layer} of 6 share most with your labels"
        in known.document().answer
    )
    none = layerscope.profile(
        "minilm", texts, labels=rng.permutation(24) < 12, out=tmp_path / "b", **options
    )
    (found,) = none.as_dict()["findings"]
    chance = none.table().set_index("layer").loc[1:].eval("value / stderr").max() < 1.96
    assert (found["layer"] is None) == chance == ("than chance does" in none.document().answer)
