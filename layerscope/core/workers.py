"""How many threads torch takes for a while."""

from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def torch_threads(number: int) -> Iterator[None]:
    """Give torch this number of threads, and then what it had before."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(number)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@contextmanager
def one_thread() -> Iterator[None]:
    """Compute as a worker does: in what is small, more threads wait for each other."""
    from threadpoolctl import threadpool_limits

    with threadpool_limits(1), torch_threads(1):
        yield
