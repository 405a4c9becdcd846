"""Which format a truncated model is written in, and how many dimensions its vectors keep."""

from layerscope.core import LayerscopeError
from layerscope.truncation.checkpoint import MODES, vector_width
from layerscope.truncation.source import Source


def chosen_format(name: str, source: Source, scored_pooling: str | None) -> str:
    """Return the format to write, for "auto" the one that holds the vectors that were scored, or the model's own."""
    if source.mix is not None:
        return _format_of_mix(name, source)
    if name != "auto":
        return name
    loaded = source.model.loaded
    is_vector = (
        source.unit == "text"
        and scored_pooling in MODES
        and not source.model.reads_pairs
    )
    if is_vector or loaded.served is not None or loaded.reranker is not None:
        return "sentence-transformers"
    return "transformers"


def _format_of_mix(name: str, source: Source) -> str:
    """Return the format that can hold a mix: sentence-transformers weighs raw states, which a final norm is not in."""
    norm = source.model.stack.norm
    if name == "auto":
        if norm is None and source.unit == "text":
            return "sentence-transformers"
        return "onnx"
    if name == "transformers":
        raise LayerscopeError(
            "transformers has no class that mixes layers: take `format='sentence-transformers'` or onnx"
        )
    if name == "sentence-transformers" and norm is not None:
        raise LayerscopeError(
            f"sentence-transformers mixes states before the final norm ({norm}), and the last one after it: "
            "`format='onnx'` holds the mix that was scored"
        )
    return name


def checked_dim(dim: int | None, source: Source, format: str) -> int | None:
    """Return how many dimensions of the vectors are kept, None for all; raises where nothing makes such vectors."""
    served = source.model.loaded.served
    if dim is None:
        return None
    if (
        source.unit != "text"
        or format == "transformers"
        or (format == "onnx" and served is None)
    ):
        mend = "cut its own where used"
        if source.unit == "text":
            mend = "`format='sentence-transformers'` makes it one"
        raise LayerscopeError(
            f"`dim` needs a sentence encoder's vectors, and {source.name} as {format} gives none: {mend}"
        )
    width = vector_width(source)
    if dim > width:
        raise LayerscopeError(
            f"dim is {dim}: the vectors of {source.name} have {width} dimensions, give fewer"
        )
    if dim < width:
        return dim
    return None
