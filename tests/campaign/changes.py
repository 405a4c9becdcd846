"""Random changes to a file or to one file of a folder: of its bytes, its values, or of what it is."""

import csv
import json
from datetime import UTC, datetime
from itertools import zip_longest

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

HOSTILE = [
    "", " ", "\0", "\n", '"', ",", "é", "\u202e", "<script>", "{}", "[]", "nan", "inf", "null", "true", "-1", "0",
    "1e999", "9" * 30, "../../etc/passwd", "~nobody", "{x}", "x" * 5000, "=1+1", "\ud800", "1.5",
]  # fmt: skip
VALUES = [
    None, True, 0, -1, 10**30, 1e308, float("nan"), float("inf"), 0.5, [], {}, [None], {"a": 1}, b"\xff\x00",
    datetime.fromtimestamp(0, UTC), *HOSTILE,
]  # fmt: skip
TOKENS = [*(text.encode("utf-8", "surrogatepass") for text in HOSTILE),
          b"\xff", b"\xef\xbb\xbf", b"[" * 3000, b"PAR1", b"PK\x03\x04", b"\x1f\x8b", b"\r\n"]  # fmt: skip
TABLES = (".csv", ".parquet")
ALTERED = ("value", "value", "value", "renamed", "gone", "twice", "shuffled", "cut")
REPLACED = ("gone", "a folder", "a link", "swapped")


def change(path, rng):
    """Change a file, or up to three files of a folder; return what was done."""
    if path.is_file():
        return _content(path, rng)
    done = []
    for _ in range(rng.choice([1, 1, 1, 2, 3])):
        files = sorted(file for file in path.rglob("*") if file.is_file())
        if not files:
            break
        file = rng.choice(files)
        way = _content if rng.random() < 0.75 else _replaced
        done.append(f"{file.relative_to(path)} {way(file, rng)}")
    return "; ".join(done)


def _content(path, rng):
    if rng.random() < 0.3 or path.suffix not in (".json", ".jsonl", *TABLES):
        return _bytes(path, rng)
    try:
        tree = _read(path)
        said = _alter(tree, rng)
        _write(path, tree)
    except (
        Exception
    ):  # an earlier change left no such file, or no file can hold these values
        return _bytes(path, rng)
    return said


def _read(path):
    """Return what a file holds as nested lists and objects; of a table the name and values of each column."""
    if path.suffix == ".json":
        return json.loads(path.read_text())
    if path.suffix == ".jsonl":
        return [json.loads(line) for line in path.read_text().splitlines()]
    is_csv = path.suffix == ".csv"
    frame = pd.read_csv(path, dtype=str) if is_csv else pd.read_parquet(path)
    return [[name, frame[name].tolist()] for name in frame]


def _write(path, tree):
    if path.suffix not in TABLES:
        parts = tree if path.suffix == ".jsonl" else [tree]
        path.write_text("\n".join(json.dumps(part, default=str) for part in parts))
        return
    names, columns = zip(*tree, strict=True)
    length = max(len(column) for column in columns if isinstance(column, list))
    whole = [
        column if isinstance(column, list) else [column] * length for column in columns
    ]
    if path.suffix == ".parquet":
        arrays = [pa.array(column) for column in whole]
        pq.write_table(pa.Table.from_arrays(arrays, list(names)), path)
        return
    with path.open("w", newline="", errors="surrogatepass") as file:
        csv.writer(file).writerows([names, *zip_longest(*whole)])


def _alter(tree, rng):
    """Change one place in nested lists and objects."""
    parent = tree
    while True:
        places = list(parent) if isinstance(parent, dict) else range(len(parent))
        key = rng.choice(places)
        inner = parent[key]
        if not inner or not isinstance(inner, dict | list) or rng.random() < 0.3:
            break
        parent = inner
    way, value = rng.choice(ALTERED), rng.choice(VALUES)
    if way == "gone":
        del parent[key]
    elif way == "renamed" and isinstance(parent, dict):
        parent[rng.choice(HOSTILE)] = parent.pop(key)
    elif way == "twice" and isinstance(parent, list):
        parent.insert(key, inner)
    elif way == "shuffled" and isinstance(parent, list):
        rng.shuffle(parent)
    elif way == "cut" and isinstance(parent, list):
        del parent[key + 1 :]
    else:
        parent[key] = value
    return f"{key} {way} {value!r:.30}"


def _bytes(path, rng):
    data = path.read_bytes()
    at, to = sorted((rng.randint(0, len(data)), rng.randint(0, len(data))))
    token, flipped = rng.choice(TOKENS), bytearray(data)
    if flipped:
        flipped[rng.randrange(len(flipped))] ^= 1 << rng.randrange(8)
    ways = {
        "a bit flipped": bytes(flipped),
        f"cut at {at}": data[:at],
        f"bytes {at}:{to} gone": data[:at] + data[to:],
        f"bytes {at}:{to} twice": data[:to] + data[at:],
        f"{token[:20]!r} at {at}": data[:at] + token + data[at:],
        f"zeros from {at}": data[:at] + bytes(len(data) - at),
        "empty": b"",
    }
    said = rng.choice(list(ways))
    path.write_bytes(ways[said])
    return said


def _replaced(path, rng):
    other = rng.choice(sorted(p for p in path.parent.iterdir() if p.is_file()))
    mine, theirs, way = path.read_bytes(), other.read_bytes(), rng.choice(REPLACED)
    path.unlink()
    if way == "a folder":
        path.mkdir()
    elif way == "a link":
        path.symlink_to(rng.choice(["nowhere", path.name, "/"]))
    elif way == "swapped":
        path.write_bytes(theirs)
        other.write_bytes(mine)
    return f"{way} ({other.name})"
