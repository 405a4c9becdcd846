from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Unpack

from layerscope.core import (
    IN_CODE,
    OUTPUT,
    Folder,
    Loading,
    Number,
    OneOf,
    Several,
    Whole,
    checked,
)
from layerscope.core.option_kinds import Weights
from layerscope.truncation.options import FORMATS, POOLINGS, TruncateOptions

HEALING = "Healing"


def truncate(
    given: Any,
    layer: Annotated[int | None, Whole()] = None,
    out: Annotated[str | Path | None, Folder(), OUTPUT] = None,
    format: Annotated[str, OneOf(FORMATS)] = "auto",
    *,
    drop: Annotated[Sequence[int] | None, Several(Whole(1), such_as="4-7,9")] = None,
    mix: Annotated[
        Sequence[int] | Mapping[int, float] | None, Weights(together=True)
    ] = None,
    dim: Annotated[int | None, Whole(1)] = None,
    pooling: Annotated[str | None, OneOf(POOLINGS)] = None,
    heal: Annotated[Any, HEALING] = None,
    minutes: Annotated[float, Number(above=0), HEALING] = 10.0,
    processor: Annotated[Any, IN_CODE] = None,
    progress: Annotated[bool, IN_CODE] = True,
    **shared: Unpack[Loading],
) -> Path:
    """Write a model that ends at a layer or lacks blocks: a standard checkpoint, checked and measured.

    It loads without layerscope. Its output equals the full model's layer `layer`, after the final
    norm if there is one, to 1e-5 in float32 (to two units of precision in half precision): it is
    loaded again and compared before the folder gets its name. Heads of classifiers and language
    models are kept, and read that layer. A model card in the folder gives its measured cost beside
    the full model's; the licence, notices and what the source's card says of them are kept. Returns
    the folder.

    Args:
        given: hub name, local folder or minilm; the folder or hf://user/name of a run, whose model is
            used; or the folder of a choice by `select`, which says which layer or blocks; in Python
            instead of that folder the selection itself (`open_selection`), and also a loaded model
            or a run.
        layer: last layer to keep, from 1 to the model's last; a selection brings its own.
        out: new or empty folder for the model.
        format: format to write; auto is the model's own, or the one that a selection was made for.
        drop: blocks to leave out, such as 4-7,9, numbered like layers (block 4 outputs layer 4);
            `select` with `drop` finds those that matter least, and `heal` takes most of the loss
            back.
        mix: layers to mix instead of one layer, such as 3,6, or with weights 3=0.4,6=0.6; the model
            ends at the deepest. It is written as a SentenceTransformer with WeightedLayerPooling if
            the model has no final norm, else as ONNX.
        dim: number of dimensions to keep of a sentence encoder's vectors, the first ones, by a
            Dense module before a final Normalize; by default all.
        pooling: pooling of a sentence-transformers model; by default the model's own, or that of
            the scores.
        heal: samples without labels, in any form that `profile` reads, from which the model learns to
            give what the full model gives. What that changes is measured on samples held out. A
            call that was killed resumes from OUT.healing.
        minutes: minutes that healing takes, about.
        processor: tokenizer, image processor or feature extractor of a transformers model given as
            an object.
        progress: show progress on standard error.
        **shared: how the model is loaded: `Loading`; its dtype is that of the weights that are
          written.

    Raises:
        LayerscopeError: for every wrong input, and if no standard checkpoint can end at that layer,
            with the reason; nothing is left behind.

    Example:
        >>> from transformers import AutoModel
        >>> folder = layerscope.truncate("tiny-bert", 2, "tiny-bert-2", progress=False)
        >>> AutoModel.from_pretrained(folder).config.num_hidden_layers
        2

    """
    options = checked(truncate, locals(), TruncateOptions)
    from layerscope.truncation.pipeline import cut

    return Path(cut(options).path)
