"""Commands in folders of their own, and what they leave where nothing disturbs them."""

from __future__ import annotations

import re
import shutil
import time
from pathlib import Path

from commands import EARLY, TRAINED, Forks

DATA = ("--data", "table.csv")
SAVED = ("--out", "out/scores", "--csv", "out/scores.csv")
COMMANDS: dict[str, tuple[object, ...]] = {
    "profile": ("profile", "cls", *DATA, "--out", "out/run", "--views", 1, "--view-samples", 20, "--batch-size", 4),
    "evaluate": ("evaluate", "bert", "--data", "linear-probe:table.csv", "--data", "sts:sts.csv", *SAVED),
    "truncate": ("truncate", "cls", "--layer", 2, "--out", "out/cut"),
    "train": ("train", "cls", "--train", "table.csv", *TRAINED, "--out", "out/trained"),
    "exits": ("exits", "cls", *DATA, *EARLY, "--exits", "1,2", "--out", "out/early"),
    "compare": ("compare", "run", "other", "--out", "out/compared", "--csv", "out/frame.csv"),
    "lens": ("lens", "gpt2", *DATA, "--samples", 3, "--out", "out/seen"),
}  # fmt: skip
VOLATILE = {".lock", "log.jsonl"}
DECIMALS = re.compile(rb"\d+\.\d+")
"""Left out of cards: a card rounds its measured times, which two runs may share and a third not."""


class Bench:
    """The commands in a folder of their own each, and what they leave where nothing disturbs them."""

    def __init__(self, forks: Forks, made: Path, folder: Path) -> None:
        self.forks, self.made, self.folder = forks, made, folder
        self.left: dict[str, dict[str, bytes | None]] = {}
        self.twice: set[str] = set()
        self.seconds: dict[str, float] = {}
        self.count = 0

    def place(self) -> Path:
        """Return a new folder with links to all inputs, and an empty `out`."""
        self.count += 1
        place = self.folder / f"place-{self.count}"
        (place / "out").mkdir(parents=True)
        for other in self.made.iterdir():
            (place / other.name).symlink_to(other)
        return place

    def whole(self, name: str) -> dict[str, bytes | None]:
        """What a command leaves, by file; None is a file that two undisturbed runs write differently (times)."""
        if name not in self.left:
            self.left[name] = self._undisturbed(name)
        return self.left[name]

    def _undisturbed(self, name: str) -> dict[str, bytes | None]:
        place, start = self.place(), time.monotonic()
        ended = self.forks.run(*COMMANDS[name], cwd=place)
        self.seconds.setdefault(name, time.monotonic() - start)
        assert ended.status == 0, ended.err
        found = contents(place / "out")
        shutil.rmtree(place)
        return found

    def differing(self, name: str, found: dict[str, bytes | None]) -> list[str]:
        """Return the files that differ from what the command leaves, and not between two undisturbed runs."""
        other = [
            path
            for path, data in self.whole(name).items()
            if data is not None and data != found[path]
        ]
        if other and name not in self.twice:
            self.twice.add(name)
            one, two = self.left[name], self._undisturbed(name)
            assert one.keys() == two.keys()
            self.left[name] = {
                path: data if data == two[path] else None for path, data in one.items()
            }
            return self.differing(name, found)
        return other

    def end(self, name: str, place: Path) -> str:
        """Type the same command again: it ends with what it always leaves, or says in one line why not."""
        ended = self.forks.run(*COMMANDS[name], cwd=place)
        assert ended.complaint() is None, (
            f"again: {ended.complaint()}\n{ended.err[-1500:]}"
        )
        if ended.status:
            print(f"{name}: {ended.line}")
            return f"refused: {' '.join(w for w in ended.line.split() if '/' not in w)[:60]}"
        whole, found = self.whole(name), contents(place / "out")
        lacking, more = whole.keys() - found.keys(), found.keys() - whole.keys()
        assert not lacking | more, (
            f"again: lacks {sorted(lacking)[:3]}, has also {sorted(more)[:3]}\n{ended.err[-800:]}"
        )
        other = self.differing(name, found)
        assert not other, f"again: {other} differ\n{ended.err[-800:]}"
        return "same"


def contents(folder: Path) -> dict[str, bytes | None]:
    found: dict[str, bytes | None] = {}
    for path in folder.rglob("*"):
        if not path.is_file() or path.name in VOLATILE:
            continue
        data = path.read_bytes()
        if path.name == "README.md":
            data = DECIMALS.sub(b"", data)
        found[str(path.relative_to(folder))] = data
    return found
