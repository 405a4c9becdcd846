import json

import numpy as np
import pandas as pd

from layerscope.inputs import open_corpus


def write(path, text, encoding="utf-8"):
    path.write_bytes(text.encode(encoding) if isinstance(text, str) else text)
    return path


def test_csv_guesses_and_tells(tmp_path):
    path = write(
        tmp_path / "dev.csv", 'id,Sentence,label\n1,"a, b",yes\n2,"two\nlines",no\n'
    )
    corpus = open_corpus(str(path))
    assert list(corpus.samples) == ["a, b", "two\nlines"]
    assert corpus.labels == ("yes", "no")
    assert corpus.names == ("0", "1")
    assert corpus.notes == (
        "text column: 'Sentence' (guessed)",
        "label column: 'label' (guessed)",
    )
    assert corpus.name == f"{tmp_path.name}-dev"
    assert not corpus.running


def test_columns_by_option_and_by_their_usual_names(tmp_path):
    path = write(
        tmp_path / "t.csv", "short,long,n\nab,much longer than that,1\ncd,also much,2\n"
    )
    chosen = open_corpus(path, text_column="short", label_column="n")
    assert (chosen.samples[0], chosen.labels) == ("ab", (1, 2))
    pairs = write(
        tmp_path / "p.csv", "text_a,text_b,label\nfirst,second,0.5\nthird,fourth,1.0\n"
    )
    corpus = open_corpus(pairs)
    assert (list(corpus.samples), corpus.labels) == (["first", "third"], (0.5, 1.0))


def test_rows_without_text_or_label_are_left_out_and_named(tmp_path):
    rows = ["a,1", ",1", "c,", " ,0", "e,NaN", "f,0"]
    corpus = open_corpus(write(tmp_path / "t.csv", "text,label\n" + "\n".join(rows)))
    assert list(corpus.samples) == ["a", "f"]
    assert corpus.names == ("0", "5")
    assert corpus.labels == (1, 0)
    assert "2 rows without a text left out: 1, 3" in corpus.notes
    assert "2 rows without a label left out: 2, 4" in corpus.notes


def test_float_and_nan_labels_of_a_frame_become_whole_numbers():
    frame = pd.DataFrame({"text": list("abc"), "label": [1.0, np.nan, 0.0]})
    corpus = open_corpus(frame)
    assert corpus.labels == (1, 0)
    assert all(type(label) is int for label in corpus.labels)
    assert open_corpus(
        pd.DataFrame({"text": ["a", "b"], "label": [True, False]})
    ).labels == (1, 0)


def test_hostile_texts_come_through_whole(tmp_path):
    texts = [
        "x" * 300_000,
        "שלום עולם",
        "👩‍👩‍👧",
        "a\x00b",
        "<script>alert(1)</script>",
        "1",
    ]
    path = tmp_path / "t.jsonl"
    path.write_text(
        "\n".join(json.dumps({"text": text}) for text in texts), encoding="utf-8"
    )
    assert list(open_corpus(path).samples) == texts
    pd.DataFrame({"text": texts}).to_csv(tmp_path / "t.csv", index=False)
    assert list(open_corpus(tmp_path / "t.csv").samples) == texts


def test_plain_text_is_running_text_by_line(tmp_path):
    corpus = open_corpus(
        write(tmp_path / "story.txt", "one\r\n\r\n  \r\ntwo\u2028still two\r\n")
    )
    assert list(corpus.samples) == ["one", "two\u2028still two"]
    assert corpus.names == ("1", "4")
    assert corpus.running
    assert open_corpus(write(tmp_path / "story", "one\n")).running


def test_a_path_that_cannot_be(refusal):
    assert "does not exist" in refusal("nul\x00byte")


def test_an_unknown_modality(refusal):
    expected = "modality 'imag' does not exist, did you mean image? (choose text, image, audio, tensor)"
    assert refusal(["a"], modality="imag") == expected
    assert (
        refusal(["a"], modality="tensor")
        == "texts holds text samples, not tensor: leave `modality` out"
    )


def test_frames_of_odd_make(refusal):
    unnamed = pd.DataFrame([["first", 1], [None, 2]])
    assert list(open_corpus(unnamed, text_column="0").samples) == ["first"]
    category = pd.DataFrame(
        {"text": ["a", "b"], "label": pd.Categorical(["x", "y"])}, index=[7, 9]
    )
    assert open_corpus(category).labels == ("x", "y")
    assert open_corpus(category).names == ("0", "1")
    lists = open_corpus(pd.DataFrame({"text": ["a", "b"], "label": [[1, 2], [3]]}))
    assert lists.labels is None
    mixed = open_corpus(pd.DataFrame({"text": ["a", "b"], "label": ["x", 3]}))
    assert mixed.labels == ("x", "3")
    vectors = pd.DataFrame({"text": [np.ones(3), np.ones(3)]})
    assert refusal(vectors).startswith(
        "the data frame: column 'text' holds array([1., 1., 1.]) (ndarray) in row 0"
    )


def test_half_characters_of_labels_and_columns_are_mended(tmp_path):
    rows = '{"text": "a", "label": "\\ud83dx", "\\ud83d": 1}\n{"text": "b", "label": "y"}\n'
    assert open_corpus(write(tmp_path / "t.jsonl", rows)).labels == ("\ufffdx", "y")
    half = open_corpus(
        write(tmp_path / "u.jsonl", '{"text": "a\\ud800b"}\n{"text": "ok"}\n')
    )
    assert half.samples[0] == "a\ufffdb"
