import numpy as np
import pandas as pd
import pytest
import torch
from PIL import Image

from layerscope.inputs import Waveform, open_corpus


@pytest.mark.parametrize("kind", [list, tuple, pd.Series, np.array])
def test_texts_in_memory(kind):
    corpus = open_corpus(kind(["a", "", "b"]))
    assert list(corpus.samples) == ["a", "b"]
    assert corpus.names == ("0", "2")
    assert corpus.notes == ("1 row without a text left out: 1",)
    assert open_corpus(corpus) is corpus


def test_texts_with_labels():
    assert open_corpus((["a", "b", "c"], np.array([1, 0, 1]))).labels == (1, 0, 1)
    assert open_corpus(("just", "two texts")).labels is None
    frame = pd.DataFrame(
        {"text": ["a", "b", "c"], "label": ["x", "y", "x"]}, index=[7, 8, 9]
    )
    for texts in (frame["text"], frame["text"].to_numpy(str)):
        corpus = open_corpus((texts, frame["label"]))
        assert (list(corpus.samples), corpus.labels) == (
            ["a", "b", "c"],
            ("x", "y", "x"),
        )


@pytest.mark.parametrize(
    "rows", [np.arange(12.0).reshape(4, 3), torch.arange(12.0).reshape(4, 3)]
)
def test_rows_of_an_array(rows):
    corpus = open_corpus((rows, [0, 1, 0, 1]))
    assert corpus.modality == "tensor"
    assert corpus.labels == (0, 1, 0, 1)
    assert corpus.samples[2].tolist() == [6.0, 7.0, 8.0]
    taken = corpus.take([3, 1]).take([1])
    assert taken.samples[0].tolist() == [3.0, 4.0, 5.0]
    assert (taken.names, taken.labels) == (("1",), (1,))


def test_images_in_memory_are_rgb():
    pixels = np.full((4, 5, 3), 200, dtype=np.uint8)
    grey = Image.fromarray(np.full((4, 5), 65535, dtype=np.uint16))
    corpus = open_corpus(
        [
            Image.fromarray(pixels),
            pixels,
            pixels[:, :, 0],
            grey,
            Image.new("RGBA", (5, 4)),
        ]
    )
    assert corpus.modality == "image"
    assert all(image.mode == "RGB" and image.size == (5, 4) for image in corpus.samples)
    assert corpus.samples[2].getpixel((0, 0)) == (200, 200, 200)
    assert corpus.samples[3].getpixel((0, 0)) == (255, 255, 255)
    (white,) = open_corpus([np.ones((3, 4, 5))], modality="image").samples
    assert white.size == (5, 4) and white.getextrema() == ((255, 255),) * 3


def test_sounds_in_memory():
    wave = np.array([0, 16384, -32768], dtype=np.int16)
    corpus = open_corpus([(wave, 8000), Waveform(np.ones(4, dtype=np.float32), 16000)])
    assert corpus.modality == "audio"
    assert corpus.samples[0].rate == 8000
    assert corpus.samples[0].samples.tolist() == [0.0, 0.5, -1.0]


def test_fingerprints_tell_contents_labels_and_order_apart():
    same = [open_corpus(["ab", "c"]), open_corpus(pd.Series(["ab", "c"]))]
    other = [
        open_corpus(["a", "bc"]),
        open_corpus(["c", "ab"]),
        open_corpus((["ab", "c"], [0, 1])),
        open_corpus((["ab", "c"], ["x", "y"])),
        open_corpus(np.zeros((2, 2))),
        open_corpus(np.zeros((2, 2), dtype=np.float32)),
        open_corpus(torch.zeros((2, 2), dtype=torch.bfloat16)),
    ]
    assert same[0].fingerprint() == same[1].fingerprint()
    assert len({corpus.fingerprint() for corpus in [same[0], *other]}) == 1 + len(other)


MISTAKES = [
    (
        ["a", 2],
        {},
        "the list of samples holds 2 (int) in row 1, not a text: give texts",
    ),
    (
        7,
        {},
        "data of type int cannot be read: give texts, images, sounds, paths, an array of rows, "
        "a data frame, a data set or a path",
    ),
    (
        [np.ones(3)],
        {},
        "a list of 1-D arrays may be sounds or features: give (array, rate) for each sound, or `modality='tensor'`",
    ),
    (np.ones(3), {}, "an array of shape (3,) has no rows of features: give [N, …]"),
    (
        [np.ones(3), np.ones(4)],
        {"modality": "tensor"},
        "the rows differ in shape ((3,), (4,)): give rows of one shape",
    ),
    ((np.ones((3, 2)), [1, 2]), {}, "2 labels for 3 samples: give one each"),
    (
        [np.full((2, 2), 3.0)],
        {"modality": "image"},
        "an image of floats has values outside 0..1: scale it, or give uint8",
    ),
]


@pytest.mark.parametrize(
    "data, options, message", MISTAKES, ids=[m[2][:30] for m in MISTAKES]
)
def test_wrong_data_in_memory(refusal, data, options, message):
    assert refusal(data, **options) == message
