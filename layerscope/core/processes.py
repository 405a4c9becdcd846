"""The processes that torchrun or accelerate started together: they share the work, and report an error once."""

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from functools import cache, wraps
from typing import Any, NoReturn, ParamSpec, TypeVar

from layerscope.core.errors import LayerscopeError

ARRIVAL = timedelta(minutes=10)
"""All processes must have come to the verb they share within this time of the first."""
PATIENCE = timedelta(days=14)
"""How long one waits for the work of another: one that died is noticed by its closed connection, not by a clock."""

P = ParamSpec("P")
T = TypeVar("T")


@dataclass
class Team:
    """Processes 0 … size − 1 of one job, by default one; they exchange objects only where all `meet`."""

    rank: int = 0
    size: int = 1
    exchange: Callable[[Any], list[Any]] = lambda value: [value]
    """Give an object, and return what each process gave, in their order."""
    together: bool = True
    """Until an error is known to all."""

    @property
    def leads(self) -> bool:
        """Whether this is the process that plans, writes the tables and prints."""
        return self.rank == 0

    def meet(self, value: Any = None) -> list[Any]:
        """Wait for all and return what each brings, in their order; an error of one is raised in every process."""
        try:
            brought = self.exchange((None, value))
        except RuntimeError as error:
            self.together = False
            raise LayerscopeError("another process has ended: the same command goes on from here") from error
        failed = next((error for error, _ in brought if error is not None), None)
        if failed is not None:
            self.together = False
            raise failed
        return [value for _, value in brought]

    def fail(self, error: Exception) -> None:
        """Bring an error of this process to where the others meet next, unless they know of one."""
        if not self.together:
            return
        self.together = False
        ours = error if isinstance(error, LayerscopeError) else RuntimeError(f"{type(error).__name__}: {error}")
        with suppress(RuntimeError):  # the others may have ended
            self.exchange((ours, None))


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
    """Join once; what is exchanged is small and on the CPU, hence gloo, whatever device each process computes on."""
    if launched() == 1:
        return Team()
    import torch
    import torch.distributed as dist

    both = torch.cuda.is_available() and dist.is_nccl_available()  # the parts of a model on GPUs meet by nccl
    try:
        if dist.is_initialized():
            dist.new_group(backend="gloo", timeout=ARRIVAL)
        else:
            dist.init_process_group("cpu:gloo,cuda:nccl" if both else "gloo", timeout=ARRIVAL)
        group = dist.new_group(backend="gloo", timeout=PATIENCE)
    except RuntimeError:
        return LayerscopeError(
            f"{launched()} processes were started and some did not join: start the same command in each"
        )

    def exchange(value: Any) -> list[Any]:
        found = [None] * dist.get_world_size(group)
        dist.all_gather_object(found, value, group=group)
        return found

    return Team(dist.get_rank(group), dist.get_world_size(group), exchange)


def as_one(verb: Callable[P, T]) -> Callable[P, T]:
    """Make an error in one process the error of all of them; none is left waiting."""

    @wraps(verb)
    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        ours = team()
        ours.together = True
        try:
            return verb(*args, **kwargs)
        except Exception as error:
            ours.fail(error)
            raise

    return call


@contextmanager
def one_voice(line: str) -> Iterator[bool]:
    """Yield whether this process is to report an error: the first, or each where one is gone; all go on once it has.

    A launcher ends all processes when the first has failed, so that none may end before the error is reported.
    """
    if launched() == 1:
        yield True
        return
    with suppress(LayerscopeError):
        team().fail(LayerscopeError(line))
    here = _all_here()
    yield os.environ.get("RANK") == "0" or not here
    if here:
        _all_here()


def leave(status: int) -> NoReturn:
    """End this process; after an error at once, where it has joined others: gloo's threads may abort a slower end."""
    dist = sys.modules.get("torch.distributed")
    if status and launched() > 1 and dist is not None and dist.is_initialized():
        for stream in (sys.stdout, sys.stderr):
            with suppress(OSError):
                stream.flush()
        os._exit(status)
    sys.exit(status)


def _all_here() -> bool:
    """Wait for the other processes, and return whether each is still there."""
    try:
        team().exchange(None)
    except (LayerscopeError, RuntimeError):
        return False
    return True
