"""The processes that torchrun or accelerate started together: they share the work, and report an error once."""

import os
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from functools import cache, partial, wraps
from itertools import count
from typing import Any, NoReturn, ParamSpec, TypeVar

from layerscope.core.errors import LayerscopeError
from layerscope.core.wire import FAILED, OVER, SAID, Key, Wire

ARRIVAL = timedelta(minutes=10)
"""All processes must have come to the verb they share within this time of the first."""

P = ParamSpec("P")
S = TypeVar("S")
T = TypeVar("T")


@dataclass
class Team:
    """Processes 0 … size − 1 of one job, by default one: what they share they all call, in the same order."""

    rank: int = 0
    size: int = 1
    wire: Wire | None = None
    verb: int = 0
    step: int = 0
    failed: int = -1
    """Number of the last verb whose failure this process has reported to the others."""

    @property
    def leads(self) -> bool:
        """Whether this is the process that plans, writes what all have found, and prints."""
        return self.rank == 0

    def begin(self) -> None:
        """Begin a verb, which all processes do."""
        self.verb, self.step = self.verb + 1, 0

    def meet(self, value: Any = None) -> list[Any]:
        """Wait for all and return what each brings, in their order; an error of one is raised in every process."""
        if self.wire is None:
            return [value]
        keys = self.bring(value)
        found = self.wire.get(*keys)
        self.wire.forget(self.verb, self.step)
        return found

    def bring(self, value: Any) -> Any:
        """Bring a value for the first process alone, without waiting; return what `is_ready` and `found` take there."""
        if self.wire is None:
            return [value]
        step = self._next()
        keys = [(*step, rank) for rank in range(self.size)]
        self.wire.give(keys[self.rank], value)
        return keys

    def is_ready(self, meeting: Any) -> bool:
        """Return whether all have brought what they bring."""
        return self.wire is None or self.wire.has(*meeting)

    def found(self, meeting: Any) -> list[Any]:
        """Wait for all and return what each has brought."""
        if self.wire is None:
            return list(meeting)
        found = self.wire.get(*meeting)
        self.wire.delete(*meeting)
        return found

    def lead(self, call: Callable[[], T]) -> T:
        """Return in every process what a call gives in the first; the others wait and do nothing, as timings need."""
        if self.wire is None:
            return call()
        self.meet()
        found: T = _or_raise(self.meet(_tried(call) if self.leads else None)[0])
        return found

    def each(self, call: Callable[[S], T], items: Iterable[S], about: str = "") -> Iterator[T]:
        """Yield what a call gives for each item, in their order, in every process; one that is free takes the next.

        As `map` does, where this is the only process. A `LayerscopeError` of an item is raised in all of them.
        What is `about` something may be called within the call of another `each`: whoever comes there joins in.
        """
        if self.wire is None:
            yield from map(call, items)
            return
        every, done, free = list(items), 0, True
        key = (self.verb, self.step, about) if about else self._next()
        while done < len(every):
            if free and (number := self.wire.take(key)) < len(every):
                self.wire.give((*key, number), _tried(partial(call, every[number])))
            else:
                free = False
            while done < len(every) and (not free or self.wire.has((*key, done))):
                yield _or_raise(self.wire.get((*key, done))[0])
                done += 1

    def numbers(self) -> Iterator[int]:
        """Yield 0, 1, … as they are asked for, each number in one process alone."""
        return count() if self.wire is None else iter(partial(self.wire.take, self._next()), None)

    def fail(self, error: Exception) -> None:
        """Tell the others of an error of this process: whatever they wait for in this verb raises it."""
        if self.wire is not None:
            ours = error if isinstance(error, LayerscopeError) else RuntimeError(f"{type(error).__name__}: {error}")
            self.wire.give((self.verb, FAILED), ours)
            self.failed = self.verb

    def _next(self) -> Key:
        self.step += 1
        return self.verb, self.step


def _tried(call: Callable[[], T]) -> tuple[LayerscopeError | None, T | None]:
    """Return what a call gives, or the error on what it was given."""
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
    """Return how many processes torchrun or accelerate started, this one among them; 1 where it was neither."""
    return int(os.environ.get("WORLD_SIZE", "1")) if "LOCAL_RANK" in os.environ else 1


def team() -> Team:
    """Return the processes this one was started with, joined; every one of them must call this.

    Raises `LayerscopeError` where some do not come.
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
        attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")  # the store still has what those before have left
        return Team(rank, size, Wire(rank, size, PrefixStore(f"layerscope {attempt}", store)))
    except RuntimeError:
        return LayerscopeError(f"{size} processes were started and some did not join: start the same command in each")


def join_tensors() -> None:
    """Let torch exchange what the parts of one model exchange in a forward: on GPUs by nccl."""
    import torch
    import torch.distributed as dist

    both = torch.cuda.is_available() and dist.is_nccl_available()
    if not dist.is_initialized():
        dist.init_process_group("cpu:gloo,cuda:nccl" if both else "gloo", timeout=ARRIVAL)


def as_one(verb: Callable[P, T]) -> Callable[P, T]:
    """Make an error in one process the error of all of them; none is left waiting."""

    @wraps(verb)
    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        ours = team()
        ours.begin()
        try:
            found = verb(*args, **kwargs)
            ours.meet()  # one that ends before the others are done has died
            return found
        except Exception as error:
            ours.fail(error)
            raise

    return call


@contextmanager
def one_voice(line: str) -> Iterator[bool]:
    """Yield whether this process is to report an error: the first that is left; all go on once it has.

    A launcher ends all processes when the first has failed, so that none may end before the error is reported.
    """
    joined = _join()
    if isinstance(joined, LayerscopeError) or joined.wire is None:
        yield True
        return
    if joined.failed != joined.verb:
        joined.begin()
        joined.fail(LayerscopeError(line))
    yield joined.wire.first_left(joined.verb, OVER) == joined.rank
    joined.wire.first_left(joined.verb, SAID)


def leave(status: int) -> NoReturn:
    """End this process; after an error at once, where it has joined others: gloo's threads may abort a slower end."""
    dist = sys.modules.get("torch.distributed")
    if status and launched() > 1 and dist is not None and dist.is_initialized():
        for stream in (sys.stdout, sys.stderr):
            with suppress(OSError):
                stream.flush()
        os._exit(status)
    sys.exit(status)
