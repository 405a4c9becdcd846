"""What a model reads: text, images, sounds or rows of an array, its vocabulary and its positions."""

import math
from contextlib import suppress
from typing import Any

from torch import nn

from layerscope.core import LayerscopeError
from layerscope.models.forward import setting

PLURAL = {"text": "texts", "image": "images", "audio": "sounds", "tensor": "arrays"}
READS = {
    "input_ids": "text",
    "pixel_values": "image",
    "input_features": "audio",
    "input_values": "audio",
}


def is_ids(sample: Any) -> bool:
    """Return whether a sample is a row of whole numbers, numpy's or torch's."""
    return getattr(sample, "ndim", None) == 1 and "int" in str(sample.dtype)


def read_as(modality: str, sample: Any, module: nn.Module) -> str:
    """Return the modality of a corpus to this model: "ids" for rows of whole numbers where it embeds what it reads."""
    if modality != "tensor" or not is_ids(sample):
        return modality
    kind = modality_of(module)
    if kind == "text" or (kind == "tensor" and embeddings(module)):
        return "ids"
    return modality


def vocabulary(module: nn.Module) -> int:
    """Return the number of token ids that a model embeds."""
    # transformers raises the one for a model of two towers, Python the other for a plain module
    with suppress(NotImplementedError, AttributeError):
        model: Any = module
        return int(model.get_input_embeddings().num_embeddings)
    for table in embeddings(module):
        return table.num_embeddings
    return 1 << 31


def embeddings(module: nn.Module) -> list[nn.Embedding]:
    """Return the tables in which a model looks up ids and positions."""
    return [child for child in module.modules() if isinstance(child, nn.Embedding)]


def modality_of(module: nn.Module) -> str:
    """Return what a model reads: text, image or audio, or for a plain module a tensor."""
    main = getattr(module, "main_input_name", None)
    if main is None:
        return "tensor"
    return READS.get(str(main), "text")


def modalities_of(module: nn.Module) -> list[str]:
    """Return what a model reads, its main input first: of two towers that of each."""
    main = modality_of(module)
    if setting(module, "is_encoder_decoder"):
        return [main]
    towers = set(map(modality_of, module.modules())) - {main, "tensor"}
    if not embeddings(module):
        # what transformers calls the input of a part that names none
        towers -= {"text"}
    return [main, *sorted(towers)]


def check_read(modality: str, processor: Any, module: nn.Module) -> None:
    """Raise where a model does not read such data; a plain module reads what its processor makes."""
    kind = modality_of(module)
    reads_any = kind == "tensor" and processor is not None
    if reads_any or modality in modalities_of(module):
        return
    reads = PLURAL[kind]
    data = PLURAL[modality]
    raise LayerscopeError(
        f"this model reads {reads} and the data are {data}: give {reads}, or a model of {data}"
    )


def positions(module: nn.Module) -> float:
    """Return the number of positions a model has, without the first rows that RoBERTa leaves empty, else infinity."""
    names = ("max_position_embeddings", "n_positions", "max_seq_len")
    rows = math.inf
    empty = 0
    for name in names:
        size = setting(module, name) or 0
        # some say -1 of no limit
        if size > 0:
            rows = size
            break
    for table in embeddings(module):
        if table.num_embeddings == rows and table.padding_idx is not None:
            empty = max(empty, table.padding_idx + 1)
    return float(rows - empty)
