"""Folders of images and sounds, some or all of them broken."""

import io

import numpy as np
import pytest
import soundfile
from PIL import Image

import layerscope
from wrong_input.test_files import MEDIA


def image():
    stream = io.BytesIO()
    Image.new("RGB", (40, 40)).save(stream, "png")
    return stream.getvalue()


def wav(wave, **options):
    stream = io.BytesIO()
    soundfile.write(stream, wave, 16000, format="WAV", **options)
    return stream.getvalue()


def sound(seed, length=2000):
    return wav(np.random.default_rng(seed).standard_normal(length) * 0.1)


def write(folder, files):
    """Write files, by name, into a folder."""
    folder.mkdir()
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(content)
    return folder


SOUNDS = {
    "too short": (
        sound(9, 3),
        "1 of 7 sounds are too short for the model: they are left out and counted (x.wav)",
    ),
    "not finite": (
        wav(np.full(2000, np.nan), subtype="FLOAT"),
        "1 of 7 forwards of tiny-wav2vec2 hold NaN or infinity (first: layer 0, sample x.wav): "
        "they are left out and counted; --dtype float32 may help",
    ),
}


@pytest.mark.parametrize("name", SOUNDS)
def test_a_sound_that_cannot_be_measured(told, wav2vec2, tmp_path, name):
    content, line = SOUNDS[name]
    good = {f"{i}.wav": sound(i) for i in range(6)}
    folder = write(tmp_path / "media", good | {"x.wav": content})
    assert line in told(wav2vec2, folder, "--metrics", "curvature,cka", "--views", 0)
    table = layerscope.open_run(tmp_path / "run").table()
    assert set(table["n"]) == {6} and table["value"].notna().all()


NONE = f"holds no {MEDIA}: give one of its files instead"
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
    "a cut png": ({"x.png": image()[:60]}, "x.png cannot be decoded"),
    "images and sounds": (
        {"x.wav": sound(9), "x.png": image()},
        "holds images and sounds",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_folder_with_nothing_to_see_or_hear(unprofiled, vit, tmp_path, name):
    files, fault = REFUSED[name]
    assert fault in unprofiled(vit, write(tmp_path / "media", files))


def test_sounds_that_are_all_too_short(unprofiled, wav2vec2, tmp_path):
    folder = write(tmp_path / "media", {f"{i}.wav": sound(i, 4) for i in range(3)})
    line = "the sounds are too short for this model: give longer ones"
    assert unprofiled(wav2vec2, folder) == line
