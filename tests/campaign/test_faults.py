"""Commands killed, starved and crossed at random moments: the same command then ends as if nothing had happened."""

import shutil
import signal
import subprocess
import time
from contextlib import suppress

import pytest
from bench import COMMANDS, Bench
from trials import tried
from wrong_input.test_disks import mounted


@pytest.fixture(scope="module")
def bench(forks, made, tmp_path_factory):
    return Bench(forks, made, tmp_path_factory.mktemp("faults"))


def one_line(ended, also=(0,)):
    """A disturbed command may end well, or with one line; never with a traceback."""
    # evaluate goes on without a task, and names it
    left_out = ended.status == 1 and "not judged: " in ended.err
    if ended.status not in also and not left_out:
        assert ended.complaint() is None, f"{ended.complaint()}\n{ended.err[-1500:]}"


def moment(bench, name, place, rng):
    """Wait until a random moment of a command: by the clock, or just after a file has appeared."""
    if rng.random() < 0.5:
        time.sleep(rng.random() * bench.seconds[name])
        return
    files, end = (
        rng.randint(1, len(bench.whole(name)) + 2),
        time.monotonic() + 2 * bench.seconds[name],
    )
    while time.monotonic() < end:
        # a folder that is renamed while it is looked at
        with suppress(FileNotFoundError):
            if sum(1 for _ in (place / "out").rglob("*")) >= files:
                break
        time.sleep(0.0003)
    time.sleep(rng.random() * 0.01)


def killed(bench, name, place, rng):
    """Kill up to three times; return how often it was before the command's end."""
    ends = []
    for _ in range(rng.choice([1, 1, 2, 3])):
        running = bench.forks.start(*COMMANDS[name], cwd=place)
        moment(bench, name, place, rng)
        running.kill(group=True)
        ends.append(running.wait())
        one_line(ends[-1], (0, -signal.SIGKILL))
    return f"{sum(ended.status == -signal.SIGKILL for ended in ends)} times"


def interrupted(bench, name, place, rng):
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
    assert ended.status != 130 or ended.err.splitlines()[-1].startswith(
        "layerscope: stopped"
    ), ended.err
    return f"{times} times" if ended.status else "after its end"


def rank_killed(bench, name, place, rng):
    """Of two processes that a launcher started together one is killed; the other says so."""
    both = bench.forks.together(*COMMANDS[name], cwd=place)
    time.sleep(rng.random() * 4 * bench.seconds[name])
    rng.choice(both).kill()
    for running in both:
        one_line(running.wait(), (0, -signal.SIGKILL))


def disk_full(bench, name, place, rng):
    """A disk with room for a part of the files; what is there is kept when there is room again."""
    size = 4096
    for data in bench.whole(name).values():
        size += int(rng.random() * len(data or bytes(50_000)))
    mounted(place / "out", size)
    try:
        one_line(bench.forks.run(*COMMANDS[name], cwd=place))
        kept = bench.folder / "kept"
        shutil.copytree(place / "out", kept)
    finally:
        subprocess.run(["umount", place / "out"], check=True)
    shutil.rmtree(place / "out")
    kept.rename(place / "out")


def two(bench, name, place, rng):
    """Two processes start the same command in one folder."""
    one = bench.forks.start(*COMMANDS[name], cwd=place)
    time.sleep(rng.random() * rng.choice([0.02, bench.seconds[name]]))
    other = bench.forks.start(*COMMANDS[name], cwd=place)
    ends = one.wait(), other.wait()
    for ended in ends:
        one_line(ended)
    assert 0 in [ended.status for ended in ends], "each refused for the other"


FAULTS = (interrupted, disk_full, two, rank_killed)
NEEDS = {rank_killed: "profile"}


def disturb(bench, part, faults):
    """Disturb commands in each of these ways in turn, each round with other commands, then type them again."""
    names = list(COMMANDS)

    def attempt(seed, rng):
        turn, number = divmod(seed, len(faults))
        fault = faults[number]
        name = NEEDS.get(fault) or names[(turn + number) % len(names)]
        bench.whole(name)
        place = bench.place()
        try:
            how = fault(bench, name, place, rng)
            return f"{fault.__name__} {how or ''}: {bench.end(name, place)}"
        except AssertionError as error:
            raise AssertionError(f"{fault.__name__} of {name}: {error}") from None
        finally:
            shutil.rmtree(place, ignore_errors=True)

    tried(part, 0.2, attempt)


def test_kills(bench):
    disturb(bench, "kills", [killed])


def test_faults(bench):
    disturb(bench, "faults", FAULTS)
