import numpy as np
import pytest
import tiny
from text_runs import profile
from typed import refused

from layerscope.inputs import make_extreme, open_corpus


def made(texts, kind, share):
    """Return the ids of texts, and of what they become."""
    tokenizer = tiny.tokenizer(special=True)

    def tokenised(samples):
        return tokenizer(list(samples))["input_ids"]

    corpus = make_extreme(
        open_corpus(texts),
        kind,
        share,
        tokenizer=tokenizer,
        tokenised=tokenised,
        rows=94,
        seed=3,
    )
    return tokenised(open_corpus(texts).samples), corpus


@pytest.mark.parametrize("kind", ["repeat", "random"])
@pytest.mark.parametrize("share", [0, 0.1, 0.5, 0.9])
def test_tokens_are_replaced_with_that_probability_each_by_itself(kind, share):
    text = " ".join(f"w{i % 80}" for i in range(20_000))
    (ids,), corpus = made([text], kind, share)
    replaced = np.array(corpus.samples[0].ids) != np.array(ids)
    # one in 80 or 90 is replaced by itself
    assert abs(replaced.mean() - share) < 0.03 * share + 0.01
    pairs = (replaced[1:] & replaced[:-1]).mean()  # of neighbours too: no runs
    assert abs(pairs - share**2) < 0.04


def test_a_share_of_one_leaves_one_token_repeated_or_any_of_the_vocabulary():
    text = " ".join(f"w{i % 80}" for i in range(18_000))
    (ids,), repeated = made([text], "repeat", 1)
    window = repeated.samples[0]
    assert (window.ids[0], window.ids[-1]) == (ids[0], ids[-1])
    assert len(set(window.ids[1:-1])) == 1 and window.ids[1] in ids[1:-1]
    assert set(window.text.split()) == {window.text.split()[0]}
    _, drawn = made([text], "random", 1)
    counts = np.bincount(drawn.samples[0].ids[1:-1], minlength=94)
    expected = 18_000 / 90  # all but four special tokens
    assert not counts[:4].any()
    # chi squared of a uniform draw
    assert ((counts[4:] - expected) ** 2 / expected).sum() < 90 + 5 * np.sqrt(180)


def test_texts_become_windows_seeded_by_their_names():
    texts = tiny.texts(6)
    _, corpus = made(texts, "random", 0.5)
    assert corpus.name == "texts-random-0.5" and "probability 0.5" in corpus.notes[-1]
    named = open_corpus(texts).take([4])
    _, alone = made(named, "random", 0.5)
    # whatever else is drawn
    assert alone.samples[0].ids == corpus.samples[4].ids


def test_a_run_without_replacement_is_the_plain_run_and_another_share_another_run(
    tmp_path,
):
    def entropy(name, **options):
        options |= {"metrics": "prompt_entropy"}
        run = profile(tiny.gpt2(), tmp_path / name, tiny.texts(30), **options)
        return run.metric("prompt_entropy")

    plain, same = entropy("plain"), entropy("same", repeat_tokens=0)
    one = entropy("one", repeat_tokens=1.0)
    np.testing.assert_allclose(same, plain, rtol=1e-6)
    assert (one.iloc[1:] < plain.iloc[1:]).all()
    with refused("holds another run"):
        entropy("one", repeat_tokens=0.5)
