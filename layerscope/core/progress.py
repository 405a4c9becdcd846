"""What a long job reports while it runs: lines and bars on standard error, or nothing."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Protocol

from layerscope.core.spelling import spelled


class Advance(Protocol):
    """Called with the number of steps done, and with a note to show beside the bar from now on."""

    def __call__(self, steps: int, note: str = "") -> None:
        """Move the bar."""


class Reporter(Protocol):
    """Where a job's lines and bars go."""

    def say(self, line: str) -> None:
        """Show one line."""

    def bar(self, title: str, total: int, unit: str = "") -> AbstractContextManager[Advance]:
        """Return a context that yields a function to call with the number of steps done."""


class Silent:
    """Shows nothing."""

    def say(self, line: str) -> None:
        """Drop the line."""

    @contextmanager
    def bar(self, title: str, total: int, unit: str = "") -> Iterator[Advance]:
        """Yield a function that does nothing."""
        yield lambda steps, note="": None


class Screen:
    """Shows lines through rich on standard error, and bars where that is a terminal."""

    def __init__(self) -> None:
        from rich.console import Console as Rich

        class Patient(Rich):
            """A console whose reader may leave (2>&1 | head) while the job goes on."""

            def on_broken_pipe(self) -> None:
                self.quiet = True

        self.console = Patient(stderr=True, file=sys.stderr)
        self._shown: Any = None

    def say(self, line: str) -> None:
        """Print one line, its text as it is."""
        self.console.print(spelled(line), markup=False, highlight=False, soft_wrap=True)

    @contextmanager
    def bar(self, title: str, total: int, unit: str = "") -> Iterator[Advance]:
        """Show a bar with the rate and the time left, below the one that is shown already."""
        with self._bars() as progress:
            task = progress.add_task(title, total=total, rate="")

            def advance(steps: int, note: str = "") -> None:
                progress.advance(task, steps)
                own = next(shown for shown in progress.tasks if shown.id == task)
                speed = own.finished_speed or own.speed
                rate = f"{speed:.1f} {unit}/s" if speed and unit else ""
                progress.update(task, rate=" ".join(filter(None, (rate, note))))

            try:
                yield advance
            finally:
                progress.remove_task(task)

    @contextmanager
    def _bars(self) -> Iterator[Any]:
        """Return the display of all bars; a terminal has one."""
        if self._shown is not None:
            yield self._shown
            return
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        rate = TextColumn("{task.fields[rate]}")
        with Progress(
            *columns, rate, console=self.console, transient=True, disable=not self.console.is_terminal
        ) as self._shown:
            try:
                yield self._shown
            finally:
                self._shown = None


def reporting(shown: bool) -> Reporter:
    """Return where a job's lines and bars go: to the screen, or nowhere."""
    return Screen() if shown else Silent()


def paper() -> Any:
    """Return a rich console on standard output on which a broken pipe raises its own error."""
    from rich.console import Console as Rich

    class Paper(Rich):
        def on_broken_pipe(self) -> None:
            raise BrokenPipeError

    return Paper()
