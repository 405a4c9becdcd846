from typing import TYPE_CHECKING, Annotated, Any, Unpack

from layerscope.core import IN_CODE, Loading, checked
from layerscope.models.options import InspectOptions

if TYPE_CHECKING:
    from layerscope.models.inspection import Inspection


def inspect(
    model: Any,
    *,
    processor: Annotated[Any, IN_CODE] = None,
    data: Annotated[Any, IN_CODE] = None,
    **shared: Unpack[Loading],
) -> "list[Inspection]":
    """Show what layerscope finds in a model (blocks, final norm, head) and what a run would cost.

    There is one entry for its stack of blocks, or for each of several.

    Args:
        model: hub name, local folder, PEFT adapter folder, or minilm, which comes with the package;
            in Python also what `profile` takes.
        processor: tokenizer, image processor or feature extractor of a model given as an object.
        data: an array [N, ...] for a plain `torch.nn.Module`; other models are probed with built-in
            samples.
        **shared: how the model is loaded: `Loading`.

    Raises:
        LayerscopeError: if the model cannot be loaded or no blocks are found.

    Example:
        >>> (found,) = layerscope.inspect("minilm")
        >>> found.depth, found.width, found.pooling
        (6, 384, ('mean',))
        >>> found.blocks[0]
        'encoder.layer.0'

    """
    options = checked(inspect, locals(), InspectOptions)
    from layerscope.models.inspection import inspect_model

    return inspect_model(options)
