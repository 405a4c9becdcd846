"""What recipes rest on, made once through the public verbs and kept: trained models, runs, reports of exits."""

import hashlib
import shutil
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import as_completed
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, ClassVar

from layerscope.core import FORMAT, LayerscopeError, Reporter, write_json
from layerscope_papers import workers

DONE = "asset.json"
CORE, GPU = 2.4e10, 2e13
"""Floating-point operations a second: of one core as measured with the small models, and of a GPU, roughly."""


@dataclass(frozen=True)
class Cost:
    """About what an asset takes.

    Attributes:
        minutes: of one core, or of a GPU.
        gigabytes: of memory.

    """

    minutes: float
    gigabytes: float = 1.0

    @classmethod
    def of(
        cls, parameters: float, tokens: float, *, on_gpu: bool, learns: bool
    ) -> "Cost":
        """Return what so many tokens take: to learn takes gradients, and AdamW's two moments, beside the weights."""
        operations = (6 if learns else 2) * parameters * tokens
        numbers = (4 if learns else 1) * parameters
        return cls(operations / (GPU if on_gpu else CORE) / 60, 1 + 4 * numbers / 1e9)


@dataclass(frozen=True)
class Asset(ABC):
    """Something that a verb writes into a folder, whose name depends on the asset's fields.

    `named` is its name with its fields, `minutes` about how long one takes on one core, where no
    `cost` is computed from the settings.
    """

    named: ClassVar[str] = ""
    minutes: ClassVar[float] = 0.1

    @property
    def cost(self) -> Cost:
        """About what it takes."""
        return Cost(self.minutes)

    @abstractmethod
    def make(self, out: Path, assets: "Assets") -> None:
        """Write it into a folder, from where an earlier call was stopped."""

    @property
    def rests_on(self) -> "tuple[Asset, ...]":
        """The assets that it reads: by default those among its fields."""
        return tuple(
            value
            for each in fields(self)
            if isinstance(value := getattr(self, each.name), Asset)
        )

    def __str__(self) -> str:
        """Return its name, as a progress bar shows it."""
        return self.named.format(**vars(self))

    @property
    def digest(self) -> str:
        """Hash of what it is made of."""
        made_of = (
            type(self).__name__,
            FORMAT,
            *((field.name, getattr(self, field.name)) for field in fields(self)),
        )
        return hashlib.sha256(repr(made_of).encode()).hexdigest()[:12]


class Assets:
    """The assets in a folder, and the settings of the scale they are made at.

    Attributes:
        folder: where they are kept, each in a folder of its own.
        settings: those of the scale.
        data: folder of local data sets, None where there is none.

    """

    def __init__(self, folder: Path, settings: Any, data: Path | None = None) -> None:
        self.folder = folder
        self.settings = settings
        self.data = data

    def path(self, asset: Asset) -> Path:
        """Return the folder of an asset, whether or not it is there."""
        return (
            self.folder
            / f"{str(asset).replace(' ', '-').replace('/', '-')}-{asset.digest}"
        )

    def has(self, asset: Asset) -> bool:
        """Return whether an asset is there, whole."""
        return (self.path(asset) / DONE).is_file()

    def get(self, asset: Asset) -> Path:
        """Return the folder of an asset, which is made where it is not there yet."""
        path = self.path(asset)
        if not self.has(asset):
            asset.make(path, self)
            write_json(
                path / DONE,
                {"asset": str(asset), "digest": asset.digest, "format": FORMAT},
            )
        return path

    def missing(self, needed: Iterable[Asset]) -> list[Asset]:
        """Return what is not there yet, each after what it rests on."""
        missing: dict[Asset, None] = {}
        for asset in needed:
            if not self.has(asset):
                missing |= dict.fromkeys((*self.missing(asset.rests_on), asset))
        return list(missing)

    def make(
        self, needed: Iterable[Asset], reporter: Reporter, title: str, jobs: int = 1
    ) -> None:
        """Make what is not there yet, in this process or in several, with a bar over what remains."""
        missing = self.missing(needed)
        with reporter.bar(title, len(missing)) as advance, ExitStack() as stack:
            pool = None
            if jobs > 1 and len(missing) > 1:
                pool = workers.started(jobs)
                stack.push(
                    lambda error, *_: pool.shutdown(
                        wait=True, kill_workers=error is not None
                    )
                )
            while missing:
                ready = [
                    asset for asset in missing if all(map(self.has, asset.rests_on))
                ]
                for asset in self._made(ready, pool):
                    advance(1, str(asset))
                missing = [asset for asset in missing if asset not in ready]

    def _made(self, ready: Sequence[Asset], pool: Any) -> Iterator[Asset]:
        """Make assets that rest on nothing that is missing, and yield each when it is done."""
        from joblib.externals.loky import BrokenProcessPool

        if pool is None:
            for asset in ready:
                with workers.one_thread() if apart() else nullcontext():
                    self.get(asset)
                yield asset
            return
        futures = {workers.submit(pool, self.get, asset): asset for asset in ready}
        for future in as_completed(futures):
            try:
                future.result()
            except BrokenProcessPool as error:
                raise LayerscopeError(
                    "a worker process died, perhaps out of memory: run again with `jobs=1`"
                ) from error
            yield futures[future]

    def published(self, name: str) -> Path:
        """Return a file of published values, which come with the package."""
        return Path(__file__).parent / "published" / name


def apart() -> bool:
    """Return whether assets are made by CPUs, and so each by one thread: several at once, and the same everywhere."""
    import torch

    return not torch.accelerator.is_available()


def check_disk(folder: Path, needed_mb: float) -> None:
    """Refuse to begin what the disk has no room for."""
    there = next(
        parent for parent in (folder, *folder.absolute().parents) if parent.exists()
    )
    free = shutil.disk_usage(there).free / 1e6
    if free < needed_mb:
        raise LayerscopeError(
            f"{str(there)!r} has {free:,.0f} MB free, and this needs about {needed_mb:,.0f} MB: choose "
            "another folder with `out`"
        )
