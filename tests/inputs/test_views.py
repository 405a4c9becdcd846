import numpy as np
import pytest
import torch
from PIL import Image
from typed import refused

from layerscope.inputs import Waveform, augment, views

TEXT = "The quick brown fox jumps over the lazy dog while seven wizards quietly watch from nearby hills"
SOUND = Waveform(np.sin(np.arange(8000) / 5).astype(np.float32), 8000)
IMAGE = Image.fromarray(
    np.random.default_rng(0).integers(0, 255, (24, 32, 3), dtype=np.uint8)
)
SAMPLES = {
    "text": TEXT,
    "image": IMAGE,
    "audio": SOUND,
    "tensor": np.arange(64, dtype=np.float32),
}


def viewed(sample, modality, view=0, *, seed=0, sample_id=0):
    return augment(sample, modality, seed=seed, sample_id=sample_id, view=view)


def as_bytes(sample):
    if isinstance(sample, str):
        return sample.encode()
    return (
        sample.samples.tobytes()
        if isinstance(sample, Waveform)
        else np.asarray(sample).tobytes()
    )


@pytest.mark.parametrize("modality", SAMPLES)
def test_a_view_depends_on_seed_sample_and_number_alone(modality):
    def view(seed, sample_id, number):
        return as_bytes(
            viewed(SAMPLES[modality], modality, number, seed=seed, sample_id=sample_id)
        )

    original = as_bytes(SAMPLES[modality])
    views = {key: view(*key) for key in [(0, 0, 0), (0, 0, 1), (0, 1, 0), (1, 0, 0)]}
    assert len(set(views.values()) | {original}) == 5
    assert views == {key: view(*key) for key in reversed(views)}
    assert as_bytes(SAMPLES[modality]) == original


def only(monkeypatch, modality, change):
    """Let views of a modality change one thing."""
    if modality == "text":
        monkeypatch.setattr(views, "TEXT_CHANGES", (change,))
    else:
        monkeypatch.setitem(views.CHANGES, modality, (change,))


@pytest.mark.parametrize("kind", ["swap", "typo", "split"])
def test_each_kind_of_text_view_does_what_it_says(kind, monkeypatch):
    only(monkeypatch, "text", getattr(views, f"_{kind}"))
    monkeypatch.setattr(views, "SHARE", 0.05)
    for view in range(20):
        changed = viewed(TEXT, "text", view)
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


def test_typos_are_neighbours_in_the_same_case(monkeypatch):
    only(monkeypatch, "text", views._typo)
    for letter, neighbours in (("A", "QWSZ"), ("g", "tyfhvb")):
        hits = {viewed(letter, "text", v) for v in range(90)}
        assert hits == set(neighbours)


def test_a_tenth_of_the_words_changes(monkeypatch):
    only(monkeypatch, "text", views._typo)
    words = ("alpha beta\tgamma\n" * 100).strip()
    changed = viewed(words, "text")
    differing = sum(a != b for a, b in zip(words.split(), changed.split(), strict=True))
    assert differing == 30
    assert "".join(c for c in changed if c.isspace()) == "".join(
        c for c in words if c.isspace()
    )


def test_image_views_keep_size_and_mode(monkeypatch):
    seen = [viewed(IMAGE, "image", sample_id=i) for i in range(12)]
    assert all((view.size, view.mode) == (IMAGE.size, "RGB") for view in seen)
    assert viewed(Image.new("RGB", (1, 1)), "image").size == (1, 1)
    only(monkeypatch, "image", views._flip)
    flips = {as_bytes(viewed(IMAGE, "image", sample_id=i)) for i in range(12)}
    assert flips == {as_bytes(IMAGE), np.asarray(IMAGE)[:, ::-1].tobytes()}


def test_audio_noise_lies_15_to_30_db_below(monkeypatch):
    only(monkeypatch, "audio", views._hiss)
    for index in range(10):
        noisy = viewed(SOUND, "audio", seed=0, sample_id=index, view=0)
        noise = noisy.samples.astype(np.float64) - SOUND.samples
        ratio = 10 * np.log10(
            np.mean(np.square(SOUND.samples.astype(np.float64))) / np.mean(noise**2)
        )
        assert 14.5 < ratio < 30.5
        assert (noisy.samples.dtype, noisy.rate) == (np.float32, 8000)
    silence = Waveform(np.zeros(9, dtype=np.float32), 8000)
    assert not viewed(silence, "audio").samples.any()


@pytest.mark.parametrize("make", [np.asarray, torch.tensor])
def test_tensor_noise_is_a_tenth_of_its_deviation(make):
    row = make(np.random.default_rng(0).normal(3, 7, 20_000).astype(np.float32))
    changed = viewed(row, "tensor")
    assert changed.dtype == row.dtype
    assert abs(float((changed - row).std()) / 0.7 - 1) < 0.05
    with refused(r"cannot take noise: give floats, or `views=0`$"):
        viewed(make(np.arange(4).reshape(2, 2)), "tensor")


@pytest.mark.parametrize("make", [np.asarray, torch.tensor])
def test_a_tenth_of_token_ids_become_others_of_their_row(make):
    ids = make(np.arange(20_000) + 7)
    changed = viewed(ids, "tensor")
    assert changed.dtype == ids.dtype and set(changed.tolist()) <= set(ids.tolist())
    assert abs(float((np.asarray(changed) != np.asarray(ids)).mean()) - 0.1) < 0.01


def test_what_cannot_change_stays(monkeypatch):
    for text in ["", " ", "👩‍👩‍👧‍👦 🇩🇪", "… — !"]:
        assert viewed(text, "text") == text
    monkeypatch.setattr(views, "TEXT_CHANGES", (views._swap, views._typo))
    accented = "e\u0301o\u0301u\u0301"
    assert viewed(accented, "text") == accented
