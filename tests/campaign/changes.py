"""Random changes to a file or to one file of a folder: of its bytes, its values, or of what it is."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

HOSTILE = [
    "", " ", "\0", "\n", '"', ",", "é", "\u202e", "<script>", "{}", "[]", "nan", "inf", "null", "true", "-1", "0",
    "1e999", "9" * 30, "../../etc/passwd", "~nobody", "{x}", "x" * 5000, "=1+1", "\ud800", "1.5",
]  # fmt: skip
VALUES: list[Any] = [
    None, True, 0, -1, 10**30, 1e308, float("nan"), float("inf"), 0.5, [], {}, [None], {"a": 1}, *HOSTILE,
]  # fmt: skip
TOKENS = [*(text.encode("utf-8", "surrogatepass") for text in HOSTILE),
          b"\xff", b"\xef\xbb\xbf", b"[" * 3000, b"PAR1", b"PK\x03\x04", b"\x1f\x8b", b"\r\n"]  # fmt: skip


def change(path: Path, rng: Random) -> str:
    """Change a file, or up to three files of a folder; return what was done."""
    if path.is_file():
        return _content(path, rng)
    done = []
    for _ in range(rng.choice([1, 1, 1, 2, 3])):
        files = sorted(file for file in path.rglob("*") if file.is_file())
        if not files:
            break
        file = rng.choice(files)
        way = _content if rng.random() < 0.75 else rng.choice(WAYS)
        done.append(f"{file.relative_to(path)} {way(file, rng)}")
    return "; ".join(done)


def _content(path: Path, rng: Random) -> str:
    data, way = path.read_bytes(), BY_KIND.get(path.suffix, _bytes)
    if rng.random() < 0.3:
        way = _bytes
    try:
        new, said = way(data, rng)
    except Exception:  # an earlier change may have left no such file
        new, said = _bytes(data, rng)
    path.write_bytes(new)
    return said


def _bytes(data: bytes, rng: Random) -> tuple[bytes, str]:
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
    return ways[said], said


def _json(data: bytes, rng: Random) -> tuple[bytes, str]:
    """Change a value of an object, or of a line that holds one; rename or delete it."""
    lines = data.decode().split("\n")
    at = rng.randrange(len(lines))
    if data.lstrip()[:2] in (b"{\n", b"[\n"):
        lines, at = [data.decode()], 0
    top = parent = json.loads(lines[at])
    key: Any = None
    while parent and isinstance(parent, (dict, list)):
        key = rng.choice(
            list(parent) if isinstance(parent, dict) else range(len(parent))
        )
        if not isinstance(parent[key], (dict, list)) or rng.random() < 0.3:
            break
        parent = parent[key]
    value = rng.choice(VALUES)
    if rng.random() < 0.8 or not isinstance(parent, dict):
        parent[key] = value
    else:
        parent[rng.choice(HOSTILE)] = parent.pop(key)
    lines[at] = json.dumps(top, ensure_ascii=rng.random() < 0.5)
    return "\n".join(lines).encode("utf-8", "surrogatepass"), f"{key} {value!r:.30}"


def _table(data: bytes, rng: Random) -> tuple[bytes, str]:
    """Change cells, a name, a column, or rows of a table."""
    text = data.decode()
    mark = "\t" if "\t" in text.split("\n")[0] else ","
    rows = list(csv.reader(io.StringIO(text), delimiter=mark))
    column, value, way = (
        rng.randrange(len(rows[0])),
        rng.choice(HOSTILE),
        rng.randrange(5),
    )
    if way == 0:
        for row in rng.sample(rows, rng.choice([1, len(rows)])):
            row[column] = value
    elif way == 1:
        rows[0][column] = value
    elif way == 2:
        for row in rows:
            del row[column]
    elif way == 3:
        for row in rows:
            row.append(row[column])
    else:
        del rows[rng.choice([1, 2, 5]) :]
    sink = io.StringIO()
    csv.writer(sink, delimiter=mark).writerows(rows)
    return sink.getvalue().encode(
        "utf-8", "surrogatepass"
    ), f"table {way} {value!r:.30}"


def _arrow(data: bytes, rng: Random) -> tuple[bytes, str]:
    """Give a column of a Parquet file other values or another name, or drop it, or rows."""
    table = pq.read_table(io.BytesIO(data))
    at = rng.randrange(table.num_columns)
    name, n = table.column_names[at], len(table)
    odd: dict[str, Callable[[], Any]] = {
        "nulls": lambda: pa.nulls(n),
        "lists": lambda: pa.array([[1, 2]] * n),
        "bytes": lambda: pa.array([b"\xff\x00"] * n),
        "nan": lambda: pa.array([float("nan")] * n),
        "negative": lambda: pa.array([-5] * n),
        "times": lambda: pa.array([0] * n, pa.timestamp("ns", "UTC")),
        "texts": lambda: pa.array([rng.choice(HOSTILE[:24]) for _ in range(n)]),
        "shuffled": lambda: table[at].take(pa.array(rng.sample(range(n), n))),
    }
    kind = rng.choice([*odd, "dropped", "fewer", "twice"])
    if kind in odd:
        table = table.set_column(at, name, odd[kind]())
    elif kind == "dropped":
        table = table.drop_columns([name])
    elif kind == "twice":
        table = table.append_column(name, table[at])
    else:
        table = table.slice(0, n // 2)
    sink = io.BytesIO()
    pq.write_table(table, sink)
    return sink.getvalue(), f"column {name} {kind}"


def _gone(path: Path, rng: Random) -> str:
    path.unlink()
    return "gone"


def _folder(path: Path, rng: Random) -> str:
    path.unlink()
    path.mkdir()
    return "is a folder"


def _link(path: Path, rng: Random) -> str:
    path.unlink()
    path.symlink_to(rng.choice(["nowhere", path.name, "/"]))
    return "is a link"


def _swapped(path: Path, rng: Random) -> str:
    other = rng.choice(sorted(p for p in path.parent.iterdir() if p.is_file()))
    mine, theirs = path.read_bytes(), other.read_bytes()
    path.write_bytes(theirs)
    other.write_bytes(mine)
    return f"swapped with {other.name}"


WAYS = [_gone, _folder, _link, _swapped]
BY_KIND = {
    ".json": _json,
    ".jsonl": _json,
    ".csv": _table,
    ".tsv": _table,
    ".parquet": _arrow,
}
