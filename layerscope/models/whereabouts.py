"""Where the files of a model are: its card, its terms, and the heads of its layers."""

from contextlib import suppress
from pathlib import Path

from layerscope.core import go_offline_without_hub
from layerscope.core.hub import CARD
from layerscope.models.checks import EMBEDDED, embedded
from layerscope.models.weights import HEADS

EMBEDDED_HUB = "sentence-transformers/all-MiniLM-L6-v2"
TERMS = ("LICENSE*", "LICENCE*", "NOTICE*", "COPYING*")
"""Files that go with every copy of the weights."""
FILES = ("config.json", CARD, HEADS, *TERMS)
"""What is fetched of a model on the hub."""
Whence = tuple[str | None, Path | None]
"""A model's name on the hub, and the folder of its files."""


def whereabouts(model: str, revision: str | None) -> Whence:
    """Return a model's name on the hub and the folder of its files (of the hub's: card, terms, heads), None without."""
    if model == EMBEDDED:
        return EMBEDDED_HUB, Path(embedded(model))
    folder = Path(model).expanduser()
    if model and folder.is_dir():
        return None, folder
    if not model or folder.exists():
        return None, None
    from huggingface_hub import snapshot_download

    go_offline_without_hub()
    for here in (False, True):
        # no hub, no such files: the weights that are here need neither
        with suppress(Exception):
            fetched = snapshot_download(
                model,
                revision=revision,
                allow_patterns=[*FILES],
                local_files_only=here,
            )
            return model, Path(fetched)
    return None, None
