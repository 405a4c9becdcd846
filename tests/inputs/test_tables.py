import json

import numpy as np
import pandas as pd
import pytest

from layerscope.core.errors import LayerscopeError
from layerscope.inputs import open_corpus


def write(path, text, encoding="utf-8"):
    path.write_bytes(text.encode(encoding) if isinstance(text, str) else text)
    return path


def refusal(data, **options):
    with pytest.raises(LayerscopeError) as caught:
        open_corpus(data, **options)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_csv_guesses_and_tells(tmp_path):
    path = write(tmp_path / "dev.csv", 'id,Sentence,label\n1,"a, b",yes\n2,"two\nlines",no\n')
    corpus = open_corpus(str(path))
    assert list(corpus.samples) == ["a, b", "two\nlines"]
    assert corpus.labels == ("yes", "no")
    assert corpus.names == ("0", "1")
    assert corpus.notes == ("text column: 'Sentence' (guessed)", "label column: 'label' (guessed)")
    assert corpus.name == f"{tmp_path.name}-dev"
    assert not corpus.running


@pytest.mark.parametrize("suffix", [".csv", ".tsv", ".jsonl", ".parquet", ".csv.gz", ".json"])
def test_every_kind_of_table_gives_the_same_corpus(tmp_path, suffix):
    frame = pd.DataFrame({"text": ["null", "naïve 日本", "NA"], "label": [0, 1, 0]})
    path = tmp_path / f"reviews{suffix}"
    if suffix == ".parquet":
        frame.to_parquet(path)
    elif suffix.startswith(".json"):
        frame.to_json(path, orient="records", lines=suffix == ".jsonl", force_ascii=False)
    else:
        frame.to_csv(path, index=False, sep="\t" if suffix == ".tsv" else ",")
    corpus = open_corpus(path)
    assert list(corpus.samples) == ["null", "naïve 日本", "NA"]
    assert corpus.labels == (0, 1, 0)
    assert corpus.name == "reviews"
    assert corpus.fingerprint() == open_corpus(frame).fingerprint()


def test_columns_by_option_and_by_length(tmp_path):
    path = write(
        tmp_path / "t.csv", "short,long,n\nab,much longer than that,1\ncd,also much longer,2\n"
    )
    assert open_corpus(path).samples[0] == "much longer than that"
    chosen = open_corpus(path, text_column="short", label_column="n")
    assert (chosen.samples[0], chosen.labels) == ("ab", (1, 2))
    only = write(tmp_path / "o.csv", "x,label\nfoo,a\nbar,b\n")
    assert list(open_corpus(only).samples) == ["foo", "bar"]


def test_pairs_use_the_first_and_scores_are_no_labels(tmp_path):
    path = write(tmp_path / "p.csv", "text_a,text_b,label\nfirst,second,0.5\nthird,fourth,1.0\n")
    corpus = open_corpus(path)
    assert list(corpus.samples) == ["first", "third"]
    assert corpus.labels is None
    assert corpus.notes[0] == "pairs: text_a is used"
    assert corpus.notes[-1] == "no labels: column 'label' holds scores or lists, not classes"


def test_rows_without_text_or_label_are_left_out_and_named(tmp_path):
    rows = ["a,1", ",1", "c,", " ,0", "e,NaN", "f,0"]
    corpus = open_corpus(write(tmp_path / "t.csv", "text,label\n" + "\n".join(rows)))
    assert list(corpus.samples) == ["a", "f"]
    assert corpus.names == ("0", "5")
    assert corpus.labels == (1, 0)
    assert "2 empty texts left out: rows 1, 3" in corpus.notes
    assert "2 rows without a label left out: rows 2, 4" in corpus.notes


def test_float_and_nan_labels_of_a_frame_become_whole_numbers():
    frame = pd.DataFrame({"text": list("abc"), "label": [1.0, np.nan, 0.0]})
    corpus = open_corpus(frame)
    assert corpus.labels == (1, 0)
    assert all(type(label) is int for label in corpus.labels)
    assert open_corpus(pd.DataFrame({"text": ["a", "b"], "label": [True, False]})).labels == (1, 0)


def test_semicolons_and_a_byte_order_mark(tmp_path):
    corpus = open_corpus(write(tmp_path / "t.csv", "\ufefftext;label\na;x\n"))
    assert list(corpus.samples) == ["a"]
    assert "separator: ';' (guessed)" in corpus.notes


def test_tsv_with_bare_quotation_marks(tmp_path):
    corpus = open_corpus(write(tmp_path / "t.tsv", 'text\tlabel\n"Oh\t1\nwell" she said\t0\n'))
    assert list(corpus.samples) == ['"Oh', 'well" she said']
    assert "quotation marks taken as text" in corpus.notes


def test_hostile_texts_come_through_whole(tmp_path):
    texts = ["x" * 300_000, "שלום עולם", "👩‍👩‍👧", "a\x00b", "<script>alert(1)</script>", "1"]
    path = tmp_path / "t.jsonl"
    path.write_text("\n".join(json.dumps({"text": text}) for text in texts), encoding="utf-8")
    assert list(open_corpus(path).samples) == texts
    pd.DataFrame({"text": texts}).to_csv(tmp_path / "t.csv", index=False)
    assert list(open_corpus(tmp_path / "t.csv").samples) == texts


def test_half_characters_of_labels_and_columns_are_mended(tmp_path):
    rows = '{"text": "a", "label": "\\ud83dx", "\\ud83d": 1}\n{"text": "b", "label": "y"}\n'
    assert open_corpus(write(tmp_path / "t.jsonl", rows)).labels == ("\ufffdx", "y")
    assert open_corpus((["a", "b"], ["\ud83dx", "y"])).labels == ("\ufffdx", "y")


def test_half_characters_are_mended_and_told(tmp_path):
    corpus = open_corpus(write(tmp_path / "t.jsonl", '{"text": "a\\ud800b"}\n{"text": "ok"}\n'))
    assert corpus.samples[0] == "a\ufffdb"
    assert "1 row held unpaired surrogates, now U+FFFD: rows 0" in corpus.notes


def test_plain_text_is_running_text_by_line(tmp_path):
    corpus = open_corpus(write(tmp_path / "story.txt", "one\r\n\r\n  \r\ntwo\u2028still two\r\n"))
    assert list(corpus.samples) == ["one", "two\u2028still two"]
    assert corpus.names == ("1", "4")
    assert corpus.running
    assert open_corpus(write(tmp_path / "story", "one\n")).running


def test_a_text_given_for_a_path():
    message = f"data {'word ' * 8!r}… is not a path: give texts as a list"
    assert refusal("word " * 2000) == message
    assert "does not exist" in refusal("nul\x00byte")


def test_an_unknown_modality():
    expected = (
        "modality 'imag' does not exist, did you mean image? (choose text, image, audio, tensor)"
    )
    assert refusal(["a"], modality="imag") == expected
    assert (
        refusal(["a"], modality="tensor")
        == "texts holds text samples, not tensor: leave `modality` out"
    )


def test_shared_tables_open(shared):
    corpus = open_corpus(shared / "data/sst2/dev.csv")
    assert (corpus.name, len(corpus), set(corpus.labels)) == ("sst2-dev", 872, {0, 1})
    assert open_corpus(shared / "data/stsbenchmark/dev.csv").labels is None


def test_frames_of_odd_make():
    unnamed = open_corpus(pd.DataFrame([["first", 1], [None, 2]]))
    assert list(unnamed.samples) == ["first"]
    assert unnamed.notes[0] == "text column: '0' (guessed)"
    category = pd.DataFrame({"text": ["a", "b"], "label": pd.Categorical(["x", "y"])}, index=[7, 9])
    assert open_corpus(category).labels == ("x", "y")
    assert open_corpus(category).names == ("0", "1")
    lists = open_corpus(pd.DataFrame({"text": ["a", "b"], "label": [[1, 2], [3]]}))
    assert lists.notes[-1] == "no labels: column 'label' holds scores or lists, not classes"
    mixed = open_corpus(pd.DataFrame({"text": ["a", "b"], "label": ["x", 3]}))
    assert mixed.labels == ("x", "3")
    vectors = pd.DataFrame({"v": [np.ones(3), np.ones(3)], "n": [1, 2]})
    held = "v (other values), n (numbers)"
    expected = f"the data frame has no column of texts; it has {held}: name one with `text_column`"
    assert refusal(vectors) == expected
