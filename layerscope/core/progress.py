"""What a long job reports while it runs: lines and bars on standard error, or nothing."""

import logging
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from importlib.util import find_spec
from typing import Any

from layerscope.core.errors import spelled

Advance = Callable[..., None]
"""Called with the number of steps done, and with a note to show beside the bar from now on."""


LOGGER = logging.getLogger("layerscope")
LOGGER.addHandler(logging.NullHandler())
EVERY = 60.0
"""Seconds between two lines of a job whose standard error is no terminal."""
_interrupted = False


@contextmanager
def heed_interrupts(after: Any = None) -> Iterator[None]:
    """Let Ctrl-C stop a job even where a library's C code swallows its exception: the next step of a bar raises it.

    `after` handles the signal from then on, by default what did before.
    """
    global _interrupted
    before = signal.getsignal(signal.SIGINT)
    hook = sys.unraisablehook
    # else it is ignored, or another's
    is_default = before is signal.default_int_handler
    if is_default:
        signal.signal(signal.SIGINT, _interrupt)
        sys.unraisablehook = partial(_unraisable, hook)
    try:
        yield
    finally:
        signal.signal(
            signal.SIGINT, after if is_default and after is not None else before
        )
        sys.unraisablehook = hook
        _interrupted = False


def _unraisable(hook: Callable[[Any], None], unraisable: Any) -> None:
    """Report what cannot be raised, as of a destructor, but a Ctrl-C: the next step of a bar raises that."""
    if not isinstance(unraisable.exc_value, KeyboardInterrupt):
        hook(unraisable)


def _interrupt(*_: object) -> None:
    global _interrupted
    _interrupted = True
    raise KeyboardInterrupt


class Reporter:
    """Where a job's lines and bars go: here its lines go to the logger `layerscope` alone, at level INFO.

    It has no handler of its own: they are seen where a program sets one up, as
    `logging.basicConfig` does.
    """

    def say(self, line: str) -> None:
        """Log one line, and show it where there is a screen."""
        LOGGER.info(line)

    @contextmanager
    def bar(self, title: str, total: int | None, unit: str = "") -> Iterator[Advance]:
        """Yield a function to call with the number of steps done."""
        yield lambda steps, note="": None


class Screen(Reporter):
    """Shows lines through rich on standard error, and bars where that is a terminal."""

    def __init__(self) -> None:
        from rich.console import Console

        class Patient(Console):
            """A console whose reader may leave (2>&1 | head) while the job goes on."""

            def on_broken_pipe(self) -> None:
                self.quiet = True

        self.console = Patient(stderr=True, file=sys.stderr)
        self._has_bars = self.console.is_terminal or (
            self.console.is_jupyter and find_spec("ipywidgets") is not None
        )
        self._shown: Any = None

    def say(self, line: str) -> None:
        """Log one line and print it, its text as it is."""
        super().say(line)
        self.console.print(spelled(line), markup=False, highlight=False, soft_wrap=True)

    @contextmanager
    def bar(self, title: str, total: int | None, unit: str = "") -> Iterator[Advance]:
        """Show a bar with the rate and the time left, below the one that is shown: a terminal has one display."""
        from rich.progress import (
            BarColumn,
            MofNCompleteColumn,
            Progress,
            TextColumn,
            TimeRemainingColumn,
        )

        outer = self._shown
        progress = outer or Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
            TextColumn("{task.fields[rate]}"),
            console=self.console,
            transient=True,
            disable=not self._has_bars,
        )
        printed = time.monotonic()

        def advance(steps: int, note: str = "") -> None:
            nonlocal printed
            if _interrupted:
                raise KeyboardInterrupt
            progress.advance(task, steps)
            bar = next(each for each in progress.tasks if each.id == task)
            speed = bar.finished_speed or bar.speed
            rate = f"{speed:.1f} {unit}/s" if speed and unit else ""
            about = " ".join(filter(None, (rate, note)))
            progress.update(task, rate=about)
            if not self._has_bars and time.monotonic() - printed >= EVERY:
                printed = time.monotonic()
                of = "" if total is None else f" of {total:,}"
                line = f"{title}: {bar.completed:,.0f}{of} {unit}".rstrip()
                if about:
                    line += f", {about}"
                self.console.print(line, markup=False, highlight=False, soft_wrap=True)

        with nullcontext() if outer else progress:
            self._shown = progress
            task = progress.add_task(title, total=total, rate="")
            try:
                yield advance
            finally:
                progress.remove_task(task)
                self._shown = outer


def reporting(shown: bool) -> Reporter:
    """Return where a job's lines and bars go: to the screen, or nowhere."""
    return Screen() if shown else Reporter()
