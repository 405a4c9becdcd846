import numpy as np
import pytest
import tiny

from layerscope import profile
from layerscope.core.errors import LayerscopeError
from layerscope.inputs import make_extreme, open_corpus, random_tokens, repeat_tokens
from layerscope.models import LoadOptions, load

one_thread = tiny.one_thread

IDS = tuple(range(10, 40))
SPECIAL = {10, 39}


def rng(seed=0):
    return np.random.default_rng(seed)


def test_a_share_of_nothing_leaves_every_token_as_it_is():
    assert repeat_tokens(IDS, 0, rng()) == IDS
    assert random_tokens(IDS, 0, range(100), rng()) == IDS


def test_a_share_of_one_leaves_one_token_repeated_or_none_in_place():
    whole = repeat_tokens(IDS, 1, rng(), SPECIAL)
    assert (whole[0], whole[-1]) == (10, 39)
    assert len(set(whole[1:-1])) == 1 and whole[1] in IDS[1:-1]
    drawn = random_tokens(IDS, 1, [7, 8], rng(), SPECIAL)
    assert (drawn[0], drawn[-1]) == (10, 39) and set(drawn[1:-1]) == {7, 8}


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9])
def test_tokens_are_replaced_with_that_probability_each_by_itself(share):
    ids = tuple(range(1000, 21000))
    for new in (
        repeat_tokens(ids, share, rng(1)),
        random_tokens(ids, share, range(1000), rng(1)),
    ):
        replaced = np.array(new) != np.array(ids)
        assert abs(replaced.mean() - share) < 4 * np.sqrt(
            share * (1 - share) / len(ids)
        )
        pairs = (replaced[1:] & replaced[:-1]).mean()  # of neighbours too: no runs
        assert abs(pairs - share**2) < 0.02
    drawn = np.array(random_tokens(ids, 1, range(1000), rng(2)))
    counts = np.bincount(drawn, minlength=1000)
    # chi squared of a uniform draw
    assert ((counts - 20) ** 2 / 20).sum() < 1000 + 5 * np.sqrt(2000)


def test_texts_become_windows_seeded_by_their_names_and_special_tokens_stay():
    tokenizer = tiny.tokenizer(special=True)
    texts = tiny.texts(6)
    corpus = open_corpus(texts)

    def tokenised(samples):
        return tokenizer(list(samples))["input_ids"]

    def make(of, kind="random", share=0.5):
        return make_extreme(
            of, kind, share, tokenizer=tokenizer, tokenised=tokenised, rows=94, seed=3
        )

    new = make(corpus)
    assert (
        new.name == f"{corpus.name}-random-0.5" and "probability 0.5" in new.notes[-1]
    )
    assert all(
        w.ids[0] == 1 and w.ids[-1] == 2 and not {0, 1, 2, 3} & set(w.ids[1:-1])
        for w in new.samples
    )
    # whatever else is drawn
    assert make(corpus.take([4])).samples[0].ids == new.samples[4].ids
    assert [list(w.ids) for w in make(corpus, "repeat", 0).samples] == tokenised(texts)
    assert (
        make(corpus, "repeat", 1)
        .samples[5]
        .text.split()
        .count(make(corpus, "repeat", 1).samples[5].text.split()[0])
        > 1
    )


def test_a_run_without_replacement_is_the_plain_run_and_another_share_another_run(
    tmp_path,
):
    model, data = (
        load(
            str(tiny.saved(tiny.gpt2(), tmp_path / "m", special=False)), LoadOptions()
        ),
        tiny.texts(30),
    )
    how = {
        "processor": model.processor,
        "metrics": "prompt_entropy",
        "views": 0,
        "progress": False,
    }
    plain = profile(model.module, data, out=tmp_path / "plain", **how)
    same = profile(model.module, data, out=tmp_path / "same", repeat_tokens=0, **how)
    one = profile(model.module, data, out=tmp_path / "one", repeat_tokens=1.0, **how)
    np.testing.assert_allclose(
        same.metric("prompt_entropy"), plain.metric("prompt_entropy"), rtol=1e-6
    )
    assert (
        one.metric("prompt_entropy").iloc[1:] < plain.metric("prompt_entropy").iloc[1:]
    ).all()
    with pytest.raises(LayerscopeError, match="holds another run"):
        profile(model.module, data, out=tmp_path / "one", repeat_tokens=0.5, **how)
