"""Commands in folders of their own, and what they leave where nothing disturbs them."""

import re
import shutil
import time

from commands import EARLY, TRAINED

DATA = ("--data", "table.csv")
SAVED = ("--out", "out/scores", "--csv", "out/scores.csv")
COMMANDS = {
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

    def __init__(self, forks, made, folder):
        self.forks, self.made, self.folder = forks, made, folder
        self.left = {}
        self.seconds = {}
        self.count = 0

    def place(self):
        """Return a new folder with links to all inputs, and an empty `out`."""
        self.count += 1
        place = self.folder / f"place-{self.count}"
        (place / "out").mkdir(parents=True)
        for other in self.made.iterdir():
            (place / other.name).symlink_to(other)
        return place

    def whole(self, name):
        """What a command leaves, by file; None is a file that two undisturbed runs write differently (times)."""
        if name not in self.left:
            one, two = self._undisturbed(name), self._undisturbed(name)
            assert one.keys() == two.keys()
            self.left[name] = {
                path: data if data == two[path] else None for path, data in one.items()
            }
        return self.left[name]

    def _undisturbed(self, name):
        place, start = self.place(), time.monotonic()
        ended = self.forks.run(*COMMANDS[name], cwd=place)
        self.seconds[name] = time.monotonic() - start
        assert ended.status == 0, ended.err
        found = contents(place / "out")
        shutil.rmtree(place)
        return found

    def end(self, name, place):
        """Type the same command again: it ends with what it always leaves, or says in one line why not."""
        ended = self.forks.run(*COMMANDS[name], cwd=place)
        assert ended.complaint() is None, f"{ended.complaint()}\n{ended.err[-1500:]}"
        if ended.status:
            words = [word for word in ended.line.split() if "/" not in word]
            return f"refused: {' '.join(words)[:60]}"
        whole, found = self.whole(name), contents(place / "out")
        assert whole.keys() == found.keys(), sorted(whole.keys() ^ found.keys())[:3]
        other = [
            path for path, data in whole.items() if data not in (None, found[path])
        ]
        assert not other, f"{other} differ\n{ended.err[-800:]}"
        return "same"


def contents(folder):
    files = [path for path in folder.rglob("*") if path.is_file()]
    found = {
        str(path.relative_to(folder)): path.read_bytes()
        for path in files
        if path.name not in VOLATILE
    }
    for name in found:
        if name.endswith("README.md"):
            found[name] = DECIMALS.sub(b"", found[name])
    return found
