"""Files that are missing, broken, wrongly encoded or hold the wrong thing, one row each with its whole message."""

import gzip
import os
import sys
import tempfile
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import tiny
from transformers import PreTrainedModel
from typed import refused

import layerscope
import layerscope.profiling
from layerscope.cli import main

MEDIA = "images (.jpg, .jpeg, .png, .bmp, .gif, .tif, .tiff, .webp, .ppm, .pgm) or sounds (.wav, .flac, .ogg)"
EMPTY = "is empty: give a file with at least one sample"
NO_ROWS = "has no rows: give at least one text"
NO_TEXT = "is no text in UTF-8"
CUT = "is not a complete Parquet file (Parquet magic bytes not found in footer."
NOT_GZIP = "is not a complete gzip file ("
GARBAGE = bytes(range(256)) * 20


def parquet(**columns):
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table(columns), sink, compression="none", use_dictionary=False)
    return sink.getvalue().to_pybytes()


TEXTS = tiny.texts(40)
GOOD = parquet(text=TEXTS, label=["a", "b"] * 20)
BROKEN_TEXT = GOOD.replace(TEXTS[5].encode(), b"\xff" * len(TEXTS[5]), 1)
TABLE = b"text,team\nw1 w2,a\nw3,b\n"

FILES = {
    # nothing in it
    "empty.csv": (b"", EMPTY),
    "header.csv": ("text,team\n", NO_ROWS),
    "blank.jsonl": ("\n\n", EMPTY),
    "long-blank.jsonl": ("\n" * 70_000, EMPTY),
    # binary, or another encoding
    "binary.parquet": (GARBAGE, CUT),
    "array.npy": (
        b"\x93NUMPY\x01\x00v\x00{'descr': '<f8'}",
        "is not a complete .npy file",
    ),
    "paper.pdf": (b"%PDF-1.4\n" + GARBAGE, NO_TEXT),
    "latin.csv": (
        "text,team\ncafé,a\n".encode("latin-1"),
        f"{NO_TEXT} (byte 13 is 0xe9)",
    ),
    "wide.csv": ("text,team\ncafé,a\n".encode("utf-16"), NO_TEXT),
    # cut short
    "cut.parquet": (GOOD[: len(GOOD) // 2], CUT),
    "cut.jsonl": (
        '{"text": "w1"}\n{"text": "w',
        ": line 2 is not JSON (Unterminated string",
    ),
    "cut.csv": (
        'text,team\n"w1 w2',
        ": line 2 is broken (unexpected end of data): close quotes",
    ),
    "cut.csv.gz": (gzip.compress(TABLE * 99)[:40], NOT_GZIP),
    "fields.csv": (
        "text,team\nw1,w2,a\n",
        ": line 2 has 3 fields where the header has 2",
    ),
    # something else than texts
    "numbers.jsonl": (
        '{"text": 1}',
        ": column 'text' holds 1 (int) in row 0, not a text",
    ),
    "mixed.jsonl": (
        '{"text": "w1"}\n{"text": 2}',
        "holds 2 (int) in row 1, not a text: name another",
    ),
    "names.csv": (
        "a,b\n1,2\n",
        "has no column of a usual name, such as text (its columns: a, b)",
    ),
    "twice.csv": ("text,text\nw1,w2\n", "has two columns named 'text': rename one"),
    "no-text.csv": (
        'text,team\n"",a\n" ",b\n',
        ": column 'text' holds no text: every row is empty",
    ),
    "photo.png": (
        b"1",
        "is a single image file: give the folder it lies in, or a list of paths",
    ),
}


@pytest.mark.parametrize("name", FILES)
def test_a_wrong_file(unprofiled, bert, tmp_path, name):
    content, fault = FILES[name]
    path = tmp_path / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    line = unprofiled(bert, path)
    assert str(path) in line and fault in line


def test_a_parquet_file_with_broken_texts(unprofiled, bert, tmp_path):
    path = tmp_path / "flipped.parquet"
    assert BROKEN_TEXT != GOOD
    path.write_bytes(BROKEN_TEXT)
    line = unprofiled(bert, path)
    assert line.startswith(f"{path} is not a complete Parquet file (")
    assert line.endswith("): write or copy it again")


WITHOUT = "(without a path: stdlib-docs, digits, hf:NAME)"
PLACES = {
    "": "no data is given: give a file, a folder, hf:NAME, stdlib-docs or digits",
    "review.csv": f"data 'review.csv' does not exist, did you mean reviews.csv? {WITHOUT}",
    "stdlib-doc": f"data 'stdlib-doc' does not exist, did you mean stdlib-docs? {WITHOUT}",
    "the film was good": f"data 'the film was good' does not exist: check the path {WITHOUT}",
    "w" * 300: f"data '{'w' * 40}'… is not a path: give texts as a list",
    "tables": f"tables holds no {MEDIA}: give one of its files instead (inner.csv), unpacked",
    "http://a.org/b.csv": "data 'http://a.org/b.csv' is a URL: download it and give the file, or give hf:NAME for "
    "one on the hub",
    "hf:nobody/none": "hf:nobody/none is not cached and the hub cannot be reached: "
    "save it elsewhere with save_to_disk and give its folder",
    "/dev/zero": "/dev/zero is a device: give a file",
}


@pytest.mark.parametrize("data", PLACES, ids=[repr(place)[:24] for place in PLACES])
def test_data_that_are_no_file(unprofiled, bert, tmp_path, monkeypatch, data):
    monkeypatch.chdir(tmp_path)
    Path("reviews.csv").write_bytes(TABLE)
    Path("tables").mkdir()
    Path("tables/inner.csv").write_bytes(TABLE)
    Path("folder.csv").mkdir()
    assert unprofiled(bert, data) == PLACES[data]


@pytest.fixture
def open_folder():
    """A folder that every user of the machine may enter."""
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        yield Path(folder)


def type_as_nobody(capfd, *arguments):
    """Run the command line in a child without root's rights; return its status and the line on standard error."""
    capfd.readouterr()
    child = os.fork()
    if child == 0:
        status = 99
        try:
            if os.getuid() == 0:
                os.setgroups([])
                os.setgid(65534)
                os.setuid(65534)
            sys.argv = ["layerscope", *map(str, arguments)]
            main()
        except SystemExit as end:
            status = end.code
        finally:
            sys.stderr.flush()
            os._exit(status)
    _, status = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(status), capfd.readouterr().err


@pytest.mark.parametrize("name", ["secret.csv", "secret.parquet", "closed/in.csv"])
def test_what_may_not_be_read(capfd, open_folder, bert, name):
    assert layerscope.profiling.profile  # the child may not be allowed to import
    path = open_folder / name
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(TABLE)
    closed = open_folder / path.relative_to(open_folder).parts[0]
    closed.chmod(0)
    words = ("profile", bert, "--data", path, "--out", open_folder / "run")
    status, err = type_as_nobody(capfd, *words)
    closed.chmod(0o700)
    line = f"'{path}' cannot be read (Permission denied): check its permissions"
    assert (status, err) == (2, f"layerscope: {line}\n")


@pytest.mark.parametrize(
    "verb", ["profile", "lens", "exits", "shrink", "generate", "select"]
)
def test_missing_data_are_told_before_a_model_is_loaded(verb, tmp_path, monkeypatch):
    monkeypatch.setattr(PreTrainedModel, "from_pretrained", None)
    more = {"out": tmp_path / "out"} if verb == "shrink" else {}
    with refused("nowhere.csv' does not exist"):
        getattr(layerscope, verb)(
            "tiny-gpt2", data=str(tmp_path / "nowhere.csv"), progress=False, **more
        )
