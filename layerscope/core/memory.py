"""How many bytes of tensors a call holds at most."""

import weakref
from collections.abc import Callable
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


class _Watch(TorchDispatchMode):  # type: ignore[no-untyped-call]  # of torch
    """Counts the storages that operations make and let go."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # of torch
        self.held, self.most = 0, 0
        self.known = weakref.WeakSet[Any]()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        # what is given was there before
        before = {
            id(each.untyped_storage())
            for each in tree_leaves((args, kwargs))
            if isinstance(each, torch.Tensor)
        }
        results = func(*args, **(kwargs or {}))
        for each in tree_leaves(results):
            store = each.untyped_storage() if isinstance(each, torch.Tensor) else None
            if store is None or id(store) in before or store in self.known:
                continue
            self.known.add(store)
            self.held += store.nbytes()
            self.most = max(self.most, self.held)
            weakref.finalize(store, self._gone, store.nbytes())
        return results

    def _gone(self, size: int) -> None:
        self.held -= size


def peak_bytes(run: Callable[[], object]) -> int:
    """Return the most bytes of tensors that a call holds at once, beside those that were there before it."""
    watch = _Watch()
    with watch:
        run()
    return watch.most
