"""Files that are missing, broken, wrongly encoded or hold the wrong thing, one row each with its whole message."""

import gzip
import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import tiny

import layerscope.profiling
from layerscope.cli import main

KINDS = "give CSV, TSV, JSONL, Parquet or plain text, or a folder or archive (.tar, .zip) of images or sounds"
MEDIA = "images (.jpg, .jpeg, .png, .bmp, .gif, .tif, .tiff, .webp, .ppm, .pgm) or sounds (.wav, .flac, .ogg)"
EMPTY = "{} is empty: give a file with at least one sample"
NO_ROWS = "{} has a header but no rows: give at least one text"
BINARY = "{} is a binary file, not text: " + KINDS
UTF16 = "{} is UTF-16 text: save it as UTF-8"
CUT = (
    "{} is not a complete Parquet file (Parquet magic bytes not found in footer. Either the file is corrupted or "
    "this is "
    "not a parquet file): write or copy it again"
)
GARBAGE = bytes(range(256)) * 20


def parquet(**columns: Any) -> bytes:
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table(columns), sink, compression="none", use_dictionary=False)
    return sink.getvalue().to_pybytes()


TEXTS = tiny.texts(40)
GOOD = parquet(text=TEXTS, label=["a", "b"] * 20)
BROKEN_TEXT = GOOD.replace(TEXTS[5].encode(), b"\xff" * len(TEXTS[5]), 1)
TABLE = b"text,team\nw1 w2,a\nw3,b\n"

FILES: dict[str, tuple[bytes | str, str]] = {
    # nothing in it
    "empty.csv": (b"", EMPTY),
    "empty.tsv": (b"", EMPTY),
    "empty.jsonl": (b"", EMPTY),
    "empty.parquet": (
        b"",
        "{} is not a complete Parquet file (Parquet file size is 0 bytes): write or copy it again",
    ),
    "empty.txt": (b"", EMPTY),
    "empty.csv.gz": (b"", EMPTY),
    "header.csv": ("text,team\n", NO_ROWS),
    "header.tsv": ("text\tteam\n", NO_ROWS),
    "header.parquet": (
        parquet(text=pa.array([], pa.string())),
        "{} has no rows: give at least one text",
    ),
    "below-blank-lines.csv": ("\n\ntext,team\n\n", NO_ROWS),
    "one-line.csv": ("hello world", NO_ROWS),
    "blank.csv": ("\n\n \n", EMPTY),
    "blank.tsv": ("\n\n", EMPTY),
    "blank.jsonl": ("\n\n", EMPTY),
    "blank.txt": ("\n \t\n", EMPTY),
    "array.json": ("[]", "{} has no records: give at least one text"),
    # binary
    "binary.csv": (GARBAGE, BINARY),
    "binary.tsv": (GARBAGE, BINARY),
    "binary.jsonl": (GARBAGE, BINARY),
    "binary.txt": (GARBAGE, BINARY),
    "binary.parquet": (GARBAGE, CUT),
    "zeros.txt": (bytes(999), BINARY),
    "array.npy": (
        b"\x93NUMPY\x01\x00v\x00{'descr': '<f8'}" + b"\xf0?\0\0" * 99,
        "{} is not a complete .npy file: save it again with numpy.save",
    ),
    "paper.pdf": (b"%PDF-1.4\n" + GARBAGE, BINARY),
    # another encoding
    "latin.csv": (
        "text,team\ncafé,a\n".encode("latin-1"),
        "{} is not UTF-8 (byte 13 is 0xe9): save it as UTF-8",
    ),
    "latin.tsv": (
        "text\tteam\ncafé\ta\n".encode("latin-1"),
        "{} is not UTF-8 (byte 13 is 0xe9): save it as UTF-8",
    ),
    "latin.jsonl": (
        '{"text": "café"}'.encode("latin-1"),
        "{} is not UTF-8 (byte 13 is 0xe9): save it as UTF-8",
    ),
    "latin.txt": (
        "un café\n".encode("latin-1"),
        "{} is not UTF-8 (byte 6 is 0xe9): save it as UTF-8",
    ),
    "wide.csv": ("text,team\ncafé,a\n".encode("utf-16"), UTF16),
    "wide.jsonl": ('{"text": "café"}'.encode("utf-16"), UTF16),
    "wide.txt": ("un café\n".encode("utf-16-be"), UTF16),
    "wide.tsv": ("text\tteam\ncafé\ta\n".encode("utf-16-le"), UTF16),
    # cut short
    "cut.parquet": (GOOD[: len(GOOD) // 2], CUT),
    "cut-late.parquet": (GOOD[:-3], CUT),
    "cut.jsonl": (
        '{"text": "w1"}\n{"text": "w',
        "{}: line 2 is not JSON (Unterminated string starting at, column 10): write one object per line",
    ),
    "cut.csv": (
        'text,team\n"w1 w2',
        "{}: line 2 is broken (unexpected end of data): close quotes, and double those inside a text",
    ),
    "cut.csv.gz": (
        gzip.compress(TABLE * 99)[:40],
        "{} is not a complete gzip file (Compressed file ended before the end-of-stream marker was reached): "
        "pack it again",
    ),
    "cut.parquet.gz": (gzip.compress(GOOD), "{} is Parquet inside gzip: unpack it first"),
    "plain.csv.gz": (
        TABLE,
        "{} is not a complete gzip file (Not a gzipped file (b'te')): pack it again",
    ),
    "fields.csv": (
        "text,team\nw1,w2,a\n",
        "{}: line 2 has 3 fields where the header has 2: quote the texts that hold separators or line ends",
    ),
    # something else than texts
    "numbers.csv": (
        "text,team\n1,a\n2,b\n",
        "{}: column 'text' holds numbers (such as 1), not texts: name another",
    ),
    "numbers.tsv": (
        "text\tteam\n1\ta\n",
        "{}: column 'text' holds numbers (such as 1), not texts: name another",
    ),
    "numbers.jsonl": (
        '{"text": 1}\n{"text": 2}',
        "{}: column 'text' holds numbers (such as 1), not texts: name another",
    ),
    "numbers.parquet": (
        parquet(text=[1.5, 2.5]),
        "{}: column 'text' holds numbers (such as 1.5), not texts: name another",
    ),
    "only-numbers.csv": (
        "a,b\n1,2\n",
        "{} has no column of texts; it has a (numbers), b (numbers): name one with --text-column",
    ),
    "bytes.parquet": (
        parquet(x=[b"ab", b"cd"]),
        "{} has no column of texts; it has x (other values): name one with --text-column",
    ),
    "mixed.jsonl": (
        '{"text": "w1"}\n{"text": 2}\n{"text": null}',
        "{}: column 'text' mixes texts and other values: row 1 holds 2 (int): make it text",
    ),
    "nested.jsonl": (
        '{"text": ["w1", "w2"]}',
        "{}: column 'text' holds values of type list (such as ['w1', 'w2']), not texts: name another",
    ),
    "list.jsonl": ("[1, 2]", '{}: record 0 is 1, not an object: write {{"text": …}} a line'),
    "values.jsonl": (
        '{"text": "w1"}\n5',
        '{}: record 1 is 5, not an object: write {{"text": …}} a line',
    ),
    "pretty.json": (
        '{\n  "text": "w1"\n}',
        "{}: line 1 is not JSON (Expecting property name enclosed in double quotes, column 2): write one object per "
        "line",
    ),
    "twice.csv": ("text,text\nw1,w2\n", "{} has two columns named 'text': rename one"),
    "no-text.csv": (
        'text,team\n"",a\n" ",b\n',
        "{}: column 'text' holds no text: every row is empty",
    ),
    "photo.png": (
        b"1",
        "{} is a single image file: give the folder it lies in, or a list of paths",
    ),
    "call.wav": (b"1", "{} is a single audio file: give the folder it lies in, or a list of paths"),
}


@pytest.mark.parametrize("name", FILES)
def test_a_wrong_file(refused: Callable[..., str], bert: Path, tmp_path: Path, name: str) -> None:
    content, message = FILES[name]
    path = tmp_path / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    assert refused("profile", bert, "--data", path, "--out", tmp_path / "run") == message.format(
        path
    )


def test_a_parquet_file_with_broken_texts(refused, bert: Path, tmp_path: Path) -> None:
    path = tmp_path / "flipped.parquet"
    assert BROKEN_TEXT != GOOD
    path.write_bytes(BROKEN_TEXT)
    line = refused("profile", bert, "--data", path, "--out", tmp_path / "run")
    assert line.startswith(f"{path} is not a complete Parquet file (") and line.endswith(
        "): write or copy it again"
    )


WITHOUT = "(without a path: stdlib-docs, digits, hf:NAME)"
PLACES: dict[str, str] = {
    "": "no data is given: give a file, a folder, hf:NAME, stdlib-docs or digits",
    "  ": "no data is given: give a file, a folder, hf:NAME, stdlib-docs or digits",
    "sub/reviews.csv": f"data 'sub/reviews.csv' does not exist: check the path {WITHOUT}",
    "review.csv": f"data 'review.csv' does not exist, did you mean reviews.csv? {WITHOUT}",
    "Reviews.CSV": f"data 'Reviews.CSV' does not exist, did you mean reviews.csv? {WITHOUT}",
    "reviews.csv/x": f"data 'reviews.csv/x' does not exist: check the path {WITHOUT}",
    "stdlib-doc": f"data 'stdlib-doc' does not exist, did you mean stdlib-docs? {WITHOUT}",
    "-": f"data '-' does not exist: check the path {WITHOUT}",
    "the film was good": f"data 'the film was good' does not exist: check the path {WITHOUT}",
    "w1\nw2": rf"data 'w1\nw2' does not exist: check the path {WITHOUT}",
    "w" * 300: f"data '{'w' * 40}'… is not a path: give texts as a list",
    "tables": f"tables holds no {MEDIA}: give one of its files instead (inner.csv)",
    "folder.csv": f"folder.csv is an empty folder: it should hold {MEDIA}",
    "http://a.org/b.csv": "data 'http://a.org/b.csv' is a URL: download it and give the file, or give hf:NAME for "
    "one on the hub",
    "hf:": "'hf:' is not the name of a data set: write hf:name, hf:org/name or hf:name/config:split",
    "hf:nobody/none": "hf:nobody/none is not cached and the hub cannot be reached: "
    "save it elsewhere with save_to_disk and give its folder",
    "/dev/zero": "/dev/zero is a device: give a file",
}


@pytest.mark.parametrize("data", PLACES, ids=[repr(place)[:24] for place in PLACES])
def test_data_that_are_no_file(refused, bert: Path, tmp_path: Path, monkeypatch, data: str) -> None:
    monkeypatch.chdir(tmp_path)
    Path("reviews.csv").write_bytes(TABLE)
    Path("tables").mkdir()
    Path("tables/inner.csv").write_bytes(TABLE)
    Path("folder.csv").mkdir()
    assert refused("profile", bert, "--data", data, "--out", "run") == PLACES[data]


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that every user of the machine may enter."""
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        yield Path(folder)


def type_as_nobody(capfd: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str]:
    """Run the command line in a child without root's rights; return its status and the line on standard error."""
    capfd.readouterr()
    child = os.fork()
    if child == 0:
        status: Any = 99
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


@pytest.mark.parametrize(
    "name", ["secret.csv", "secret.parquet", "secret.txt", "secret.zip", "closed", "closed/in.csv"]
)
def test_what_may_not_be_read(capfd, open_folder: Path, bert: Path, name: str) -> None:
    assert layerscope.profiling.profile  # the child may not be allowed to import
    path = open_folder / name
    for file in (open_folder / "closed" / "in.csv", path):
        file.parent.mkdir(exist_ok=True)
        if not file.is_dir() and file.name != "closed":
            file.write_bytes(TABLE)
    os.chmod(open_folder / "closed", 0)
    if name != "closed/in.csv":
        os.chmod(path, 0)
    status, err = type_as_nobody(
        capfd, "profile", bert, "--data", path, "--out", open_folder / "run"
    )
    os.chmod(open_folder / "closed", 0o700)
    assert (status, err) == (
        2,
        f"layerscope: '{path}' cannot be read (Permission denied): check its permissions\n",
    )
