import io
import sys
import tarfile
import zipfile

import numpy as np
import pytest
import soundfile
from PIL import Image

from layerscope.core.errors import LayerscopeError
from layerscope.inputs import Waveform, archives, open_corpus, resample


def refusal(data, **options):
    with pytest.raises(LayerscopeError) as caught:
        open_corpus(data, **options)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def image_file(path, value=0, size=(9, 7)):
    path.parent.mkdir(parents=True, exist_ok=True)
    pixels = np.random.default_rng(value).integers(0, 255, (*size[::-1], 3), dtype=np.uint8)
    Image.fromarray(pixels).save(path)
    return path


def sound_file(path, hertz=440, seconds=0.1, rate=8000):
    path.parent.mkdir(parents=True, exist_ok=True)
    time = np.arange(int(seconds * rate)) / rate
    soundfile.write(path, 0.5 * np.sin(2 * np.pi * hertz * time), rate)
    return path


def test_a_folder_of_images_is_labelled_by_sub_folder(tmp_path):
    for index, name in enumerate(["cat/a.png", "cat/b.jpg", "dog/deep/c.png", "dog/.hidden.png"]):
        image_file(tmp_path / "pets" / name, index)
    corpus = open_corpus(tmp_path / "pets")
    assert (corpus.name, corpus.modality) == ("pets", "image")
    assert corpus.names == ("cat/a.png", "cat/b.jpg", "dog/deep/c.png")
    assert corpus.labels == ("cat", "cat", "deep")
    assert corpus.notes == ("label: the last folder (2 classes)",)
    assert [image.size for image in corpus.samples] == [(9, 7)] * 3
    expected = np.asarray(Image.open(tmp_path / "pets/cat/a.png"))
    assert np.array_equal(np.asarray(corpus.samples[0]), expected)


def test_images_are_decoded_only_when_read(tmp_path, monkeypatch):
    for index in range(5):
        image_file(tmp_path / f"{index}.png", index)
    monkeypatch.setattr("layerscope.inputs.media.read_image", lambda file: pytest.fail("decoded"))
    taken = open_corpus(tmp_path).take([4, 2]).take([1])
    assert taken.names == ("2.png",)
    fingerprint = taken.fingerprint()
    image_file(tmp_path / "2.png", 99)
    assert taken.fingerprint() != fingerprint


def test_broken_files_among_good_ones_are_left_out_and_named(tmp_path):
    good = image_file(tmp_path / "a/good.jpg", size=(64, 64))
    image_file(tmp_path / "b/good.png", 1)
    (tmp_path / "a/cut.jpg").write_bytes(good.read_bytes()[:-400])
    (tmp_path / "b/cut.png").write_bytes((tmp_path / "b/good.png").read_bytes()[:-20])
    (tmp_path / "b/text.jpg").write_text("no image")
    (tmp_path / "b/void.gif").touch()
    corpus = open_corpus(tmp_path)
    assert corpus.names == ("a/good.jpg", "b/good.png")
    assert corpus.labels == ("a", "b")
    assert (
        corpus.notes[0]
        == "4 broken image files left out: a/cut.jpg, b/cut.png, b/text.jpg, b/void.gif"
    )
    (tmp_path / "a/good.jpg").unlink()
    (tmp_path / "b/good.png").unlink()
    message = refusal(tmp_path)
    expected = f"{tmp_path}: none of its 4 image files can be read (a/cut.jpg: it is cut short): replace them"
    assert message == expected


def test_a_file_that_breaks_after_opening_is_named(tmp_path):
    corpus = open_corpus(image_file(tmp_path / "x/a.png").parent)
    (tmp_path / "x/a.png").write_bytes(b"gone")
    with pytest.raises(
        LayerscopeError, match=r"^a\.png cannot be decoded \(.*\): replace the file or remove it$"
    ):
        corpus.samples[0]


def test_sounds_are_mono_float32_and_broken_ones_left_out(tmp_path):
    sound_file(tmp_path / "high/a.wav", 880)
    sound_file(tmp_path / "low/b.flac", 220)
    soundfile.write(
        tmp_path / "low/stereo.wav", np.stack([np.full(80, 0.5), np.zeros(80)], axis=1), 8000
    )
    soundfile.write(tmp_path / "low/void.wav", np.zeros(0), 8000)
    (tmp_path / "low/cut.wav").write_bytes((tmp_path / "high/a.wav").read_bytes()[:20])
    corpus = open_corpus(str(tmp_path))
    assert corpus.modality == "audio"
    assert corpus.labels == ("high", "low", "low")
    assert corpus.notes[0] == "2 broken audio files left out: low/cut.wav, low/void.wav"
    first, stereo = corpus.samples[0], corpus.samples[2]
    assert (first.rate, first.samples.dtype, first.samples.shape) == (8000, np.float32, (800,))
    assert np.allclose(stereo.samples, 0.25, atol=1e-3)


def test_a_missing_soundfile_is_told_with_the_command(tmp_path, monkeypatch):
    sound_file(tmp_path / "a.wav")
    monkeypatch.setitem(sys.modules, "soundfile", None)
    expected = 'sound files need soundfile, which is not installed: pip install "layerscope[audio]"'
    assert refusal(tmp_path) == expected


def test_prefixes_are_labels_only_where_they_look_like_classes(tmp_path):
    for name in ["7_jackson_0", "7_theo_1", "3_jackson_0", "3_theo_1"]:
        sound_file(tmp_path / "spoken" / f"{name}.wav")
    corpus = open_corpus(tmp_path / "spoken")
    assert corpus.labels == (3, 3, 7, 7)
    assert corpus.notes == ("label: the file name before the first '_' (2 classes, such as '3')",)
    for name in ["img_1", "img_2", "img_3"]:
        sound_file(tmp_path / "plain" / f"{name}.wav")
    assert open_corpus(tmp_path / "plain").labels is None


def test_splits_are_all_used_and_are_no_labels(tmp_path):
    for split in ("train", "test"):
        for name in ("cat", "dog"):
            image_file(tmp_path / "data" / split / name / "0.png")
    corpus = open_corpus(tmp_path / "data")
    assert corpus.labels == ("cat", "dog", "cat", "dog")
    assert corpus.notes[0] == "splits test, train: all are used"
    for split in ("train", "test"):
        image_file(tmp_path / "bare" / split / "0.png")
    assert open_corpus(tmp_path / "bare").labels is None


def test_files_of_both_kinds(tmp_path):
    image_file(tmp_path / "a.png")
    image_file(tmp_path / "b.png")
    sound_file(tmp_path / "c.wav")
    corpus = open_corpus(tmp_path)
    assert (corpus.modality, corpus.notes) == (
        "image",
        ("1 audio file beside the image files left out",),
    )
    assert open_corpus(tmp_path, modality="audio").modality == "audio"


def test_a_list_of_paths_keeps_its_order_and_labels(tmp_path):
    paths = [image_file(tmp_path / "x" / f"{name}.png", i) for i, name in enumerate("bac")]
    assert open_corpus(paths).names == tuple(map(str, paths))
    assert open_corpus([str(path) for path in paths], modality="image").modality == "image"
    paths[1].write_bytes(b"broken")
    assert open_corpus((paths, [2, 1, 3])).labels == (2, 3)
    missing = tmp_path / "none.png"
    assert refusal([missing]) == f"{missing} does not exist or is not a file: check the path"


@pytest.mark.parametrize("suffix", [".tar", ".tar.gz", ".tar.xz", ".zip"])
def test_an_archive_equals_its_folder(tmp_path, suffix):
    folder = tmp_path / "pets"
    for index, name in enumerate(["cat/a.png", "cat/b.png", "dog/c.png"]):
        image_file(folder / name, index)
    packed = tmp_path / "packed" / f"pets{suffix}"
    packed.parent.mkdir()
    if suffix == ".zip":
        with zipfile.ZipFile(packed, "w") as archive:
            for file in sorted(folder.rglob("*.png"), reverse=True):
                archive.write(file, file.relative_to(folder))
            archive.writestr("__MACOSX/cat/._a.png", b"x")
    else:
        with tarfile.open(packed, f"w:{suffix.removeprefix('.tar').removeprefix('.')}") as archive:
            archive.add(folder, ".")
    corpus = open_corpus(packed)
    assert corpus.name == "pets"
    assert corpus.labels == ("cat", "cat", "dog")
    assert corpus.fingerprint() == open_corpus(folder).fingerprint()
    (packed.parent / "README.md").write_text("about")
    inside = open_corpus(packed.parent)
    assert inside.notes[0] == f"opened the archive pets{suffix}"
    assert inside.fingerprint() == corpus.fingerprint()


def test_an_archive_that_memory_does_not_hold(tmp_path, monkeypatch):
    path = tmp_path / "a.tar.xz"
    with tarfile.open(path, "w:xz") as archive:
        archive.add(image_file(tmp_path / "x.png", size=(99, 99)), "x.png")
    monkeypatch.setattr(archives, "MEMORY_LIMIT", 1000)
    assert refusal(path) == f"{path} holds more than 9.31e-07 GiB: unpack it first"
    monkeypatch.undo()
    path.write_bytes(path.read_bytes()[:-3000])
    assert refusal(path).startswith(f"{path} is not a complete archive (")


def test_resample_keeps_a_tone_and_its_length():
    time = np.arange(8000) / 8000
    tone = Waveform(np.sin(2 * np.pi * 440 * time).astype(np.float32), 8000)
    heard = resample(tone, 16000)
    assert (heard.dtype, heard.shape) == (np.float32, (16000,))
    assert np.argmax(np.abs(np.fft.rfft(heard))) == 440
    wanted = np.sin(2 * np.pi * 440 * np.arange(16000) / 16000)
    assert np.abs(heard[1000:-1000] - wanted[1000:-1000]).max() < 0.01
    assert np.array_equal(resample(tone, 8000), tone.samples)
    stereo = Waveform(np.stack([tone.samples, -tone.samples], axis=1), 8000)
    assert np.abs(resample(stereo, 8000)).max() == 0
    with pytest.raises(LayerscopeError, match="rate is 0 Hz: give 1 or more"):
        resample(tone, 0)


def test_shared_sounds_and_images_open(shared):
    digits = open_corpus(shared / "data/fsdd")
    assert (digits.name, len(digits), set(digits.labels)) == (
        "fsdd_recordings",
        3000,
        set(range(10)),
    )
    assert digits.samples[0].rate == 8000
    assert all(
        name.startswith(f"recordings/{label}_")
        for name, label in zip(digits.names, digits.labels, strict=True)
    )


def test_shared_cifar10_opens(shared):
    corpus = open_corpus(shared / "data/cifar10")
    assert (len(corpus), len(set(corpus.labels)), corpus.labels[0]) == (60000, 10, "airplane")
    assert corpus.samples[59999].size == (32, 32)
    assert "splits test, train: all are used" in corpus.notes
    assert isinstance(
        corpus.samples[0], type(Image.open(io.BytesIO(corpus.samples.stored(0))).convert("RGB"))
    )
