"""Depth that is no list of blocks: a block run several times, and several residual streams.

Where blocks hand their state on to themselves, each run is a layer, and the axis of layers is that of
iterations. A model of two blocks, the second of which runs three times:

    layer    1         2        3        4
    block    prelude   core     core     core        layers 2 to 4 are 3 iterations of core

What lies between iterations, such as the input that is added again, belongs to no block: such a loop is no
stack. Nor are blocks that hand on several streams, [B, T, streams, D], which have no one state of a token.
"""

from collections import Counter
from collections.abc import Iterator, Sequence

from layerscope.models.block_finder import MOVE_INTO_BLOCKS
from layerscope.models.forward import Inputs
from layerscope.models.trace import Call, Calls, same

POOLED = "give states that you pooled yourself to `profile(states=...)`"


def loop_notes(blocks: Sequence[str]) -> Iterator[str]:
    """Yield in a sentence which layers are iterations of the same blocks.

    >>> list(loop_notes(["prelude", "core", "core", "core"]))
    ['layers 2 to 4 are 3 iterations of core']
    """
    start = 0
    while start < len(blocks):
        for length in range(1, (len(blocks) - start) // 2 + 1):
            once = blocks[start : start + length]
            times = 1
            while blocks[start + times * length :][:length] == once:
                times += 1
            if times > 1:
                block = once[0]
                if length > 1:
                    block = f"{block} … {once[-1]} ({length} blocks each)"
                last = start + length * times
                yield f"layers {start + 1} to {last} are {times} iterations of {block}"
                start = last
                break
        else:
            start += 1


def stream_notes(width: int, hidden_size: int | None) -> Iterator[str]:
    """Yield in a sentence that the states of a model hold several streams side by side, where they do."""
    if hidden_size and width > hidden_size and not width % hidden_size:
        streams = width // hidden_size
        yield (
            f"a state has {width} numbers, {streams} times the model's hidden size of {hidden_size}, as of {streams} "
            "residual streams side by side"
        )


def several_streams(calls: Calls, inputs: Inputs) -> Iterator[str]:
    """Yield why blocks that hand on several residual streams are no layers; images have as many axes."""
    tensors = (*inputs.named.values(), *inputs.args)
    if any(tensor.ndim > 3 for tensor in tensors):
        return
    last: dict[type, Call] = {}
    for call in calls:
        if call.input.ndim != 4 or not call.is_compound:
            continue
        before = last.get(type(call.module))
        if before is not None and same(before.output, call.input):
            yield (
                f"{before.path} hands on {list(call.input.shape)}, as several residual streams (hyper-connections), "
                f"and a layer has one state a token: {POOLED}"
            )
            return
        last[type(call.module)] = call


def interrupted_loop(calls: Calls) -> Iterator[str]:
    """Yield why a block that is run several times, and never reads what it gave, makes no layers."""
    runs = Counter(
        call.path for call in calls if call.is_compound and call.can_be_block
    )
    # of a block and what is inside it, the block
    for path in sorted(runs, key=lambda path: (-runs[path], path.count(".")))[:1]:
        if runs[path] > 1:
            yield (
                f"{path} is run {runs[path]} times, as in a loop, and the model changes the state between its "
                f"iterations, {MOVE_INTO_BLOCKS}"
            )
