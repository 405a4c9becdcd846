"""Folders and archives of images and sounds, some or all of them broken."""

import io
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import soundfile
from PIL import Image

import layerscope
from wrong_input.conftest import noise

LOOKED_FOR = "images (.jpg, .jpeg, .png, .bmp, .gif, .tif, .tiff, .webp, .ppm, .pgm) or sounds (.wav, .flac, .ogg)"


def image(seed: int, kind: str = "png") -> bytes:
    stream = io.BytesIO()
    Image.fromarray(noise(seed, 40, 40, 3)).save(stream, kind)
    return stream.getvalue()


def sound(seed: int, length: int = 2000) -> bytes:
    stream = io.BytesIO()
    soundfile.write(
        stream, np.random.default_rng(seed).standard_normal(length) * 0.1, 16000, format="WAV"
    )
    return stream.getvalue()


def not_finite() -> bytes:
    stream = io.BytesIO()
    soundfile.write(stream, np.full(2000, np.nan), 16000, format="WAV", subtype="FLOAT")
    return stream.getvalue()


GOOD: dict[str, list[bytes]] = {
    "png": [image(i) for i in range(6)],
    "wav": [sound(i) for i in range(6)],
}


def fill(folder: Path, suffix: str, others: dict[str, bytes]) -> Path:
    """Write six good files in two sub-folders, and others beside them."""
    good = {f"{'ab'[i % 2]}/{i}.{suffix}": content for i, content in enumerate(GOOD[suffix])}
    for name, content in (good | others).items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return folder


BROKEN: dict[str, tuple[str, dict[str, bytes], str]] = {
    "no image": ("png", {"a/x.png": b"nope"}, "1 broken image file left out: a/x.png"),
    "an empty image": ("png", {"a/x.jpg": b""}, "1 broken image file left out: a/x.jpg"),
    "a cut png": ("png", {"b/x.png": image(9)[:300]}, "1 broken image file left out: b/x.png"),
    "a cut jpeg": (
        "png",
        {"b/x.jpg": image(9, "jpeg")[:-50]},
        "1 broken image file left out: b/x.jpg",
    ),
    "several": (
        "png",
        {f"b/x{i}.png": b"nope" for i in range(7)},
        "7 broken image files left out: b/x0.png, b/x1.png, b/x2.png, b/x3.png, b/x4.png, …",
    ),
    "no sound": ("wav", {"a/x.wav": b"nope"}, "1 broken audio file left out: a/x.wav"),
    "an empty sound": ("wav", {"a/x.wav": b""}, "1 broken audio file left out: a/x.wav"),
    "a sound of nothing": (
        "wav",
        {"a/x.wav": sound(9, 0)},
        "1 broken audio file left out: a/x.wav",
    ),
    "a cut wav": ("wav", {"a/x.wav": sound(9)[:900]}, "1 broken audio file left out: a/x.wav"),
    "a short sound": (
        "wav",
        {"a/x.wav": sound(9, 3)},
        "1 of 7 sounds are too short for the model: they are left out and counted (a/x.wav)",
    ),
    "a sound of NaN": (
        "wav",
        {"a/x.wav": not_finite()},
        "1 of 7 forwards of tiny-wav2vec2 hold NaN or infinity (first: layer 0, sample a/x.wav): "
        "they are left out and counted; --dtype float32 may help",
    ),
    "images among sounds": (
        "wav",
        {"a/x.png": image(1)},
        "1 image file beside the audio files left out",
    ),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_file_among_good_ones(told: Callable, request, tmp_path: Path, name: str) -> None:
    suffix, others, line = BROKEN[name]
    folder = fill(tmp_path / "media", suffix, others)
    model = request.getfixturevalue("vit" if suffix == "png" else "wav2vec2")
    assert line in told(model, folder, "--metrics", "curvature,cka", "--views", 0)
    run = layerscope.open_run(tmp_path / "run")
    table = run.table()
    assert set(table["n"]) == {6} and table["value"].notna().all()
    assert set(run.folder.plan["name"]) - set(others) == {
        f"{'ab'[i % 2]}/{i}.{suffix}" for i in range(6)
    }


REFUSED: dict[str, tuple[dict[str, bytes], str]] = {
    "empty": ({}, "{} is an empty folder: it should hold " + LOOKED_FOR),
    "only hidden": ({".DS_Store": b"x"}, "{} is an empty folder: it should hold " + LOOKED_FOR),
    "other files": (
        {"a.docx": b"x", "b/c.csv": b"text\nx\n"},
        "{} holds no " + LOOKED_FOR + ": give one of its files instead (a.docx, b/c.csv)",
    ),
    "all images broken": (
        {"a.png": b"nope", "b.jpg": b""},
        "{}: none of its 2 image files can be read (a.png: it is not an image): replace them",
    ),
    "all sounds broken": (
        {"a.wav": b"nope"},
        "{}: none of its 1 audio file can be read (a.wav: Format not recognised): replace them",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_folder_with_nothing_to_see_or_hear(
    refused, vit: Path, tmp_path: Path, name: str
) -> None:
    files, message = REFUSED[name]
    folder = tmp_path / "media"
    folder.mkdir()
    for file, content in files.items():
        (folder / file).parent.mkdir(exist_ok=True)
        (folder / file).write_bytes(content)
    assert refused("profile", vit, "--data", folder, "--out", tmp_path / "run") == message.format(
        folder
    )


def test_sounds_that_are_all_too_short(refused, wav2vec2: Path, tmp_path: Path) -> None:
    for i in range(3):
        (tmp_path / f"{i}.wav").write_bytes(sound(i, 4))
    line = refused("profile", wav2vec2, "--data", tmp_path, "--out", tmp_path / "run")
    assert line == "the sounds are too short for this model: give longer ones"


def packed(names: dict[str, bytes]) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        for name, content in names.items():
            archive.writestr(name, content)
    return stream.getvalue()


def rolled(names: dict[str, bytes]) -> bytes:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w:gz") as archive:
        for name, content in names.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return stream.getvalue()


ARCHIVES: dict[str, tuple[bytes, str]] = {
    "empty.zip": (b"", "{} is empty: give an archive of " + LOOKED_FOR),
    "empty.tar.gz": (b"", "{} is empty: give an archive of " + LOOKED_FOR),
    "junk.zip": (
        b"junk",
        "{} is not a complete archive (File is not a zip file): download or pack it again",
    ),
    "cut.zip": (
        packed({"a.png": image(0)})[:900],
        "{} is not a complete archive (File is not a zip file): download or pack it again",
    ),
    "cut.tar.gz": (
        rolled({"a.png": image(0)})[:900],
        "{} is not a complete archive (Compressed file ended before the end-of-stream marker was reached): download "
        "or pack it again",
    ),
    "none.zip": (packed({}), "{} holds no " + LOOKED_FOR),
    "table.zip": (
        packed({"data.csv": b"text\na\n"}),
        "{} holds no " + LOOKED_FOR + "; it holds data.csv: unpack it and give that",
    ),
    "broken.zip": (
        packed({"a.png": b"nope"}),
        "{}: none of its 1 image file can be read (a.png: it is not an image): replace them",
    ),
}


@pytest.mark.parametrize("name", ARCHIVES)
def test_a_wrong_archive(refused, vit: Path, tmp_path: Path, name: str) -> None:
    content, message = ARCHIVES[name]
    path = tmp_path / name
    path.write_bytes(content)
    assert refused("profile", vit, "--data", path, "--out", tmp_path / "run") == message.format(
        path
    )
