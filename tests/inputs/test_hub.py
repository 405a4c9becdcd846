import io
import time

import datasets
import numpy as np
import soundfile
from PIL import Image

from layerscope.inputs import open_corpus


def reviews():
    features = datasets.Features(
        {
            "review": datasets.Value("string"),
            "label": datasets.ClassLabel(names=["bad", "good"]),
        }
    )
    return datasets.Dataset.from_dict(
        {"review": ["a", "b", ""], "label": [1, 0, 1]}, features=features
    )


def test_a_data_set_in_memory_and_saved(tmp_path):
    corpus = open_corpus(reviews())
    assert list(corpus.samples) == ["a", "b"]
    assert corpus.labels == ("good", "bad")
    assert corpus.notes[:2] == (
        "text column: 'review' (guessed)",
        "label column: 'label' (guessed)",
    )
    reviews().save_to_disk(tmp_path / "reviews")
    for data in (f"hf:{tmp_path}/reviews", tmp_path / "reviews"):
        saved = open_corpus(data)
        assert saved.name == "reviews"
        assert saved.fingerprint() == corpus.fingerprint()


def test_the_split_is_chosen_and_told(tmp_path, refusal):
    both = datasets.DatasetDict({"train": reviews(), "test": reviews().select([0])})
    both.save_to_disk(tmp_path / "both")
    corpus = open_corpus(f"hf:{tmp_path}/both")
    assert (len(corpus), corpus.name) == (1, "both-test")
    assert corpus.notes[0] == "split: test (of train, test)"
    assert len(open_corpus(f"hf:{tmp_path}/both:train")) == 2
    message = refusal(f"hf:{tmp_path}/both:trian")
    assert (
        message
        == f"{tmp_path}/both has no split 'trian', did you mean train? (its splits: train, test)"
    )


def test_hidden_test_labels_are_no_labels():
    hidden = reviews().map(lambda row: {"label": -1})
    corpus = open_corpus(hidden)
    assert corpus.labels is None
    assert any(
        note.startswith("no labels: column 'label' holds neither")
        for note in corpus.notes
    )


def test_images_and_sounds_of_a_data_set(tmp_path):
    png = io.BytesIO()
    Image.new("L", (5, 4), 77).save(png, format="png")
    wav = io.BytesIO()
    soundfile.write(wav, np.full(80, 0.25), 8000, format="wav")
    rows = {"img": [{"bytes": png.getvalue(), "path": None}] * 2, "label": [3, 4]}
    features = datasets.Features(
        {"img": datasets.Image(), "label": datasets.Value("int64")}
    )
    images = open_corpus(datasets.Dataset.from_dict(rows, features=features))
    assert (images.modality, images.labels) == ("image", (3, 4))
    assert images.samples[1].getpixel((0, 0)) == (77, 77, 77)
    rows = {"audio": [{"bytes": wav.getvalue(), "path": "a.wav"}] * 2}
    heard = datasets.Dataset.from_dict(rows).cast_column("audio", datasets.Audio())
    sounds = open_corpus(heard).take([1])
    assert (sounds.modality, sounds.labels) == ("audio", None)
    assert np.allclose(sounds.samples[0].samples, 0.25, atol=1e-3)
    assert sounds.samples[0].rate == 8000


def test_wrong_names_and_folders(tmp_path, refusal):
    assert (
        refusal(f"hf:{tmp_path}/none")
        == f"{tmp_path}/none does not exist: give a folder written by save_to_disk"
    )
    (tmp_path / "state.json").write_text("{")
    message = refusal(f"hf:{tmp_path}")
    assert message.startswith(f"{tmp_path} is not a data set written by save_to_disk (")
    expected = "'hf:a//b' is not the name of a data set: write hf:name, hf:org/name or hf:org/name/config:split"
    assert refusal("hf:a//b") == expected
    expected = "the data set has no column 'txt' (its columns: review, label)"
    assert refusal(reviews(), text_column="txt") == expected
    stream = reviews().to_iterable_dataset()
    assert refusal(stream).startswith(
        "the data set is a stream: give a data set with a length"
    )


def test_no_hub_is_told_at_once(monkeypatch, refusal):
    monkeypatch.setenv("HF_HUB_OFFLINE", "0")
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")  # nobody listens there
    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", False)
    start = time.monotonic()
    message = refusal("hf:nobody/nothing:test")
    assert time.monotonic() - start < 10
    assert message == (
        "hf:nobody/nothing is not cached and the hub cannot be reached: "
        "save it elsewhere with save_to_disk and give its folder"
    )
