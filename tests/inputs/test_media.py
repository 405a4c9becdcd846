import numpy as np
import pandas as pd
import pytest
import soundfile
from PIL import Image
from typed import refused

from layerscope.inputs import Waveform, open_corpus, resample
from layerscope.inputs.tables import table_of


def image_file(path, seed=0):
    path.parent.mkdir(parents=True, exist_ok=True)
    pixels = np.random.default_rng(seed).integers(0, 255, (7, 9, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(path)
    return path


def sound_file(path, hertz=440):
    path.parent.mkdir(parents=True, exist_ok=True)
    time = np.arange(800) / 8000
    soundfile.write(path, 0.5 * np.sin(2 * np.pi * hertz * time), 8000)
    return path


def test_a_folder_of_images_is_labelled_by_sub_folder(tmp_path):
    for index, name in enumerate(
        ["cat/a.png", "cat/b.jpg", "dog/deep/c.png", "dog/.hidden.png"]
    ):
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
    monkeypatch.setattr(
        "layerscope.inputs.media.read_image", lambda file: pytest.fail("decoded")
    )
    taken = open_corpus(tmp_path).take([4, 2]).take([1])
    assert taken.names == ("2.png",)
    fingerprint = taken.fingerprint()
    image_file(tmp_path / "2.png", 99)
    assert taken.fingerprint() != fingerprint


def test_sounds_are_mono_float32(tmp_path):
    sound_file(tmp_path / "high/a.wav", 880)
    sound_file(tmp_path / "low/b.flac", 220)
    soundfile.write(
        tmp_path / "low/stereo.wav",
        np.stack([np.full(80, 0.5), np.zeros(80)], axis=1),
        8000,
    )
    corpus = open_corpus(str(tmp_path))
    assert corpus.modality == "audio"
    assert corpus.labels == ("high", "low", "low")
    first, stereo = corpus.samples[0], corpus.samples[2]
    assert (first.rate, first.samples.dtype, first.samples.shape) == (
        8000,
        np.float32,
        (800,),
    )
    assert np.allclose(stereo.samples, 0.25, atol=1e-3)


def test_splits_are_all_used_and_are_no_labels(tmp_path):
    for split in ("train", "test"):
        for name in ("cat", "dog"):
            image_file(tmp_path / "data" / split / name / "0.png")
    corpus = open_corpus(tmp_path / "data")
    assert corpus.labels == ("cat", "dog", "cat", "dog")
    for split in ("train", "test"):
        image_file(tmp_path / "bare" / split / "0.png")
    assert open_corpus(tmp_path / "bare").labels is None


def test_of_files_of_both_kinds_one_is_named(tmp_path):
    image_file(tmp_path / "a.png")
    sound_file(tmp_path / "c.wav")
    assert open_corpus(tmp_path, modality="audio").names == ("c.wav",)


def test_a_list_of_paths_keeps_its_order_and_labels(tmp_path, refusal):
    paths = [
        image_file(tmp_path / "x" / f"{name}.png", i) for i, name in enumerate("bac")
    ]
    assert open_corpus(paths).names == tuple(map(str, paths))
    assert open_corpus((paths, [2, 1, 3])).labels == (2, 1, 3)
    missing = tmp_path / "none.png"
    assert refusal([missing]).startswith(
        f"{missing} is not a file, or not of the same kind as the first: give existing files"
    )


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
    with refused("rate is 0 Hz: give 1 or more"):
        resample(tone, 0)


def test_a_frame_and_its_file_are_one_table(tmp_path):
    frame = pd.DataFrame({1: ["a", "b"], "label": [0, 1]}, index=[7, 9])
    frame.to_csv(tmp_path / "t.csv", index=False)
    for data in (frame, tmp_path / "t.csv"):
        found = table_of(data)
        assert list(found) == ["1", "label"] and found.index.tolist() == [0, 1]
    assert table_of(tmp_path / "t.txt") is None
