"""A result as a data set repository on the Hugging Face hub: its own files, and a card with the answer."""

import re
import tempfile
from abc import abstractmethod
from pathlib import Path

from layerscope.core.hub import HERE, files_in, push
from layerscope.show.notebook import Shown
from layerscope.show.plain import escape


class Saved(Shown):
    """A result that can be saved into a folder, and pushed to the hub."""

    @abstractmethod
    def save(self, path: str | Path, /) -> Path:
        """Write the result into a folder, and return it."""

    def push_to_hub(self, name: str, *, private: bool | None = None, token: str | None = None) -> str:
        """Push the result to the hub as a data set repository with a card; return `hf://user/name`, which opens it.

        It replaces an earlier result of its kind there; nothing else is overwritten. What is pushed names the model and
        the data; a run also holds the beginnings of its first samples, and the states of all. `private` is for a new
        repository, by default as your account has it; `token` may write, by default that of `hf auth login`. Raises
        `LayerscopeError` where the hub refuses or cannot be reached; what is saved here is untouched.
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
        shown, kind = self.document(), re.sub("(?<!^)(?=[A-Z])", "_", type(self).__name__).lower()
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
