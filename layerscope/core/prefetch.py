"""Work on the next batch beside the work on this one."""

from collections.abc import Callable, Generator, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")
U = TypeVar("U")


def ahead(make: Callable[[T], U], items: Iterable[T]) -> Generator[tuple[T, U]]:
    """Yield each item with what is made of it; a thread makes that of the next one meanwhile.

    Nothing is made of an item after the next. What `make` raises is raised where the item would
    have come, and what `items` raises one item earlier.

    >>> from layerscope.core.prefetch import ahead
    >>> list(ahead(len, ["a", "bc"]))
    [('a', 1), ('bc', 2)]
    """
    before: tuple[T, Future[U]] | None = None
    with ThreadPoolExecutor(1, "ahead") as thread:
        for item in items:
            made = item, thread.submit(make, item)
            if before is not None:
                yield before[0], before[1].result()
            before = made
        if before is not None:
            yield before[0], before[1].result()
