"""What the processes of one job tell each other: all are connected to the first, which passes everything on.

A process that ends closes its connection, so that the others know at once which one it was, on whatever machine.
"""

import os
import pickle
import socket
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from multiprocessing import AuthenticationError
from multiprocessing.connection import Client, Connection, Listener, wait
from threading import Condition, Thread
from typing import Any

from layerscope.core.errors import LayerscopeError

Key = tuple[Any, ...]
"""Number of the verb, number of the step in it (below 0: how it ended), and what else tells messages apart."""
FAILED, OVER, SAID = -1, -2, -3
GIVE, GIVE_FIRST, TAKE = "to all", "to the first", "take a number"
GONE, HOSTS = (-1, 0), (-1, 1)


class Wire:
    """One process's connection: what the others give arrives by key, and by the number of the process that gave it."""

    def __init__(self, rank: int, size: int, connection: Connection, seconds: float) -> None:
        self.rank, self.size, self.connection = rank, size, connection
        self.found: dict[Key, dict[int, bytes]] = {}
        self.hosts, self.gone = dict[int, str](), set[int]()
        self.news = Condition()
        Thread(target=self._listen, daemon=True).start()
        self.give(HOSTS, socket.gethostname())
        with self.news:
            if not self.news.wait_for(lambda: self.has(HOSTS, size), seconds):
                raise TimeoutError
            self.hosts = {rank: pickle.loads(host) for rank, host in self.found.pop(HOSTS).items()}

    def give(self, key: Key, value: Any, kind: str = GIVE) -> None:
        """Tell all processes, or the first one alone, without waiting."""
        with suppress(OSError):  # the first has ended: who waits for something is told
            self.connection.send_bytes(pickle.dumps((kind, key, self.rank)))
            self.connection.send_bytes(pickle.dumps(value))

    def take(self, key: Key) -> int:
        """Return how many numbers of this key any process has taken before; raises as `get` does."""
        with self.news:
            self._check(key)
        self.give(key, None, TAKE)
        return int(self.get(key)[0])

    def has(self, key: Key, number: int = 1) -> bool:
        """Return whether so many processes have given something by this key."""
        return len(self.found.get(key, ())) >= number

    def get(self, key: Key, number: int = 1) -> list[Any]:
        """Wait until so many processes have given something by a key, and take it, in their order.

        Raises the error that one has failed with, and `LayerscopeError` where one has ended.
        """
        with self.news:
            self.news.wait_for(lambda: self.has(key, number) or self.gone or self.has((key[0], FAILED)))
            if not self.has(key, number):
                self._check(key)
            return [pickle.loads(value) for _, value in sorted(self.found.pop(key).items())]

    def first_left(self, key: Key) -> int:
        """Wait until every process has come to this key or has ended; return the first of those that are left."""
        self.give(key, None)
        everyone = set(range(self.size))
        with self.news:
            self.news.wait_for(lambda: 0 in self.gone or self.gone.union(self.found.get(key, ())) == everyone)
            return min(everyone - self.gone)

    def forget(self, verb: int, step: int) -> None:
        """Drop what was given in earlier verbs, and of items in earlier steps, and never taken."""
        with self.news:
            for key in [key for key in self.found if key[0] < verb or (len(key) > 2 and key[1] < step)]:
                del self.found[key]

    def _check(self, key: Key) -> None:
        if failed := self.found.get((key[0], FAILED)):
            raise pickle.loads(failed[min(failed)])
        if self.gone:
            rank = min(self.gone)
            raise LayerscopeError(f"process {rank} on {self.hosts[rank]} has ended: the same command goes on from here")

    def _listen(self) -> None:
        while 0 not in self.gone:
            try:
                key, rank = pickle.loads(self.connection.recv_bytes())
                value = self.connection.recv_bytes()
            except (EOFError, OSError):
                key, rank, value = GONE, 0, b""
            with self.news:
                if key == GONE:
                    self.gone.add(rank)
                else:
                    self.found.setdefault(key, {})[rank] = value
                self.news.notify_all()


def connect(rank: int, size: int, store: Any, seconds: float) -> Wire:
    """Return this process's wire; the port of the first one and a secret stand in the launcher's `store`."""
    local = os.environ.get("LOCAL_WORLD_SIZE") == str(size)
    if rank == 0:
        secret = os.urandom(32)
        listener = Listener(("127.0.0.1" if local else "", 0), backlog=size, authkey=secret)
        Thread(target=_pass_on, args=(listener, size), daemon=True).start()
        store.set("layerscope", pickle.dumps((listener.address[1], secret)))
    port, secret = pickle.loads(store.get("layerscope"))
    host = "127.0.0.1" if local or rank == 0 else os.environ["MASTER_ADDR"]
    return Wire(rank, size, Client((host, port), authkey=secret), seconds)


def _pass_on(listener: Listener, size: int) -> None:
    """Pass on what each process gives, hand out numbers, and tell which process has ended, until all have."""
    wires: dict[Connection, int] = {}
    hosts: dict[int, bytes] = {}
    while len(wires) < size:
        with suppress(AuthenticationError, EOFError, OSError):  # a stranger
            new = listener.accept()
            _, _, rank = pickle.loads(new.recv_bytes())
            hosts[rank] = new.recv_bytes()
            wires[new] = rank
    listener.close()
    for rank, host in hosts.items():
        _send(wires, HOSTS, rank, host)
    taken: Counter[Key] = Counter()
    while wires:
        for wire in wait(list(wires)):
            assert isinstance(wire, Connection)
            try:
                kind, key, rank = pickle.loads(wire.recv_bytes())
                value = wire.recv_bytes()
            except (EOFError, OSError):
                kind, key, rank, value = GIVE, GONE, wires.pop(wire), b""
            to = wires
            if kind == TAKE:
                to, value = {wire: rank}, pickle.dumps(taken[key])
                taken[key] += 1
            elif kind == GIVE_FIRST:
                to = {other: 0 for other, number in wires.items() if number == 0}
            _send(to, key, rank, value)


def _send(wires: Mapping[Connection, int], key: Key, rank: int, value: bytes) -> None:
    for wire in sorted(wires, key=lambda wire: -wires[wire]):  # the first process last: it may then end
        with suppress(OSError):  # that it has ended is told in its turn
            wire.send_bytes(pickle.dumps((key, rank)))
            wire.send_bytes(value)
