"""Two halves of a text find each other: recall by an independent count, ties, cutting, and a model of real words."""

import random
from pathlib import Path

import numpy as np
import pytest
import tiny
from tiny import one_thread

from layerscope.core.errors import LayerscopeError
from layerscope.evaluation import half_text, half_text_recall, half_text_reciprocal_rank
from layerscope.evaluation.encoders import layered
from layerscope.evaluation.half_text import clear_maximum, cut_in_half, half_text_ranks, halves_of
from layerscope.evaluation.texts import TextStates
from layerscope.inputs import open_corpus
from layerscope.models import LoadOptions, Override, load

__all__ = ["one_thread"]


def by_hand(a: np.ndarray, b: np.ndarray) -> tuple[list[float], list[float]]:
    """Recall and 1 / rank, one half at a time against all others."""
    halves = [v / np.linalg.norm(v) for v in (*a, *b)]
    n, recall, rank = len(a), [], []
    for i in range(n):
        places = []
        for me, partner in ((i, n + i), (n + i, i)):
            others = sorted((j for j in range(2 * n) if j != me), key=lambda j: -halves[me] @ halves[j])
            places.append(1 + others.index(partner))
        recall.append(np.mean([place == 1 for place in places]))
        rank.append(np.mean([1 / place for place in places]))
    return recall, rank


@pytest.mark.parametrize("block", [3, 1024])
@pytest.mark.parametrize("noise", [0.1, 1.0, 3.0])
def test_recall_is_that_of_a_count_by_hand(noise, block, monkeypatch):
    monkeypatch.setattr(half_text, "BLOCK", block)
    rng = np.random.default_rng(0)
    a = rng.normal(size=(40, 8))
    b = a + noise * rng.normal(size=a.shape)
    recall, rank = by_hand(a, b)
    assert half_text_recall(a, b).tolist() == recall
    assert half_text_reciprocal_rank(a, b) == pytest.approx(rank)


def test_same_halves_find_each_other_and_shuffled_ones_by_chance():
    rng = np.random.default_rng(1)
    a = rng.normal(size=(400, 16))
    assert half_text_recall(a, a + 1e-3 * rng.normal(size=a.shape)).mean() == 1
    chance = [half_text_recall(a, rng.permutation(rng.normal(size=a.shape))).mean() for _ in range(5)]
    assert np.mean(chance) == pytest.approx(1 / 799, abs=2e-3)


def test_states_that_are_all_alike_know_nothing():
    a = np.ones((50, 4))
    assert half_text_recall(a, a) == pytest.approx(1 / 99)
    assert half_text_reciprocal_rank(a, a) == pytest.approx(np.mean(1 / np.arange(1, 100)))


def test_two_equal_texts_share_the_hit():
    a = np.array([[1.0, 0, 0], [1, 0, 0], [0, 1, 0]])
    # each half of the first two has three others at the same place, one of them its own
    assert half_text_recall(a, a).tolist() == pytest.approx([1 / 3, 1 / 3, 1])


@pytest.mark.parametrize(
    ("a", "b", "line"),
    [
        (np.ones((3, 2)), np.ones((4, 2)), "states_a has shape (3, 2) and states_b (4, 2)"),
        (np.ones((1, 2)), np.ones((1, 2)), "two texts or more"),
        (np.full((3, 2), np.nan), np.ones((3, 2)), "states_a"),
    ],
)
def test_wrong_states(a, b, line):
    with pytest.raises(LayerscopeError) as error:
        half_text_recall(a, b)
    assert line in str(error.value)


def test_cut_at_the_sentence_nearest_to_the_middle_else_at_a_word():
    text = "One two three. Four five six seven eight. Nine ten eleven."
    assert cut_in_half(text) is not None
    assert cut_in_half("a b c d. e f g h") == ("a b c d.", "e f g h")
    assert cut_in_half("a. b c d e f g h") == ("a. b c", "d e f g h")  # that sentence ends too early
    assert cut_in_half("one two three four five six seven") is None
    first, second = cut_in_half(text)
    assert f"{first} {second}" == text


def test_texts_that_are_short_or_there_before_are_left_out_and_counted():
    texts = [f"w{i} b c d e f g h i" for i in range(30)]
    halves = halves_of(open_corpus([*texts, *texts[:5], "too short"]))
    assert (len(halves), halves.short, halves.repeated) == (30, 1, 5)
    assert len(halves_of(open_corpus(texts), most=25)) == 25
    assert halves_of(open_corpus(texts), 25, seed=1) != halves_of(open_corpus(texts), 25, seed=2)
    with pytest.raises(LayerscopeError, match="has 10 texts of 8 words or more"):
        halves_of(open_corpus(texts[:10]))


def test_lines_of_running_text_become_passages(tmp_path: Path):
    (tmp_path / "novel.txt").write_text("\n".join(f"line {i} of four words" for i in range(400)))
    halves = halves_of(open_corpus(tmp_path / "novel.txt"))
    # 5 words a line: 13 lines reach 64
    assert len(halves) == 400 // 13 and all(
        len(f.split()) + len(s.split()) == 65 for f, s in zip(halves.first, halves.second, strict=True)
    )


def test_texts_with_words_of_their_own_find_each_other_in_a_model(tmp_path: Path):
    folder = tiny.saved(tiny.bert(), tmp_path / "tiny", special=True)
    model = layered(load(str(folder), LoadOptions(device="cpu"), None), Override(), "text")
    rng = random.Random(0)
    own = [" ".join(rng.choices(tiny.WORDS[4 * i : 4 * i + 4], k=24)) for i in range(20)]
    mixed = [" ".join(rng.choices(tiny.WORDS, k=24)) for _ in range(200)]
    states = TextStates(model, [(layer, model.final, "mean") for layer in (0, 3)], tmp_path)
    known = half_text_ranks(states, halves_of(open_corpus(own)), model.final, "mean", [0, 3])
    random_words = half_text_ranks(states, halves_of(open_corpus(mixed)), model.final, "mean", [0, 3])
    assert known.shape == (20, 2) and known.mean(0).min() > 0.9
    assert random_words.mean(0).max() < 0.06  # by chance 0.016


def test_to_leave_the_last_layer_takes_two_standard_errors():
    rng = np.random.default_rng(0)
    values = rng.random((200, 3))
    assert clear_maximum(values + [0, 0.001, 0]) == 2
    assert clear_maximum(values + [0, 0.5, 0]) == 1
    assert clear_maximum(np.ones((10, 3))) == 2
