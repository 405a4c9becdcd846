"""Commands killed, starved and crossed at random moments: the same command then ends as if nothing had happened."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from random import Random

import pytest
from commands import EARLY, SLOW, TRAINED, Ended, Forks
from trials import MINUTES, Part

DATA = ("--data", "table.csv")
SAVED = ("--out", "out/scores", "--csv", "out/scores.csv")
COMMANDS: dict[str, tuple[object, ...]] = {
    "profile": ("profile", "cls", *DATA, "--out", "out/run", "--views", 1, "--view-samples", 20, "--batch-size", 4),
    "profile figures": ("profile", "gpt2", *DATA, "--out", "out/run", "--views", 0, "--figures", "out/figures"),
    "evaluate": ("evaluate", "bert", "--task-file", "linear-probe:table.csv", "--task-file", "sts:sts.csv", *SAVED,
                 "--jobs", 1),
    "evaluate jobs": ("evaluate", "bert", "--task-file", "classification:table.csv", *SAVED, "--jobs", 2),
    "evaluate results": ("scores", "scores.csv", "--metrics", "metrics.csv", "--bootstrap", 9, "--save",
                         "out/saved", "--save-rules", "out/rules.json", "--kind", "causal"),
    "truncate": ("truncate", "cls", "--layer", 2, "--out", "out/cut"),
    "truncate layers": ("truncate", "run", "--layers", "1,2", "--out", "out/cuts"),
    "train": ("train", "cls", "--train", "table.csv", *TRAINED, "--out", "out/trained"),
    "exits": ("exits", "cls", *DATA, *EARLY, "--exits", "1,2", "--out", "out/early"),
    "compare": ("compare", "run", "other", "--out", "out/compared", "--csv", "out/frame.csv"),
    "report": ("report", "run", "scores", "--out", "out/page.html"),
    "lens": ("lens", "gpt2", *DATA, "--samples", 3, "--out", "out/seen", "--page", "out/lens.html"),
}  # fmt: skip
VOLATILE = {".lock", "log.jsonl"}
DECIMALS = re.compile(rb"\d+\.\d+")
"""Left out of cards: a card rounds its measured times, which two runs may share and a third not."""
STARTING = 8.0
"""Seconds in which a worker starts and judges."""
QUICK = ("truncate", "lens", "report", "evaluate results", "profile")
"""What the ordinary tests disturb."""


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
        other = [path for path, data in self.whole(name).items() if data is not None and data != found[path]]
        if other and name not in self.twice:
            self.twice.add(name)
            one, two = self.left[name], self._undisturbed(name)
            assert one.keys() == two.keys()
            self.left[name] = {path: data if data == two[path] else None for path, data in one.items()}
            return self.differing(name, found)
        return other

    def end(self, name: str, place: Path) -> str:
        """Type the same command again: it ends with what it always leaves, or says in one line why not."""
        ended = self.forks.run(*COMMANDS[name], cwd=place)
        assert ended.complaint() is None, f"again: {ended.complaint()}\n{ended.err[-1500:]}"
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
    files = (path for path in folder.rglob("*") if path.is_file() and path.name not in VOLATILE)
    found = {str(path.relative_to(folder)): path.read_bytes() for path in files}
    return {name: DECIMALS.sub(b"", data) if name.endswith("README.md") else data for name, data in found.items()}


@pytest.fixture(scope="module")
def bench(forks: Forks, made: Path, tmp_path_factory: pytest.TempPathFactory) -> Bench:
    return Bench(forks, made, tmp_path_factory.mktemp("faults"))


def one_line(ended: Ended, also: tuple[int, ...] = (0,)) -> None:
    """A disturbed command may end well, or with one line; never with a traceback."""
    left_out = ended.status == 1 and "not judged: " in ended.err  # evaluate goes on without a task, and names it
    if ended.status not in also and not left_out:
        assert ended.complaint() is None, f"{ended.complaint()}\n{ended.err[-1500:]}"


def moment(bench: Bench, name: str, place: Path, rng: Random) -> None:
    """Wait until a random moment of a command: by the clock, or just after a file has appeared."""
    if rng.random() < 0.5:
        time.sleep(rng.random() * bench.seconds[name])
        return
    files, end = rng.randint(1, len(bench.whole(name)) + 2), time.monotonic() + 2 * bench.seconds[name]
    while time.monotonic() < end:
        with suppress(FileNotFoundError):  # a folder that is renamed while it is looked at
            if sum(1 for _ in (place / "out").rglob("*")) >= files:
                break
        time.sleep(0.0003)
    time.sleep(rng.random() * 0.01)


def killed(bench: Bench, name: str, place: Path, rng: Random) -> str:
    """Kill up to three times; return how often it was before the command's end."""
    ends = []
    for _ in range(rng.choice([1, 1, 2, 3])):
        running = bench.forks.start(*COMMANDS[name], cwd=place)
        moment(bench, name, place, rng)
        running.kill(group=True)
        ends.append(running.wait())
        one_line(ends[-1], (0, -signal.SIGKILL))
    return f"{sum(ended.status == -signal.SIGKILL for ended in ends)} times"


def interrupted(bench: Bench, name: str, place: Path, rng: Random) -> str:
    """Press Ctrl-C once or twice; return how often, or that the command had ended before."""
    running = bench.forks.start(*COMMANDS[name], cwd=place)
    moment(bench, name, place, rng)
    times = rng.choice([1, 2])
    for _ in range(times):
        running.kill(signal.SIGINT, group=True)
        time.sleep(rng.random() * 0.02)
    ended = running.wait()
    assert "Traceback" not in ended.err, ended.err
    one_line(ended, (0, 130))
    assert ended.status != 130 or ended.err.splitlines()[-1].startswith("layerscope: stopped"), ended.err
    return f"{times} times" if ended.status else "after its end"


def worker_killed(bench: Bench, name: str, place: Path, rng: Random) -> None:
    """Kill one of the processes that judge layers, from its first moment on; the command's own judges the rest."""
    running = bench.forks.start(*COMMANDS[name], cwd=place, worth=0)
    end, found = time.monotonic() + SLOW, []
    while not found and time.monotonic() < end:
        time.sleep(0.01)
        found = workers(running.pid)
    assert found, "no worker was started"
    time.sleep(rng.random() * STARTING)
    with suppress(ProcessLookupError):
        os.kill(rng.choice(workers(running.pid) or found), signal.SIGKILL)
    ended = running.wait()
    assert ended.status == 0, ended.err


def workers(parent: int) -> list[int]:
    """Return the processes that judge for a command."""
    found: list[int] = []
    with suppress(FileNotFoundError, ProcessLookupError):  # a thread or a process that ends while it is looked at
        for task in Path(f"/proc/{parent}/task").glob("*/children"):
            found += map(int, task.read_text().split())
        return [pid for pid in found if b"popen_loky" in Path(f"/proc/{pid}/cmdline").read_bytes()]
    return []


def rank_killed(bench: Bench, name: str, place: Path, rng: Random) -> None:
    """Of two processes that a launcher started together one is killed; the other says so."""
    both = bench.forks.together(*COMMANDS[name], cwd=place)
    time.sleep(rng.random() * 4 * bench.seconds[name])
    rng.choice(both).kill()
    for running in both:
        one_line(running.wait(), (0, -signal.SIGKILL))


def file_limit(bench: Bench, name: str, place: Path, rng: Random) -> None:
    """No file may be larger than so many bytes, as on a disk that is full; what is told has room."""
    sizes = sorted(len(data) for data in bench.whole(name).values() if data is not None)
    one_line(bench.forks.run(*COMMANDS[name], cwd=place, file=rng.randint(2000, max(3000, *sizes))))


def mounted(*words: object) -> None:
    subprocess.run(["mount", *map(str, words)], check=True, capture_output=True)


def disk_full(bench: Bench, name: str, place: Path, rng: Random) -> None:
    """A disk with room for a part of the files; what is there is kept when there is room again."""
    size = sum(len(data) if data is not None else 50_000 for data in bench.whole(name).values())
    mounted("-t", "tmpfs", "-o", f"size={4096 + int(rng.random() * size)}", "tmpfs", place / "out")
    try:
        ended = bench.forks.run(*COMMANDS[name], cwd=place)
        one_line(ended)
        kept = bench.folder / "kept"
        shutil.copytree(place / "out", kept)
    finally:
        subprocess.run(["umount", place / "out"], check=True)
    shutil.rmtree(place / "out")
    kept.rename(place / "out")


def read_only(bench: Bench, name: str, place: Path, rng: Random) -> None:
    """An output folder that cannot be written, empty or with what a killed command left."""
    if rng.random() < 0.5:
        killed(bench, name, place, rng)
    before = contents(place / "out")
    mounted("--bind", place / "out", place / "out")
    try:
        mounted("-o", "remount,ro,bind", place / "out")
        one_line(bench.forks.run(*COMMANDS[name], cwd=place))
    finally:
        subprocess.run(["umount", place / "out"], check=True)
    assert contents(place / "out") == before


def clock(bench: Bench, name: str, place: Path, rng: Random) -> None:
    one_line(bench.forks.run(*COMMANDS[name], cwd=place, late=rng.choice([0.001, 1, 1000])))


def removed(bench: Bench, name: str, place: Path, rng: Random) -> None:
    """Someone deletes the output folder while the command writes."""
    running = bench.forks.start(*COMMANDS[name], cwd=place)
    moment(bench, name, place, rng)
    shutil.rmtree(place / "out", ignore_errors=True)
    one_line(running.wait())


def two(bench: Bench, name: str, place: Path, rng: Random) -> None:
    """Two processes start the same command in one folder."""
    one = bench.forks.start(*COMMANDS[name], cwd=place)
    time.sleep(rng.random() * rng.choice([0.02, bench.seconds[name]]))
    other = bench.forks.start(*COMMANDS[name], cwd=place)
    ends = one.wait(), other.wait()
    for ended in ends:
        one_line(ended)
    assert 0 in [ended.status for ended in ends], "each refused for the other"


def memory(bench: Bench, name: str, place: Path, rng: Random) -> None:
    """Little memory: a line where Python is told of it, or the abort of a library that is not."""
    ended = bench.forks.run(*COMMANDS[name], cwd=place, memory=int(rng.random() ** 2 * 200e6))
    if ended.status >= 0:
        one_line(ended)


FAULTS: tuple[Callable[..., str | None], ...] = (
    interrupted, file_limit, disk_full, read_only, clock, removed, two, memory, worker_killed, rank_killed,
)  # fmt: skip
NEEDS = {worker_killed: "evaluate jobs", rank_killed: "profile"}
MOUNTS = (disk_full, read_only)


def may_mount(folder: Path) -> bool:
    (folder / "mount").mkdir(exist_ok=True)
    try:
        mounted("-t", "tmpfs", "tmpfs", folder / "mount")
    except (OSError, subprocess.CalledProcessError):
        return False
    subprocess.run(["umount", folder / "mount"], check=True)
    return True


def disturb(bench: Bench, part: Part, faults: Sequence[Callable[..., str | None]]) -> None:
    """Disturb commands in each of these ways in turn, each round with other commands, then type them again."""
    names = [name for name in COMMANDS if name != "evaluate jobs"] if MINUTES else QUICK
    faults = [fault for fault in faults if MINUTES or fault is not worker_killed]  # which takes 20 s
    for trial in part.trials():
        turn, number = divmod(trial.seed, len(faults))
        fault = faults[number]
        name = NEEDS.get(fault) or names[(turn + number) % len(names)]
        bench.whole(name)
        place = bench.place()
        with trial:
            try:
                how = fault(bench, name, place, trial.random)
                trial.outcome = f"{fault.__name__}{f' {how}' if how else ''}: {bench.end(name, place)}"
            except AssertionError as error:
                raise AssertionError(f"{fault.__name__} of {name}: {error}") from None
        shutil.rmtree(place, ignore_errors=True)


def test_kills(bench: Bench) -> None:
    disturb(bench, Part("kills", few=3, share=0.08), [killed])


def test_faults(bench: Bench, tmp_path: Path) -> None:
    faults = [fault for fault in FAULTS if fault not in MOUNTS or may_mount(tmp_path)]
    disturb(bench, Part("faults", few=len(faults) - 1, share=0.12), faults)
