"""The command line as a person types it: what is printed where, and the one line that tells a mistake."""

import io
import os
import subprocess
import sys
from contextlib import contextmanager
from dataclasses import dataclass

import pytest
from rich.console import Console

from layerscope import LayerscopeError
from layerscope.cli import main
from layerscope.show.terminal import show


@dataclass(frozen=True)
class Printed:
    status: int
    out: str
    err: str

    @property
    def line(self):
        """The one line that tells a mistake."""
        assert "Traceback" not in self.err + self.out
        told = [
            line for line in self.err.splitlines() if line.startswith("layerscope: ")
        ]
        assert len(told) == 1, self.err
        assert self.err.splitlines()[-1] == told[0], self.err
        return told[0].removeprefix("layerscope: ")


def end_of(monkeypatch, *arguments):
    """Type a command, and return its status."""
    monkeypatch.setattr(sys, "argv", ["layerscope", *map(str, arguments)])
    with pytest.raises(SystemExit) as end:
        main()
    return int(end.value.code or 0)


@pytest.fixture
def cli(monkeypatch, capfd):
    def call(*arguments):
        capfd.readouterr()
        status = end_of(monkeypatch, *arguments)
        return Printed(status, *capfd.readouterr())

    return call


@pytest.fixture
def refusal(cli, tmp_path):
    """Return a function that types a command, checks that it leaves nothing, and returns its one line."""

    def call(*arguments):
        before = sorted(tmp_path.rglob("*"))
        printed = cli(*arguments)
        assert (printed.status, printed.out) == (2, ""), printed
        assert sorted(tmp_path.rglob("*")) == before
        return printed.line

    return call


def process(*arguments, **environment):
    command = [sys.executable, "-m", "layerscope", *map(str, arguments)]
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        env=os.environ | environment,
        timeout=120,
    )
    return Printed(done.returncode, done.stdout, done.stderr)


@pytest.fixture
def unread(monkeypatch):
    """Return a function that types a command into a pipe whose reader has left, and returns its status."""

    def call(*arguments):
        reader, writer = os.pipe()
        os.close(reader)
        with (
            monkeypatch.context() as patch,
            os.fdopen(writer, "w", encoding="utf-8") as pipe,
        ):
            patch.setattr(sys, "stdout", pipe)
            return end_of(monkeypatch, *arguments)

    return call


def flagged(line, *arguments):
    """The line on an option's value as a command prints it: begun with the option as it was typed, not as in Python."""
    name, _, rest = line.partition(" ")
    flag = f"--{name.replace('_', '-')}"
    spelled = rest.startswith(("is ", "has ")) or "_" in name
    return f"{flag} {rest}" if flag in arguments and spelled else line


@contextmanager
def refused(line=None):
    """Within, what is given is refused: in one line, in which a pattern may have to be found."""
    with pytest.raises(LayerscopeError, match=line) as error:
        yield error
    assert "\n" not in str(error.value)


def shown(result, width=120, **more):
    """A result as a terminal of some columns shows it."""
    console = Console(file=io.StringIO(), width=width)
    show(result.document(**more), console)
    return console.file.getvalue()
