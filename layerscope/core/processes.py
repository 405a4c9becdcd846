"""Sharing work among the processes that torchrun or accelerate started; an error is reported once."""

import os
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from functools import cache, partial, wraps
from typing import Any, NoReturn, ParamSpec, TypeVar

from layerscope.core.errors import LayerscopeError
from layerscope.core.message_store import FAILED, OVER, SAID, Key, MessageStore
from layerscope.core.removed_options import refuse_gone

ARRIVAL = timedelta(minutes=10)
"""Longest time the first process waits for the others to join."""

P = ParamSpec("P")
S = TypeVar("S")
T = TypeVar("T")


@dataclass
class Team:
    """The processes of one job, ranks 0 to size − 1; all of them make the shared calls in the same order."""

    rank: int = 0
    size: int = 1
    messages: MessageStore | None = None
    verb: int = 0
    step: int = 0
    failed: int = -1
    """Number of the last verb whose error this process reported to the others; -1 before any."""

    @property
    def leads(self) -> bool:
        """Whether this is the first process, which plans, writes the shared results and prints."""
        return self.rank == 0

    def begin(self) -> None:
        """Begin a verb; every process must call this."""
        self.verb += 1
        self.step = 0

    def meet(self, value: Any = None) -> list[Any]:
        """Wait for all processes and return the value of each, by rank; an error in one is raised in all."""
        if self.messages is None:
            return [value]
        step = self._next()
        keys = [(*step, rank) for rank in range(self.size)]
        self.messages.give(keys[self.rank], value)
        values = self.messages.get(*keys)
        self.messages.forget(self.verb, self.step)
        return values

    def lead(self, call: Callable[[], T]) -> T:
        """Call in the first process and return its result in all; the others stay idle meanwhile, for clean timings."""
        if self.messages is None:
            return call()
        self.meet()
        value: T = _or_raise(self.meet(_tried(call) if self.leads else None)[0])
        return value

    def each(
        self, call: Callable[[S], T], items: Iterable[S], about: str = ""
    ) -> Iterator[T]:
        """Yield the result of a call for each item, in order and in every process; a free process takes the next item.

        A single process does what `map` does. A `LayerscopeError` on an item is raised in all
        processes. Calls within another `each` name what they are `about`: processes join those of
        the same name as they come to them.
        """
        if self.messages is None:
            yield from map(call, items)
            return
        every = list(items)
        done = 0
        free = True
        key = (self.verb, self.step, about) if about else self._next()
        self.messages.sent.append(key)  # the counter, which is deleted with the results
        while done < len(every):
            if free and (number := self.messages.take(key)) < len(every):
                self.messages.give((*key, number), _tried(partial(call, every[number])))
            else:
                free = False
            while done < len(every) and (not free or self.messages.has((*key, done))):
                yield _or_raise(self.messages.get((*key, done))[0])
                done += 1

    def fail(self, error: Exception) -> None:
        """Tell the others of an error in this process; whatever they wait for in this verb raises it."""
        if self.messages is not None:
            ours = (
                error
                if isinstance(error, LayerscopeError)
                else RuntimeError(f"{type(error).__name__}: {error}")
            )
            self.messages.give((self.verb, FAILED), ours)
            self.failed = self.verb

    def _next(self) -> Key:
        self.step += 1
        return self.verb, self.step


def _tried(call: Callable[[], T]) -> tuple[LayerscopeError | None, T | None]:
    """Return the error that a call raises, or its result."""
    try:
        return None, call()
    except LayerscopeError as error:
        return error, None


def _or_raise(tried: Any) -> Any:
    error, value = tried
    if error is not None:
        raise error
    return value


def launched() -> int:
    """Return the number of processes that torchrun or accelerate started, or 1 if neither started this one."""
    return int(os.environ.get("WORLD_SIZE", "1")) if "LOCAL_RANK" in os.environ else 1


def team() -> Team:
    """Join the processes that were started with this one; every one of them must call this.

    Raises `LayerscopeError` if some do not.
    """
    joined = _join()
    if isinstance(joined, LayerscopeError):
        raise joined
    return joined


@cache
def _join() -> Team | LayerscopeError:
    """Join once, by the address that the launcher gave all of them."""
    if (size := launched()) == 1:
        return Team()
    from torch.distributed.distributed_c10d import PrefixStore
    from torch.distributed.rendezvous import rendezvous

    try:
        store, rank, _ = next(iter(rendezvous("env://", timeout=ARRIVAL)))
        # the store still has what those before have left
        attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
        return Team(
            rank,
            size,
            MessageStore(rank, size, PrefixStore(f"layerscope {attempt}", store)),
        )
    except RuntimeError as error:
        if "already in use" in str(error):
            port = os.environ["MASTER_PORT"]
            return LayerscopeError(
                f"port {port} of this machine is already in use: set MASTER_PORT to a free one"
            )
        return LayerscopeError(
            f"{size} processes were started and some did not join: start the same command in each"
        )


def as_one(verb: Callable[P, T]) -> Callable[P, T]:
    """Make an error in one process an error in all of them, so that none is left waiting."""

    @wraps(verb)
    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        ours = team()
        ours.begin()
        try:
            refuse_gone(verb.__name__, kwargs)
            result = verb(*args, **kwargs)
            ours.meet()  # one that ends before the others are done has died
            return result
        except Exception as error:
            ours.fail(error)
            raise

    return call


@contextmanager
def reports_once(line: str) -> Iterator[bool]:
    """Yield whether this process reports an error, as the first that is left does; leave once it has been reported.

    A launcher ends all processes as soon as one has failed, so none may end before that.
    """
    joined = _join()
    if isinstance(joined, LayerscopeError) or joined.messages is None:
        yield True
        return
    if joined.failed != joined.verb:
        joined.begin()
        joined.fail(LayerscopeError(line))
    yield joined.messages.first_left(joined.verb, OVER) == joined.rank
    joined.messages.first_left(joined.verb, SAID)


def leave(status: int) -> NoReturn:
    """End this process; at once after an error with gloo or nccl in use, whose threads may abort a slower end."""
    dist = sys.modules.get("torch.distributed")
    if status and launched() > 1 and dist is not None and dist.is_initialized():
        for stream in (sys.stdout, sys.stderr):
            with suppress(OSError):
                stream.flush()
        os._exit(status)
    sys.exit(status)
