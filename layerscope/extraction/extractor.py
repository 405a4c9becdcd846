from collections.abc import Iterable, Mapping
from typing import Any

from layerscope.core import checked
from layerscope.extraction.options import ExtractOptions
from layerscope.extraction.verb import extract


class Extractor:
    """A function from batches to batches with the states of layers in them, for Ray, `datasets.map` and their like.

    It takes a dict of columns of which `column` holds texts (or images, sounds, arrays), and
    returns it with an array `[n, D]` for each layer: `layer_8`, or `layer_8.mean` and so on of
    several poolings. It holds options alone, so that it travels to other processes in some bytes;
    each process loads the model once, with its first batch. `options` are those of `extract` that
    say how the model is loaded and read. An empty text, None and a sample without a token have NaN.

    >>> made = layerscope.Extractor("minilm", [3, 6])
    >>> batch = made({"text": ["the food was good", "rude staff"]})
    >>> sorted(batch), batch["layer_6"].shape
    (['layer_3', 'layer_6', 'text'], (2, 384))
    """

    def __init__(
        self,
        model: Any,
        layers: int | str | Iterable[int],
        *,
        pooling: str = "auto",
        site: str = "normed",
        column: str = "text",
        batch_size: int | None = None,
        **options: Any,
    ) -> None:
        call = {
            "model": model,
            "data": None,
            "layers": layers,
            "out": ".",
            "pooling": pooling,
            "site": site,
            "batch_size": batch_size,
        }
        self.options = checked(extract, call | options, ExtractOptions)
        self.column = column

    def __call__(self, batch: Mapping[str, Any]) -> dict[str, Any]:
        """Return the batch with the states of its samples."""
        from layerscope.extraction.batches import with_states

        return with_states(self.options, self.column, batch)
