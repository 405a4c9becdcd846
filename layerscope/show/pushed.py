"""A result as a data set repository on the Hugging Face hub: its own files, and a card with the answer."""

import re
import tempfile
from abc import ABC, abstractmethod
from dataclasses import fields
from pathlib import Path
from typing import Any, ClassVar, Self

import pandas as pd

from layerscope.core.hub import HERE, files_in, push
from layerscope.core.saved import Store, jsonable, typed
from layerscope.show.notebook import Shown
from layerscope.show.plain import escape


class Saved(Shown, ABC):
    """A result that can be saved into a folder, and pushed to the hub."""

    @abstractmethod
    def save(self, path: str | Path, /) -> Path:
        """Write the result into a folder, and return it."""

    def push_to_hub(
        self, name: str, *, private: bool = True, token: str | None = None
    ) -> str:
        """Push the result to the hub as a data set repository with a card; return `hf://user/name`, which opens it.

        It replaces an earlier result of its kind there; nothing else is overwritten. What is pushed
        names the model and the data, without their folders on this machine, and the command. A run
        also holds the names and labels of its samples, the beginnings of the first three, and the
        pooled states of all, from which texts can be guessed. A new repository is private unless
        `private=False`; `token` may write, by default that of `hf auth login`. Raises
        `LayerscopeError` for links, and where the hub refuses or cannot be reached; what is saved
        here is untouched.
        """
        with tempfile.TemporaryDirectory() as room:
            folder, files = self._pushed(Path(room) / "result")
            return f"hf://{push(folder, files, self._card(), name, 'dataset', private, token)}"

    def _pushed(self, room: Path) -> tuple[Path, list[str]]:
        """Return a folder with the result, which may be written into `room`, and its files."""
        folder = self.save(room)
        return folder, files_in(folder)

    def _card(self) -> str:
        """Return the repository's card in Markdown, with a head that keeps the hub from reading frames as one table."""
        shown = self.document()
        kind = re.sub("(?<!^)(?=[A-Z])", "_", type(self).__name__).lower()
        said = "\n\n".join(map(escape, (*shown.warnings, shown.answer, *shown.reasons)))
        return f"""---
pretty_name: layerscope {kind.replace("_", " ")}
tags:
- layerscope
- {kind.replace("_", "-")}
viewer: false
---

# {escape(" on ".join(shown.title)) or "Results of layerscope"}

{said}

```python
import layerscope

result = layerscope.open_{kind}("hf://{HERE}")
```

One page with every table and figure: `layerscope report hf://{HERE}`.
"""


class Stored(Saved):
    """A result of which all is in the fields of a dataclass: the frames that its `STORE` names, facts, and `folder`."""

    __dataclass_fields__: ClassVar[dict[str, Any]]
    STORE: ClassVar[Store]

    def __post_init__(self) -> None:
        for name in self.STORE.frames.keys() & self.__dataclass_fields__.keys():
            object.__setattr__(
                self, name, typed(getattr(self, name), self.STORE.frames[name])
            )

    def as_dict(self) -> dict[str, Any]:
        """Return everything as JSON can hold it: tables as lists of rows; null is what is not known, or infinite."""
        facts, frames = self._parts()
        return dict(jsonable(facts | frames))

    def save(self, folder: str | Path) -> Path:
        """Write the facts as JSON and each table into a folder, and return it; an earlier result there is replaced.

        Raises `LayerscopeError` where the folder holds something else, or cannot be written.
        """
        return self.STORE.save(folder, *self._parts())

    @classmethod
    def opened(cls, folder: str | Path) -> Self:
        """Return a result that was saved; see the function that opens its kind."""
        return cls.STORE.open(folder, cls._made)

    def _parts(self) -> tuple[dict[str, Any], dict[str, pd.DataFrame]]:
        """Return the facts and the frames that are saved."""
        frames = {name: getattr(self, name) for name in self.STORE.frames}
        names = [field.name for field in fields(self)]
        others = [name for name in names if name not in (*frames, "folder")]
        return {name: getattr(self, name) for name in others}, frames

    @classmethod
    def _made(
        cls, facts: dict[str, Any], frames: dict[str, pd.DataFrame], folder: Path
    ) -> Self:
        make: Any = cls
        made: Self = make(**facts, **frames, folder=folder)
        return made
