"""Random changes to a file or to one file of a folder: of its bytes, its values, or of what it is."""

from __future__ import annotations

import csv
import gzip
import io
import json
import os
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

HOSTILE = [
    "", " ", "\0", "\n", "\r", '"', "'", ",", "a,b", "é", "\u202e", "👩‍👩‍👧", "<script>", "</script>", "{}",
    "[]", "nan", "inf", "-inf", "null", "None", "NULL", "NA", "true", "-1", "0", "1e999", "-0.0", "9" * 30,
    "1e-320", "0x10", "1_000", "٣", "../../etc/passwd", "/", "~", "~nobody", "a/b", "%s", "{x}", "${x}",
    "x" * 5000, "=1+1", "\\", "\ud800", "1.5", "2.0",
]  # fmt: skip
VALUES: list[Any] = [
    None,
    True,
    False,
    0,
    1,
    -1,
    2,
    10**30,
    -(10**18),
    2**31,
    1e308,
    float("nan"),
    float("inf"),
    0.5,
    [],
    {},
    [[]],
    [None],
    {"a": 1},
    [1, "a", None],
    [float("nan")] * 3,
    {"": {}},
    *HOSTILE[:40],
]
TOKENS = [
    *(text.encode("utf-8", "surrogatepass") for text in HOSTILE),
    b"\xff",
    b"\xff\xfe",
    b"\xef\xbb\xbf",
    b"\x80",
    b"NaN",
    b"Infinity",
    b"[" * 3000,
    b"{" * 3000,
    b"PAR1",
    b"PK\x03\x04",
    b"\x89PNG",
    b"\x1f\x8b",
    b"\r\n",
    b"\n\n",
]
JSONS = {".json", ".jsonl"}
TABLES = {".csv", ".tsv", ".gz"}


def change(path: Path, rng: Random) -> str:
    """Change a file, or up to three files of a folder; return what was done."""
    if path.is_file():
        return _content(path, rng)
    done = []
    for _ in range(rng.choice([1, 1, 1, 2, 3])):
        files = sorted(
            file
            for file in path.rglob("*")
            if file.is_file() and file.name not in (".lock", "log.jsonl")
        )
        if not files:
            break
        file = rng.choice(files)
        way = _content if rng.random() < 0.75 else rng.choice(WAYS)
        done.append(f"{file.relative_to(path)} {way(file, rng)}")
    return "; ".join(done)


def _content(path: Path, rng: Random) -> str:
    data = path.read_bytes()
    fitting = [way for ends, way in BY_KIND if path.suffix in ends]
    way = rng.choice([*fitting, *fitting, *fitting, _bytes])
    try:
        new, said = way(data, rng)
    except Exception:  # an earlier change may have left no such file
        new, said = _bytes(data, rng)
    path.write_bytes(new)
    return said


# of bytes


def _bytes(data: bytes, rng: Random) -> tuple[bytes, str]:
    at, to = sorted((rng.randint(0, len(data)), rng.randint(0, len(data))))
    near = min(to, at + rng.randint(1, 40))
    token = rng.choice(TOKENS)
    flipped = bytearray(data)
    for _ in range(rng.choice([1, 3, 30])):
        if flipped:
            flipped[rng.randrange(len(flipped))] ^= 1 << rng.randrange(8)
    ways = {
        "bits flipped": bytes(flipped),
        f"cut at {at}": data[:at],
        f"begins at {at}": data[at:],
        f"bytes {at}:{near} gone": data[:at] + data[near:],
        f"bytes {at}:{to} twice": data[:to] + data[at:to] + data[to:],
        f"{token[:20]!r} at {at}": data[:at] + token + data[at:],
        f"{token[:20]!r} for {at}:{near}": data[:at] + token + data[near:],
        f"zeros from {at}": data[:at] + bytes(len(data) - at),
        "empty": b"",
        "noise": rng.randbytes(rng.randint(1, 5000)),
    }
    said = rng.choice(list(ways))
    return ways[said], said


# of values


def _places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    below = (
        value.items()
        if isinstance(value, dict)
        else enumerate(value)
        if isinstance(value, list)
        else ()
    )
    return [
        path,
        *(
            found
            for key, item in list(below)[:60]
            for found in _places(item, (*path, key))
        ),
    ]


def _json(data: bytes, rng: Random) -> tuple[bytes, str]:
    lines = data.decode().split("\n")
    whole = len(lines) < 2 or data.lstrip()[:2] in (b"{\n", b"[\n")
    at = rng.randrange(len(lines))
    top = json.loads(data.decode() if whole else lines[at])
    told = []
    for _ in range(rng.choice([1, 1, 2, 4])):
        top, said = _node(top, rng)
        told.append(said)
    text = json.dumps(top, ensure_ascii=rng.random() < 0.5)
    new = text if whole else "\n".join([*lines[:at], text, *lines[at + 1 :]])
    return new.encode("utf-8", "surrogatepass"), "; ".join(told)


def _node(top: Any, rng: Random) -> tuple[Any, str]:
    path = rng.choice(_places(top))
    value = rng.choice(VALUES)
    if not path:
        return (
            (value, f"is {value!r:.30}") if rng.random() < 0.1 else (top, "is the same")
        )
    parent = top
    for key in path[:-1]:
        parent = parent[key]
    key, way = path[-1], rng.random()
    where = "/".join(map(str, path))
    if way < 0.6:
        parent[key] = value
        return top, f"{where} = {value!r:.30}"
    if way < 0.8:
        del parent[key]
        return top, f"without {where}"
    if isinstance(parent[key], int | float) and way < 0.95:
        parent[key] = parent[key] * rng.choice([-1, 2, 1000, 0.5]) + rng.choice(
            [0, 1, -1]
        )
        return top, f"{where} = {parent[key]!r:.30}"
    if isinstance(parent, dict):
        name = rng.choice(HOSTILE)
        parent[name] = parent.pop(key)
        return top, f"{where} is called {name!r:.30}"
    parent.extend(parent[:3])
    return top, f"{where} longer"


def _table(data: bytes, rng: Random) -> tuple[bytes, str]:
    packed = data[:2] == b"\x1f\x8b"
    text = (gzip.decompress(data) if packed else data).decode()
    mark = "\t" if "\t" in text.split("\n")[0] else ","
    rows = list(csv.reader(io.StringIO(text), delimiter=mark))
    said = _grid(rows, rng)
    sink = io.StringIO()
    quoting = rng.choice([csv.QUOTE_MINIMAL, csv.QUOTE_ALL])
    csv.writer(
        sink, delimiter=mark, quoting=quoting, lineterminator=rng.choice(["\n", "\r\n"])
    ).writerows(rows)
    new = sink.getvalue().encode("utf-8", "surrogatepass")
    return gzip.compress(new) if packed else new, said


def _grid(rows: list[list[str]], rng: Random) -> str:
    """Change cells, a column, or rows of a table in place."""
    column, value = rng.randrange(len(rows[0])), rng.choice(HOSTILE)
    name, way = rows[0][column], rng.randrange(9)
    if way <= 2:
        for row in rng.sample(rows, min(len(rows), rng.choice([1, 5, len(rows)]))):
            row[column] = rng.choice(HOSTILE) if way else value
        return f"cells of {name} {value!r:.30}"
    if way == 3:
        for row in rows[1:]:
            row[column] = value
        return f"every {name} is {value!r:.30}"
    if way == 4:
        rows[0][column] = value
        return f"{name} is called {value!r:.30}"
    if way <= 6:
        for row in rows:
            row[column : column + 1] = [] if way == 5 else [row[column]] * 2
        return f"no {name}" if way == 5 else f"{name} twice"
    few = rng.choice([0, 1, 2, 5, len(rows)])
    rows[1:] = (
        rng.sample(rows[1:], min(len(rows) - 1, few))
        if way == 7
        else rows[1:] + rows[1 : 1 + few]
    )
    return f"{len(rows) - 1} rows"


def _arrow(data: bytes, rng: Random) -> tuple[bytes, str]:
    table = pq.read_table(io.BytesIO(data))
    at = rng.randrange(table.num_columns)
    name, n = table.column_names[at], len(table)
    odd: dict[str, Callable[[], Any]] = {
        "nulls": lambda: pa.nulls(n),
        "lists": lambda: pa.array([[1, 2]] * n),
        "bytes": lambda: pa.array([b"\xff\x00"] * n),
        "structs": lambda: pa.array([{"a": 1}] * n),
        "nan": lambda: pa.array([float("nan")] * n),
        "huge": lambda: pa.array([1e300] * n),
        "negative": lambda: pa.array([-5] * n),
        "times": lambda: pa.array([0] * n, pa.timestamp("ns", "UTC")),
        "dates": lambda: pa.array([10**8] * n, pa.date64()),
        "yes": lambda: pa.array([True] * n),
        "dictionary": lambda: pa.array(
            [str(i % 2) for i in range(n)]
        ).dictionary_encode(),
        "texts": lambda: pa.array([rng.choice(HOSTILE[:30]) for _ in range(n)]),
        "some null": lambda: pa.array(
            [v if i % 2 else None for i, v in enumerate(table[at].to_pylist())]
        ),
        "shuffled": lambda: table[at].take(pa.array(rng.sample(range(n), n))),
    }
    kind = rng.choice([*odd, "dropped", "renamed", "fewer", "none", "twice"])
    if kind in odd:
        table = table.set_column(at, name, odd[kind]())
    elif kind == "dropped":
        table = table.drop_columns([name])
    elif kind == "renamed":
        table = table.rename_columns(
            [
                rng.choice(HOSTILE[1:30]) if i == at else c
                for i, c in enumerate(table.column_names)
            ]
        )
    elif kind == "twice":
        table = table.append_column(name, table[at])
    else:
        table = table.slice(0, 0 if kind == "none" else n // 2)
    sink = io.BytesIO()
    pq.write_table(table, sink)
    return sink.getvalue(), f"column {name} {kind}"


def _tensors(data: bytes, rng: Random) -> tuple[bytes, str]:
    size = int.from_bytes(data[:8], "little")
    header, rest = data[8 : 8 + size], data[8 + size :]
    way = rng.randrange(4)
    if way == 0:
        return rng.choice([2**63, 10**9, size + 1, 0]).to_bytes(8, "little") + data[
            8:
        ], "another header size"
    if way == 1:
        values = np.frombuffer(rest[: len(rest) // 4 * 4], np.float32).copy()
        at = rng.randrange(max(1, len(values)))
        values[at : at + rng.choice([1, 50])] = rng.choice([np.nan, np.inf, 1e38, 0])
        return data[: 8 + size] + values.tobytes(), "numbers not finite"
    new, said = _json(header, rng)
    return len(new).to_bytes(8, "little") + new + rest, said


# of what it is


def _gone(path: Path, rng: Random) -> str:
    path.unlink()
    return "gone"


def _folder(path: Path, rng: Random) -> str:
    path.unlink()
    path.mkdir()
    return "is a folder"


def _link(path: Path, rng: Random) -> str:
    path.unlink()
    path.symlink_to(rng.choice(["nowhere", path.name, "/", "/dev/null"]))
    return f"links to {os.readlink(path)}"


def _swapped(path: Path, rng: Random) -> str:
    other = rng.choice(sorted(p for p in path.parent.iterdir() if p.is_file()))
    mine, theirs = path.read_bytes(), other.read_bytes()
    path.write_bytes(theirs)
    other.write_bytes(mine)
    return f"swapped with {other.name}"


def _named(path: Path, rng: Random) -> str:
    name = (
        rng.choice(
            [text for text in HOSTILE[1:30] if "/" not in text and "\0" not in text]
        )
        + path.suffix
    )
    path.rename(path.with_name(name))
    return f"called {name!r:.30}"


def _beside(path: Path, rng: Random) -> str:
    name = rng.choice(
        [
            "x",
            ".hidden",
            "a b.json",
            "z.parquet",
            "z.safetensors",
            "\u202ex.csv",
            "<b>.json",
        ]
    )
    path.with_name(name).write_bytes(rng.choice(TOKENS))
    return f"{name!r} beside"


WAYS = [_gone, _folder, _link, _swapped, _named, _beside]
BY_KIND = [
    (JSONS, _json),
    (TABLES, _table),
    ({".parquet"}, _arrow),
    ({".safetensors"}, _tensors),
]
