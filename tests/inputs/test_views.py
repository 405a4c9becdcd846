import difflib

import numpy as np
import pytest
import torch
from PIL import Image

from layerscope.core.errors import LayerscopeError
from layerscope.inputs import VIEW_KINDS, Waveform, augment, check_views

TEXT = "The quick brown fox jumps over the lazy dog while seven wizards quietly watch from nearby hills"
SOUND = Waveform(np.sin(np.arange(8000) / 5).astype(np.float32), 8000)
IMAGE = Image.fromarray(np.random.default_rng(0).integers(0, 255, (24, 32, 3), dtype=np.uint8))
SAMPLES = {"text": TEXT, "image": IMAGE, "audio": SOUND, "tensor": np.arange(64, dtype=np.float32)}


def as_bytes(sample):
    if isinstance(sample, str):
        return sample.encode()
    return (
        sample.samples.tobytes() if isinstance(sample, Waveform) else np.asarray(sample).tobytes()
    )


@pytest.mark.parametrize("modality", SAMPLES)
def test_a_view_depends_on_seed_sample_and_number_alone(modality):
    def view(seed, sample_id, number):
        return as_bytes(
            augment(SAMPLES[modality], modality, seed=seed, sample_id=sample_id, view=number)
        )

    original = as_bytes(SAMPLES[modality])
    views = {key: view(*key) for key in [(0, 0, 0), (0, 0, 1), (0, 1, 0), (1, 0, 0)]}
    assert len(set(views.values()) | {original}) == 5
    assert views == {key: view(*key) for key in reversed(views)}
    assert as_bytes(SAMPLES[modality]) == original


@pytest.mark.parametrize("kind", VIEW_KINDS["text"])
def test_each_kind_of_text_view_does_what_it_says(kind):
    for view in range(20):
        changed = augment(TEXT, "text", kinds=[kind], share=0.05, seed=1, sample_id=0, view=view)
        if kind == "split":
            assert len(changed.split()) == len(TEXT.split()) + 1
            assert changed.replace(" ", "") == TEXT.replace(" ", "")
            continue
        ((before, after),) = [
            (a, b) for a, b in zip(TEXT.split(), changed.split(), strict=True) if a != b
        ]
        if kind == "swap":
            assert sorted(before) == sorted(after)
        differing = [i for i in range(len(before)) if before[i] != after[i]]
        assert len(differing) == (2 if kind == "swap" else 1)
        assert kind == "typo" or differing[1] == differing[0] + 1


def test_typos_are_neighbours_in_the_same_case():
    hits = {augment("A", "text", kinds=["typo"], seed=0, sample_id=0, view=v) for v in range(60)}
    assert hits == set("QWSZ")
    hits = {augment("g", "text", kinds=["typo"], seed=0, sample_id=0, view=v) for v in range(90)}
    assert hits == set("tyfhvb")


@pytest.mark.parametrize("share", [0.01, 0.1, 0.5, 1.0])
def test_the_share_of_changed_words_is_kept(share):
    words = ("alpha beta\tgamma\n" * 100).strip()
    changed = augment(words, "text", kinds=["typo"], share=share, seed=0, sample_id=0, view=0)
    differing = sum(a != b for a, b in zip(words.split(), changed.split(), strict=True))
    assert differing == round(share * 300)
    assert "".join(c for c in changed if c.isspace()) == "".join(c for c in words if c.isspace())


HOSTILE = [
    "",
    " ",
    "a",
    "\n\t",
    "1",
    "日本語のテキスト",
    "שלום עולם",
    "مرحبا بالعالم",
    "👩‍👩‍👧‍👦 🇩🇪",
    "e\u0301e\u0301",
    "a\x00b",
    "\u200f",
    "<b>x</b>",
    "ﬁ İ ß",
]


@pytest.mark.parametrize("text", HOSTILE)
@pytest.mark.parametrize("kinds", [None, ["swap"], ["typo"], ["split"]])
def test_hostile_texts_pass(text, kinds):
    for view in range(10):
        changed = augment(text, "text", kinds=kinds, share=1.0, seed=0, sample_id=0, view=view)
        changed.encode()
        if (
            kinds == ["typo"]
            and text.isascii() is False
            and not any(c.isascii() and c.isalpha() for c in text)
        ):
            assert changed == text


def test_what_cannot_change_stays():
    for text in ["", " ", "👩‍👩‍👧‍👦 🇩🇪", "… — !"]:
        assert augment(text, "text", share=1.0, seed=0, sample_id=0, view=0) == text
    accented = "e\u0301o\u0301u\u0301"
    assert (
        augment(accented, "text", kinds=["swap", "typo"], seed=0, sample_id=0, view=0) == accented
    )


def test_a_long_text_is_quick_to_change():
    text = "x" * 100_000 + " " + "word " * 20_000
    changed = augment(text, "text", seed=0, sample_id=0, view=0)
    assert changed != text


def test_image_views_keep_size_and_mode():
    for kind in VIEW_KINDS["image"]:
        views = [
            augment(IMAGE, "image", kinds=[kind], seed=0, sample_id=i, view=0) for i in range(12)
        ]
        assert all((view.size, view.mode) == (IMAGE.size, "RGB") for view in views)
    flips = {
        as_bytes(augment(IMAGE, "image", kinds=["flip"], seed=0, sample_id=i, view=0))
        for i in range(12)
    }
    assert flips == {as_bytes(IMAGE), np.asarray(IMAGE)[:, ::-1].tobytes()}
    assert augment(Image.new("RGB", (1, 1)), "image", seed=0, sample_id=0, view=0).size == (1, 1)


def test_audio_noise_lies_15_to_30_db_below():
    for index in range(10):
        noisy = augment(SOUND, "audio", kinds=["noise"], seed=0, sample_id=index, view=0)
        noise = noisy.samples.astype(np.float64) - SOUND.samples
        ratio = 10 * np.log10(
            np.mean(np.square(SOUND.samples.astype(np.float64))) / np.mean(noise**2)
        )
        assert 14.5 < ratio < 30.5
        assert (noisy.samples.dtype, noisy.rate) == (np.float32, 8000)
    silence = Waveform(np.zeros(9, dtype=np.float32), 8000)
    assert not augment(silence, "audio", seed=0, sample_id=0, view=0).samples.any()


def test_audio_shift_is_a_roll_of_at_most_a_tenth():
    ramp = Waveform(np.arange(1000, dtype=np.float32), 8000)
    moves = [
        int(augment(ramp, "audio", kinds=["shift"], seed=0, sample_id=i, view=0).samples[0])
        for i in range(40)
    ]
    moves = [move if move <= 500 else move - 1000 for move in moves]
    assert max(map(abs, moves)) <= 100
    assert min(moves) < 0 < max(moves)


@pytest.mark.parametrize("make", [np.asarray, lambda x: torch.tensor(x)])
def test_tensor_noise_is_a_tenth_of_its_deviation(make):
    row = make(np.random.default_rng(0).normal(3, 7, 20_000).astype(np.float32))
    changed = augment(row, "tensor", seed=0, sample_id=0, view=0)
    assert changed.dtype == row.dtype
    assert abs(float((changed - row).std()) / 0.7 - 1) < 0.05
    with pytest.raises(LayerscopeError, match=r"cannot take noise: give floats, or `views=0`$"):
        augment(make(np.arange(4).reshape(2, 2)), "tensor", seed=0, sample_id=0, view=0)


@pytest.mark.parametrize("make", [np.asarray, lambda x: torch.tensor(x)])
def test_a_tenth_of_token_ids_become_others_of_their_row(make):
    ids = make(np.arange(20_000) + 7)
    changed = augment(ids, "tensor", seed=0, sample_id=0, view=0)
    assert changed.dtype == ids.dtype and set(changed.tolist()) <= set(ids.tolist())
    assert abs(float((np.asarray(changed) != np.asarray(ids)).mean()) - 0.1) < 0.01


def test_wrong_options():
    with pytest.raises(LayerscopeError) as caught:
        augment("a", "text", kinds=["tpyo"], seed=0, sample_id=0, view=0)
    assert (
        str(caught.value)
        == "view kind 'tpyo' does not exist for text, did you mean typo? (choose swap, typo, split)"
    )
    for share in (0, -1, 1.5, float("nan")):
        with pytest.raises(LayerscopeError) as caught:
            check_views("text", None, share)
        assert str(caught.value) == f"share is {share}: give more than 0 and at most 1"
    assert check_views("image", ["color", "crop"]) == ("crop", "color")


def test_a_default_view_stays_close_to_its_text():
    view = augment(TEXT, "text", seed=0, sample_id=0, view=0)
    assert difflib.SequenceMatcher(None, TEXT, view).ratio() > 0.9
