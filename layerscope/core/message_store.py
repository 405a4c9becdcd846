"""Messages between the processes of one job, through the key-value store that torch's launcher keeps for them.

The store has no password: what is read there may be anybody's, and runs no code. It does not notice
when a process dies, so each process keeps a heartbeat there that the others watch.
"""

import atexit
import os
import socket
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from threading import Event, Thread
from typing import Any, TypeVar

from layerscope.core.errors import LayerscopeError
from layerscope.core.message_format import packed, unpacked

Key = tuple[Any, ...]
"""Number of the verb, number of the step in it (below 0: how it ended), and what else tells messages apart."""
FAILED, OVER, SAID = -1, -2, -3
BEAT = 1.0
"""Seconds between two heartbeats."""
MISSED = 60
"""Number of heartbeats missing in a row after which a process counts as dead; native code may delay a few."""
PIECE = 2**20
"""Bytes sent to the store at a time; it refuses more than 8 MiB."""
PAUSE = 0.02
"""Seconds between two looks of a waiting process, at most."""

T = TypeVar("T")


class MessageStore:
    """One process's access to the store."""

    def __init__(self, rank: int, size: int, store: Any) -> None:
        self.rank = rank
        self.everyone = range(size)
        self.store = store
        self.sent = deque[Key]()
        self.dead = set[int]()
        self.ending = Event()
        store.set(f"beat {rank}", "0")
        store.set(f"host {rank}", socket.gethostname())
        self.names = [
            f"process {other} on {store.get(f'host {other}').decode(errors='replace')}"
            for other in self.everyone
        ]
        launched = os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
        self.keeper = "the launcher" if launched else self.names[0]
        self.beats = Thread(target=self._beat, args=(store.clone(),), daemon=True)
        self.beats.start()
        atexit.register(self._end)

    def give(self, key: Key, value: Any = None) -> None:
        """Store a value under a key, without waiting for the processes that read it."""
        data = packed(value)
        # the store has ended: `get` tells whoever waits
        with suppress(LayerscopeError):
            for start in range(0, len(data), PIECE):
                self._ask(
                    self.store.append, f"{key} value", data[start : start + PIECE]
                )
            self._ask(self.store.set, str(key), "complete")
        self.sent.append(key)

    def take(self, key: Key) -> int:
        """Return the next number of this key, counted from 0 over all processes; raises as `get` does."""
        self._check(key)
        return int(self._ask(self.store.add, str(key), 1)) - 1

    def has(self, *keys: Key) -> bool:
        """Return whether all of these keys have values."""
        return bool(self._ask(self.store.check, [*map(str, keys)]))

    def get(self, *keys: Key) -> list[Any]:
        """Wait until all of these keys have values, and return them.

        Raises the error of a process that has failed in this verb, and `LayerscopeError` if one has
        ended.
        """
        pause = PAUSE / 200
        while not self.has(*keys):
            self._check(keys[0])
            time.sleep(pause)
            pause = min(PAUSE, 1.2 * pause)
        return [self._read(key) for key in keys]

    def forget(self, verb: int, step: int) -> None:
        """Delete what this process gave before a step that all processes have reached."""
        while self.sent[0][:2] < (verb, step):
            name = str(self.sent.popleft())
            self._ask(self.store.delete_key, name)
            self._ask(self.store.delete_key, f"{name} value")

    def first_left(self, verb: int, end: int) -> int:
        """Wait until every process has reached this end of a verb or has died; return the lowest rank left."""
        self.give((verb, end, self.rank))
        with suppress(LayerscopeError):
            while any(
                other not in self.dead and not self.has((verb, end, other))
                for other in self.everyone
            ):
                time.sleep(PAUSE)
            return next(other for other in self.everyone if other not in self.dead)
        return 1  # process 0 has ended, and the store with it

    def _check(self, key: Key) -> None:
        failed = key[0], FAILED
        if self.has(failed):
            raise self.get(failed)[0]  # of several that failed, the first
        if self.dead:
            raise _ended(self.names[min(self.dead)])

    def _read(self, key: Key) -> Any:
        """Return the value of a key; whoever reaches the launcher's port may have written it."""
        data = self._ask(self.store.get, f"{key} value")
        try:
            return unpacked(data)
        except ValueError as error:
            port = os.environ.get("MASTER_PORT", "?")
            raise LayerscopeError(
                f"another program has written to the launcher's store (port {port}): close the port to others, then "
                "run the same command to resume"
            ) from error

    def _ask(self, call: Callable[..., T], *arguments: Any) -> T:
        try:
            return call(*arguments)
        except RuntimeError:
            raise _ended(self.keeper) from None

    def _beat(self, store: Any) -> None:
        """Beat and watch the others until this process ends, or until all have ended if it keeps the store."""
        keys = [f"beat {other}" for other in self.everyone]
        last = [b""] * len(keys)
        missed = [0] * len(keys)

        def look() -> None:
            """Count the heartbeats that each process has missed in a row; an empty one says that it has ended."""
            nonlocal last
            new = store.multi_get(keys)
            for other in self.everyone:
                missed[other] = missed[other] + 1 if new[other] == last[other] else 0
            # in one assignment, as another thread reads it
            self.dead = {i for i in self.everyone if not new[i] or missed[i] >= MISSED}
            last = new

        with suppress(RuntimeError):  # the store has ended
            while not self.ending.wait(BEAT):
                store.add(keys[self.rank], 1)
                look()
            store.set(keys[self.rank], b"")
            while self.keeper == self.names[self.rank] and len(self.dead) < len(keys):
                time.sleep(BEAT)
                look()

    def _end(self) -> None:
        """Tell the others that this process ends in good order."""
        self.ending.set()
        self.beats.join()


def _ended(who: str) -> LayerscopeError:
    return LayerscopeError(f"{who} has ended: run the same command to resume")
