"""What recipes rest on, made once through the public verbs and kept: trained models, runs, reports of exits."""

from __future__ import annotations

import hashlib
import shutil
from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from layerscope.core.errors import LayerscopeError
from layerscope.core.files import json_object, write_json
from layerscope.core.progress import Reporter
from layerscope.core.saved import FORMAT

DONE = "asset.json"


@dataclass(frozen=True)
class Asset(ABC):
    """Something a verb writes into a folder; what its fields say decides where it lies."""

    @abstractmethod
    def make(self, out: Path, assets: Assets) -> None:
        """Write it into a folder, from where an earlier call was stopped."""

    @abstractmethod
    def __str__(self) -> str:
        """Return its name, as a progress bar shows it."""

    @property
    def digest(self) -> str:
        """Hash of what it is made of."""
        known = (type(self).__name__, FORMAT, *((field.name, getattr(self, field.name)) for field in fields(self)))
        return hashlib.sha256(repr(known).encode()).hexdigest()[:12]


class Assets:
    """The assets in a folder, and the settings of the scale they are made at.

    `data` is the folder of local data sets, None where there is none.
    """

    def __init__(self, folder: Path, settings: Any, data: Path | None = None) -> None:
        self.folder, self.settings, self.data = folder, settings, data

    def path(self, asset: Asset) -> Path:
        """Return the folder of an asset, whether or not it is there."""
        return self.folder / f"{str(asset).replace(' ', '-').replace('/', '-')}-{asset.digest}"

    def has(self, asset: Asset) -> bool:
        """Return whether an asset is there, whole."""
        return (self.path(asset) / DONE).is_file()

    def get(self, asset: Asset) -> Path:
        """Return the folder of an asset, which is made where it is not there yet."""
        path = self.path(asset)
        if not self.has(asset):
            asset.make(path, self)
            write_json(path / DONE, {"asset": str(asset), "digest": asset.digest, "format": FORMAT})
        return path

    def make(self, needed: Iterable[Asset], reporter: Reporter, title: str) -> None:
        """Make what is not there yet, with a bar over what remains."""
        missing = [asset for asset in dict.fromkeys(needed) if not self.has(asset)]
        with reporter.bar(title, len(missing)) as advance:
            for asset in missing:
                advance(0, str(asset))
                self.get(asset)
                advance(1)

    def published(self, name: str) -> Path:
        """Return a file of published values, which come with the package."""
        return Path(__file__).parent / "published" / name


def check_disk(folder: Path, needed_mb: float) -> None:
    """Refuse to begin what the disk has no room for."""
    there = next(parent for parent in (folder, *folder.absolute().parents) if parent.exists())
    free = shutil.disk_usage(there).free / 1e6
    if free < needed_mb:
        raise LayerscopeError(
            f"{str(there)!r} has {free:,.0f} MB free, and this needs about {needed_mb:,.0f}: name another folder with "
            "`out`"
        )


def about(path: Path) -> dict[str, Any]:
    """Return what is known of an asset that is there."""
    return json_object(path / DONE) or {}
