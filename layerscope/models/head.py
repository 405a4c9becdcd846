"""A model's final norm and head without its blocks: of these, weights are neither read nor held."""

from typing import Any

import torch
from torch import Tensor, nn

from layerscope.core.errors import LayerscopeError
from layerscope.models.forward import hidden_in


def without_blocks(kind: Any) -> Any:
    """Return a class of transformers whose models hand the embedding output on to the final norm.

    Its `from_pretrained` reads no tensor of a block, and the input embedding only where the head
    shares it.
    """

    def init(self: Any, config: Any, *args: Any, **kwargs: Any) -> None:
        with torch.device("meta"):  # what is left gets its weights from the checkpoint
            kind.__init__(self, config, *args, **kwargs)
        for block in blocks_of(self):
            for held in (block._modules, block._parameters, block._buffers):
                held.clear()
            block.register_parameter(EMPTY, nn.Parameter(torch.empty(0)))
        table, output = self.get_input_embeddings(), self.get_output_embeddings()
        if not (config.get_text_config().tie_word_embeddings and output is not None):
            self.set_input_embeddings(_Drawn(table.num_embeddings, table.embedding_dim))

    missing = [*(kind._keys_to_ignore_on_load_missing or ()), rf"\.{EMPTY}$"]
    # by its name and module transformers knows how to rename the weights
    named = {
        "__module__": kind.__module__,
        "__init__": init,
        "_keys_to_ignore_on_load_missing": missing,
    }
    return type(kind.__name__, (kind,), named)


def blocks_of(module: Any) -> nn.ModuleList:
    """Return the list of a model's blocks; raises `LayerscopeError` where it has none."""
    depth = module.config.get_text_config().num_hidden_layers
    lists = [
        child
        for child in module.modules()
        if isinstance(child, nn.ModuleList) and len(child) == depth
    ]
    if not lists:
        raise LayerscopeError(
            f"{type(module).__name__} has no list of {depth} blocks: its head cannot be read alone"
        )
    return max(lists, key=lambda found: sum(p.numel() for p in found.parameters()))


def pass_on(module: nn.Module, outputs: int) -> None:
    """Let each block return its input: alone, or as the first of `outputs` values."""

    def forward(*args: object, **kwargs: object) -> object:
        hidden = hidden_in(args, kwargs)
        return (hidden, *[None] * (outputs - 1)) if outputs else hidden

    for block in blocks_of(module):
        block.forward = forward


EMPTY = "stands_for_its_weights"


class _Drawn(nn.Module):
    """In the place of an embedding: some vector for each token id, on which the norm and the head are found."""

    def __init__(self, rows: int, width: int) -> None:
        super().__init__()
        self.num_embeddings, self.embedding_dim = rows, width

    def forward(self, ids: Tensor) -> Tensor:
        return torch.sin(
            torch.arange(1.0, self.embedding_dim + 1, device=ids.device) * (ids[..., None] + 1)
        )
