"""Folders of images and sounds, some or all of them broken."""

import io

import numpy as np
import pytest
import soundfile
from PIL import Image

import layerscope
from wrong_input.conftest import noise

LOOKED_FOR = "images (.jpg, .jpeg, .png, .bmp, .gif, .tif, .tiff, .webp, .ppm, .pgm) or sounds (.wav, .flac, .ogg)"


def image(seed, kind="png"):
    stream = io.BytesIO()
    Image.fromarray(noise(seed, 40, 40, 3)).save(stream, kind)
    return stream.getvalue()


def sound(seed, length=2000):
    stream = io.BytesIO()
    soundfile.write(
        stream,
        np.random.default_rng(seed).standard_normal(length) * 0.1,
        16000,
        format="WAV",
    )
    return stream.getvalue()


def not_finite():
    stream = io.BytesIO()
    soundfile.write(stream, np.full(2000, np.nan), 16000, format="WAV", subtype="FLOAT")
    return stream.getvalue()


GOOD = {
    "png": [image(i) for i in range(6)],
    "wav": [sound(i) for i in range(6)],
}


def fill(folder, suffix, others):
    """Write six good files in two sub-folders, and others beside them."""
    good = {
        f"{'ab'[i % 2]}/{i}.{suffix}": content for i, content in enumerate(GOOD[suffix])
    }
    for name, content in (good | others).items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return folder


@pytest.mark.parametrize("name", ["a short sound", "a sound of NaN"])
def test_a_sound_that_cannot_be_measured(told, wav2vec2, tmp_path, name):
    content, line = {
        "a short sound": (
            sound(9, 3),
            "1 of 7 sounds are too short for the model: they are left out and counted (a/x.wav)",
        ),
        "a sound of NaN": (
            not_finite(),
            "1 of 7 forwards of tiny-wav2vec2 hold NaN or infinity (first: layer 0, sample a/x.wav): "
            "they are left out and counted; --dtype float32 may help",
        ),
    }[name]
    folder = fill(tmp_path / "media", "wav", {"a/x.wav": content})
    assert line in told(wav2vec2, folder, "--metrics", "curvature,cka", "--views", 0)
    table = layerscope.open_run(tmp_path / "run").table()
    assert set(table["n"]) == {6} and table["value"].notna().all()


NONE = f"holds no {LOOKED_FOR}: give one of its files instead"
REFUSED = {
    "empty": ({}, NONE),
    "other files": (
        {"a.docx": b"x", "b/c.csv": b"x"},
        f"{NONE} (a.docx, b/c.csv), unpacked",
    ),
    "no image": (
        {"a/x.png": b"nope"},
        "a/x.png cannot be decoded (cannot identify image file",
    ),
    "a cut png": ({"x.png": image(9)[:300]}, "x.png cannot be decoded"),
    "images and sounds": (
        {"x.wav": sound(9), "x.png": image(1)},
        "holds images and sounds",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_folder_with_nothing_to_see_or_hear(refusal, vit, tmp_path, name):
    files, fault = REFUSED[name]
    folder = tmp_path / "media"
    folder.mkdir()
    for file, content in files.items():
        (folder / file).parent.mkdir(exist_ok=True)
        (folder / file).write_bytes(content)
    assert fault in refusal("profile", vit, "--data", folder, "--out", tmp_path / "run")


def test_sounds_that_are_all_too_short(refusal, wav2vec2, tmp_path):
    for i in range(3):
        (tmp_path / f"{i}.wav").write_bytes(sound(i, 4))
    line = refusal("profile", wav2vec2, "--data", tmp_path, "--out", tmp_path / "run")
    assert line == "the sounds are too short for this model: give longer ones"
