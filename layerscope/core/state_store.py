"""Numbered files of states, each there whole or not at all, whoever writes them: a pass, `extract`, an evaluation.

A file is written aside and renamed. After it comes its mark, a small JSON file with the checksum
and what else is known, which says that the file is whole. So a killed process loses only what it
was writing, processes that know nothing of each other may share a folder, and whoever resumes
computes what has no mark.
"""

import os
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from safetensors import SafetensorError, safe_open

from layerscope.core.checked_json import unchanged
from layerscope.core.errors import LayerscopeError
from layerscope.core.files import aside, digest, json_object, page_sums, write_json

if TYPE_CHECKING:
    from torch import Tensor

PAGE_SUMS, SHA256 = "page_sums", "sha256"
CHECKSUMS = {PAGE_SUMS: page_sums, SHA256: digest}
"""What a checksum is called in a mark, and what computes it: runs of earlier versions have a sha256."""
Save = Callable[[Path], object]


class StateStore:
    """The numbered files in one place of a folder.

    `item` is what one is called, `marks` where the marks lie, if apart, and `checksum` what new
    ones have.
    """

    def __init__(
        self,
        owner: Path,
        place: str,
        item: str,
        marks: str | None = None,
        suffix: str = ".safetensors",
        digits: int = 5,
        checksum: str = PAGE_SUMS,
    ) -> None:
        self.owner = owner
        self.item = item
        self.suffix = suffix
        self.digits = digits
        self.checksum = checksum
        self.files = owner / place
        self.marks = self.files if marks is None else owner / marks
        self.writer = f".{uuid.uuid4().hex[:12]}"

    def path(self, number: int) -> Path:
        """Return the path of a file."""
        return self.files / f"{number:0{self.digits}d}{self.suffix}"

    def mark(self, number: int) -> Path:
        """Return the path of the mark that says that a file is whole."""
        return self.marks / f"{number:0{self.digits}d}.json"

    def facts(self, number: int) -> dict[str, Any] | None:
        """Return what is known of a file; None where it is not finished, or was cut since."""
        with suppress(OSError):
            return _facts(self.path(number), self.mark(number))
        return None

    def is_finished(self, number: int) -> bool:
        """Return whether a file is there in full."""
        return self.facts(number) is not None

    def finished(self) -> list[int]:
        """Return the numbers of the files that are there in full, ascending."""
        return list(filter(self.is_finished, self._marked()))

    def there(self) -> list[int]:
        """Return the numbers of the files that are there, with a mark or without, ascending."""
        return sorted(
            int(path.stem) for path in self.files.glob(f"[0-9]*{self.suffix}")
        )

    def is_damaged(self, number: int) -> bool:
        """Return whether a file is there and not what was written.

        One that is gone is only not finished; one without a mark, as of another's run, counts as
        whole.
        """
        path = self.path(number)
        mark = self.mark(number)
        try:
            version = _version(path, mark)
        except OSError:
            return False
        return not _matches(path, mark, version)

    def write(
        self, number: int, content: "Mapping[str, Tensor] | Save", **facts: Any
    ) -> None:
        """Write a file, of tensors or by a function that writes to a path, and then its mark."""
        path = self.path(number)
        aside(path, content if callable(content) else _saving(content), self.writer)
        facts |= {
            "bytes": path.stat().st_size,
            self.checksum: CHECKSUMS[self.checksum](path),
        }
        write_json(self.mark(number), facts, self.writer)

    @contextmanager
    def open(self, number: int) -> Iterator[Any]:
        """Open a file for reading its tensors one by one; one that is not what was written is refused."""
        path = self.path(number)
        if self.is_damaged(number):
            raise LayerscopeError(
                f"{self.item} {number} of {str(self.owner)!r} is damaged ({path} has changed since it was written): "
                f"repeat the command that made it, which computes this {self.item} again"
            )
        try:
            with safe_open(path, framework="pt") as file:
                yield file
        except (SafetensorError, OSError) as error:
            raise LayerscopeError(
                f"{self.item} {number} of {str(self.owner)!r} cannot be read ({error}): "
                "run the same command to compute it again"
            ) from error

    def drop(self, number: int) -> None:
        """Take a file away, so that it is computed again."""
        for path in (self.mark(number), self.path(number)):
            path.unlink(missing_ok=True)

    def drop_damaged(self) -> list[int]:
        """Take away the files that are not what was written, and return their numbers."""
        damaged = list(filter(self.is_damaged, self._marked()))
        for number in damaged:
            self.drop(number)
        return damaged

    def drop_leftovers(self, age: float = 0) -> None:
        """Take away what processes that were killed left half written, `age` seconds ago or longer."""
        for folder in {self.files, self.marks, self.owner}:
            for pattern in (".*.part", ".tmp*"):  # ours, and those of safetensors
                for left in folder.glob(pattern):
                    with suppress(OSError):
                        if time.time() - left.stat().st_mtime >= age:
                            left.unlink()

    def _marked(self) -> list[int]:
        return sorted(int(path.stem) for path in self.marks.glob("[0-9]*.json"))


def _facts(path: Path, mark: Path) -> dict[str, Any] | None:
    """Return what the mark of a file says; None where the mark is damaged, or the file was cut since."""
    # first: without a file its mark says nothing
    size = path.stat().st_size
    facts = json_object(mark)
    if facts is None or not unchanged(facts):
        return None
    return facts if facts.get("bytes") in (None, size) else None


def _version(*paths: Path) -> tuple[tuple[int, ...], ...]:
    """Return what stays the same of files as long as nobody writes to them."""
    states = map(os.stat, paths)
    return tuple((state.st_ino, state.st_mtime_ns, state.st_size) for state in states)


@cache
def _matches(path: Path, mark: Path, version: tuple[tuple[int, ...], ...]) -> bool:
    """Return whether a file has the checksums of its mark; read once a process for each version of the two."""
    facts = _facts(path, mark)
    return facts is not None and all(
        facts[name] == sum_of(path)
        for name, sum_of in CHECKSUMS.items()
        if name in facts
    )


def _saving(tensors: "Mapping[str, Tensor]") -> Save:
    from safetensors.torch import save_file

    ready = {key: tensor.contiguous() for key, tensor in tensors.items()}
    return lambda path: save_file(ready, path)


def first_difference(pairs: Iterable[tuple[str, Any, Any]]) -> str:
    """Return the first of named facts that is another there than here, in words; empty where none is.

    >>> from layerscope.core.state_store import first_difference
    >>> first_difference([("site", "raw", "raw"), ("layers", [1, 2], [1, 3])])
    'layers: 1,2 there, 1,3 here'
    """
    for name, there, here in pairs:
        if there != here:
            return f"{name}: {_shortened(there)} there, {_shortened(here)} here"
    return ""


def _shortened(value: Any) -> str:
    text = ",".join(map(str, value)) if isinstance(value, list) else str(value)
    return text if len(text) <= 40 else f"{text[:12]}…"
