"""Data read chunk by chunk are what they are when they are read whole, and no more of them is in memory."""

import itertools
import json
import subprocess
import sys

import datasets
import huggingface_hub
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hub_server import hub
from typed import refused

from layerscope.inputs import open_corpus, open_stream

__all__ = ["hub"]
ODD = ["null", "naïve 日本", "NA"]
TEXTS = ["" if i % 9 == 4 else f'row {i}, "quoted"\nand on' for i in range(50)]
FRAME = pd.DataFrame(
    {"id": range(53), "text": ODD + TEXTS, "label": [i % 3 for i in range(53)]}
)


def written(folder, suffix, frame=FRAME):
    path = folder / f"reviews{suffix}"
    if suffix == ".parquet":
        frame.to_parquet(path, row_group_size=7)
    elif suffix.startswith(".json"):
        frame.to_json(
            path, orient="records", lines=suffix != ".json", force_ascii=False
        )
    else:
        frame.to_csv(path, index=False, sep="\t" if ".tsv" in suffix else ",")
    return path


def joined(stream, **options):
    chunks = [chunk for chunk in stream.chunks(**options) if chunk.read]
    return [
        list(itertools.chain.from_iterable(getattr(chunk, name) for chunk in chunks))
        for name in ("samples", "names", "labels")
    ]


@pytest.mark.parametrize(
    "suffix",
    [".csv", ".tsv", ".jsonl", ".jsonl.gz", ".parquet", ".csv.gz", ".json"],
)
def test_every_kind_of_table_gives_the_same_corpus_and_stream(tmp_path, suffix):
    path = written(tmp_path, suffix)
    corpus, stream = open_corpus(path), open_stream(path, rows=10)
    assert corpus.fingerprint() == open_corpus(FRAME).fingerprint()
    assert list(corpus.samples[:3]) == ODD and corpus.labels[:3] == (0, 1, 2)
    assert joined(stream) == [
        list(corpus.samples),
        list(corpus.names),
        list(corpus.labels),
    ]
    assert (
        (stream.name, stream.modality) == (corpus.name, "text") == ("reviews", "text")
    )
    assert stream.notes == corpus.notes[:2]
    assert joined(stream) == joined(stream)
    odd = open_stream(path, rows=10).chunks(wanted=lambda number: number % 2 == 1)
    assert [(chunk.number, chunk.read) for chunk in odd] == [
        (i, i % 2 == 1) for i in range(6)
    ]
    assert next(stream.chunks(3)).number == 3


def test_text_keeps_the_numbers_of_its_lines(tmp_path):
    path = tmp_path / "novel.txt"
    path.write_bytes("\ufeffone\r\n\r\ntwo\nthree\n".encode())
    corpus, stream = open_corpus(path), open_stream(path, rows=2)
    chunks = list(stream.chunks())
    assert [list(chunk.names) for chunk in chunks] == [["1"], ["3", "4"]]
    assert [text for chunk in chunks for text in chunk.samples] == list(corpus.samples)
    assert stream.head.running and stream.notes == corpus.notes


def test_a_folder_of_tables_is_one_stream(tmp_path):
    for i in range(3):
        FRAME[i * 20 : i * 20 + 20].to_parquet(tmp_path / f"part-{i}.parquet")
    stream = open_stream(tmp_path, rows=15)
    assert stream.length == 53 and stream.name == tmp_path.name
    assert joined(stream) == joined(open_stream(FRAME, rows=15))
    written(tmp_path, ".csv")
    with refused("give one of its files instead"):
        open_stream(tmp_path)


def test_data_sets_that_are_streams(tmp_path):
    whole = datasets.Dataset.from_pandas(FRAME)
    stream = open_stream(whole.to_iterable_dataset(num_shards=2), rows=10)
    assert joined(stream) == joined(open_stream(FRAME, rows=10))
    assert stream.length is None
    named = whole.cast_column("label", datasets.ClassLabel(names=["a", "b", "c"]))
    for rows in (named, named.to_iterable_dataset()):
        assert joined(open_stream(rows, rows=10)) == joined(
            open_stream(open_corpus(named), rows=10)
        )
    assert open_stream(named).length == 53
    once = open_stream(iter(FRAME["text"]), rows=10)
    assert list(itertools.chain.from_iterable(c.samples for c in once.chunks())) == [
        t for t in FRAME["text"] if t
    ]


def test_texts_of_the_hub_are_fetched_as_they_are_read(hub, tmp_path, monkeypatch):
    known = {
        "HF_DATASETS_CACHE": tmp_path / "datasets",
        "HF_ENDPOINT": hub.url,
        "HF_HUB_OFFLINE": False,
    }
    for name, value in known.items():
        monkeypatch.setattr(datasets.config, name, value)
    cells = [{"text": f"text {i}", "label": i % 3} for i in range(2500)]
    files = {
        f"train-0000{i}-of-00002.parquet": pd.DataFrame(
            cells[i * 1500 : (i + 1) * 1500]
        )
        for i in range(2)
    }
    hub.repos["dataset", "user/reviews"] = [
        {name: frame.to_parquet(index=False) for name, frame in files.items()}
    ]
    stream = open_stream("hf:user/reviews", rows=400)
    second = (
        "GET /datasets/user/reviews/resolve/"
        + "0" * 40
        + "/train-00001-of-00002.parquet"
    )
    assert second not in hub.seen and stream.length is None
    assert (stream.name, stream.notes[0]) == (
        "user-reviews-train",
        "split: train (of train)",
    )
    assert joined(stream) == [
        list(column)
        for column in zip(
            *((row["text"], str(i), row["label"]) for i, row in enumerate(cells)),
            strict=True,
        )
    ]
    assert second in hub.seen
    corpus = open_corpus("hf:user/reviews")  # now it is cached
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    assert joined(open_stream("hf:user/reviews:train"))[0] == list(corpus.samples)
    with refused("hf:user/none is not cached and the hub cannot be reached"):
        open_stream("hf:user/none")


def test_an_iterable_that_fails_in_the_middle():
    def rows():
        yield from (f"text {i}" for i in range(1500))
        raise ConnectionError("reset by peer\nand more")

    read, stream = [], open_stream(rows(), rows=500)
    with refused() as caught:
        read.extend(chunk.number for chunk in stream.chunks())
    assert read == [0, 1, 2]
    line = "the iterable failed at row 1,500 (ConnectionError: reset by peer): fix it and run this again"
    assert str(caught.value) == line
    with refused("row 1 of the iterable is 3, of type int: give texts"):
        open_stream(iter(["a", 3]))


@pytest.mark.parametrize(
    "name, data, line",
    [
        (
            "a.jsonl",
            b'{"text": "a"}\n' * 1200 + b'{"text": "b',
            "line 1201 is not JSON",
        ),
        ("a.csv", b"text,label\n" + b"a,1\n" * 1200 + b'"b', "line 1202 is broken"),
        ("a.jsonl", b'{"text": "a"}\n' * 1250 + b'{"text": 7}\n', "holds 7 (int)"),
    ],
)
def test_a_file_that_is_broken_in_the_middle(tmp_path, name, data, line):
    (tmp_path / name).write_bytes(data)
    read = []
    with refused() as caught:
        read.extend(
            chunk.number for chunk in open_stream(tmp_path / name, rows=100).chunks()
        )
    assert line in str(caught.value)
    assert len(read) >= 12


@pytest.mark.parametrize("suffix", [".csv", ".jsonl", ".parquet"])
@pytest.mark.parametrize(
    "ids, names",
    [
        ([7, 3, 5, 9], ["7", "5", "9"]),
        ([1, 1, 2, 3], ["0", "2", "3"]),  # what repeats names nothing
    ],
)
def test_samples_have_the_names_that_a_column_id_gives_them(
    suffix, ids, names, tmp_path
):
    texts = ["one", "", "two", "three"]
    frame = pd.DataFrame({"id": ids, "text": texts, "label": list("abab")})
    stream = open_stream(written(tmp_path, suffix, frame), rows=2)
    assert joined(stream)[1] == names


def test_memory_does_not_grow_with_the_rows(tmp_path):
    text = "a text of some length " * 20
    for name, n in (("few", 2_000), ("many", 60_000)):
        pq.write_table(
            pa.table({"text": [f"{i} {text}" for i in range(n)]}),
            tmp_path / f"{name}.parquet",
        )
        with (tmp_path / f"{name}.csv").open("w") as file:
            file.write("text\n" + "".join(f"{i} {text}\n" for i in range(n)))
    code = (
        "import resource, sys\n"
        "from layerscope.inputs import open_stream\n"
        "for name in sys.argv[1:]:\n"
        "    n = sum(len(chunk.samples) for chunk in open_stream(name).chunks())\n"
        "    print(n, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)"
    )
    paths = [
        tmp_path / f"{name}.{kind}"
        for name in ("few", "many")
        for kind in ("csv", "parquet")
    ]
    done = subprocess.run(
        [sys.executable, "-c", code, *paths], capture_output=True, text=True, check=True
    )
    read = [tuple(map(int, line.split())) for line in done.stdout.splitlines()]
    assert [n for n, _ in read] == [2_000] * 2 + [60_000] * 2
    unit = 1 if sys.platform == "darwin" else 1024
    assert (read[3][1] - read[1][1]) * unit < 12e6  # of 27 MB each


def test_labels_may_turn_out_to_be_names(tmp_path):
    path = tmp_path / "late.jsonl"
    cells = [*[str(i % 2) for i in range(1000)], "maybe", None, "1"]
    path.write_text(
        "".join(
            json.dumps({"text": f"t{i}", "label": cell}) + "\n"
            for i, cell in enumerate(cells)
        )
    )
    last = list(open_stream(path, rows=1000).chunks())[1]
    assert (last.names, last.labels) == (["1000", "1002"], ("maybe", "1"))
