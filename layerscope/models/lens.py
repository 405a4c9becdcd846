"""What each layer would predict: the model's own code after its last block, on another layer's states.

No head is rebuilt here. The whole model runs on a batch while its blocks are bypassed: each one
hands its input on, and the last one gives the states of the layer that is read. What follows (final
norm, pooler, head, scaling of logits) is then the model's own, whatever its architecture:

    embed(ids) → block 1 ⤳ block 2 ⤳ … ⤳ block L gives `states` → norm → head → logits

For states [m, D] of single tokens the batch is m texts of one token; for a classifier it is the
batch itself. A lens is used only where, on the last layer's states, it gives the model's own logits.
"""

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal

import torch
from torch import Tensor, nn

from layerscope.models.forward import (
    Form,
    Inputs,
    accepts,
    forward,
    hidden_of,
    run,
    with_state,
)
from layerscope.models.stack import Stack
from layerscope.models.trace import same

CHUNK = 1 << 24  # logits held at once
FILL = {
    "input_ids": 0,
    "decoder_input_ids": 0,
    "attention_mask": 1,
    "decoder_attention_mask": 1,
}
"""What one-token sequences hold."""
OTHER_PART = "the model's head reads more than the states of this part: no lens"


@dataclass(frozen=True)
class Lens:
    """The head of a model, fed with the states of any layer.

    `kind` is "tokens" where every position has logits of its own (language models), "pooled" where
    a sample has one row of logits (classifiers; rerankers, whose one logit is a score).
    """

    module: nn.Module
    stack: Stack
    kind: Literal["tokens", "pooled"]
    classes: int

    @property
    def alone(self) -> bool:
        """Whether the model takes one sample at a time: a classifier on a decoder without a pad token does."""
        config: Any = getattr(self.module, "config", None)
        if self.kind == "tokens" or not hasattr(config, "get_text_config"):
            return False
        padless = getattr(config.get_text_config(), "pad_token_id", 0) is None
        return padless and accepts(self.module, "input_ids")

    def logits(self, states: Tensor, inputs: Inputs) -> Tensor:
        """Return the float32 logits of states [B, T, D] in one piece: [B, T, K], or [B, K] of a classifier."""
        if self.kind == "pooled":
            return self.sample_logits(states, inputs)
        rows = list(self.token_logits(states.flatten(0, 1), inputs))
        return torch.cat(rows).view(*states.shape[:2], -1)

    def token_logits(self, states: Tensor, inputs: Inputs) -> Iterator[Tensor]:
        """Yield the float32 logits [n, K] of token states [m, D], in chunks of rows, in order."""
        for chunk in torch.split(states, max(1, CHUNK // self.classes)):
            # each token is a sequence of its own: the head of a language model reads one position
            # at a time
            single = _packed(inputs, chunk)
            yield self.sequence_logits(chunk[:, None], single)[:, 0]

    def sequence_logits(self, states: Tensor, inputs: Inputs) -> Tensor:
        """Return the float32 logits [B, T, K] of states [B, T, D], of layer L the model's own, or [B, K].

        Where the states require gradients, so do the logits.
        """
        call = forward
        if states.requires_grad:
            call = run
        with bypassed(self.module, self.stack, states):
            logits = logits_of(call(self.module, inputs))
        if logits is None:
            raise RuntimeError("the head gave no logits")
        return logits.float()

    def sample_logits(self, states: Tensor, inputs: Inputs) -> Tensor:
        """Return the float32 logits [B, K] of a classifier on the states [B, T, D] of one layer."""
        if not self.alone or len(states) == 1:
            return self.sequence_logits(states, inputs)
        samples = (_sample(states, inputs, i) for i in range(len(states)))
        return torch.cat([self.sequence_logits(*sample) for sample in samples])


def logits_of(output: object) -> Tensor | None:
    """Return the logits of a model's output: its own field, or the bare tensor of a plain module."""
    logits = getattr(output, "logits", output)
    if isinstance(logits, Tensor) and logits.ndim in (2, 3):
        return logits
    return None


@contextmanager
def bypassed(module: nn.Module, stack: Stack, state: Tensor) -> Iterator[None]:
    """Within, no block computes: each hands its input on, and the last one gives `state`."""
    calls = 0

    def skip(form: Form, /, *args: object, **kwargs: object) -> object:
        nonlocal calls
        calls += 1
        hidden = hidden_of((args, kwargs))
        if calls == stack.depth:
            hidden = _filled(state, hidden)
        return form.around(hidden)

    skips = {}
    for path, form in zip(stack.blocks, stack.forms, strict=True):
        skips[module.get_submodule(path)] = partial(skip, form)
    with replaced(skips):
        yield


def _filled(state: Tensor, hidden: Tensor | None) -> Tensor:
    """Return the state with what a model filled the text up with to whole windows, and later cuts off."""
    if hidden is None or hidden.ndim != 3 or state.ndim != 3:
        return state
    if hidden.shape[1] <= state.shape[1]:
        return state
    filled = hidden[:, state.shape[1] :]
    return torch.cat([state, filled.to(state.dtype)], 1)


@contextmanager
def skipping(
    module: nn.Module, stack: Stack, blocks: Collection[int]
) -> Iterator[None]:
    """Within, these blocks, counted from 1, hand their input on; raises `LayerscopeError` for one that runs twice."""
    stack.check_single(blocks)

    def skip(
        form: Form, forward: Callable[..., object], /, *args: object, **kwargs: object
    ) -> object:
        hidden = hidden_of((args, kwargs))
        if hidden is None or not form.more:
            return form.around(hidden)
        # what else it gives is kept: every block of T5 hands on the bias of positions that
        # later ones read
        return with_state(forward(*args, **kwargs), hidden)

    skips = {}
    for block in blocks:
        skipped = module.get_submodule(stack.blocks[block - 1])
        skips[skipped] = partial(skip, stack.forms[block - 1], skipped.forward)
    with replaced(skips):
        yield


@contextmanager
def replaced(forwards: Mapping[nn.Module, Callable[..., object]]) -> Iterator[None]:
    """Within, these modules run other functions than their own `forward`."""
    # accelerate's hooks put a forward on a module itself
    before = {module: vars(module).copy() for module in forwards}
    for module, instead in forwards.items():
        vars(module)["forward"] = instead
    try:
        yield
    finally:
        for module, attributes in before.items():
            del vars(module)["forward"]
            if "forward" in attributes:
                vars(module)["forward"] = attributes["forward"]


def _packed(inputs: Inputs, states: Tensor) -> Inputs:
    """Return a batch of one-token sequences, for a head whose states [n, D] are given."""
    n = len(states)
    if inputs.positional is not None:
        first = inputs.positional[:1]
        return replace(inputs, positional=first.expand(n, *first.shape[1:]))
    named = {}
    for name in FILL.keys() & inputs.named:
        named[name] = inputs.named[name].new_full((n, 1), FILL[name])
    return Inputs(named)


def rows_of(inputs: Inputs, rows: slice | Tensor) -> Inputs:
    """Return samples of one length without the others, and without padding."""
    chosen = inputs.each(lambda tensor: tensor[rows])
    mask = chosen.mask
    if mask is None:
        return chosen
    length = int(mask[0].sum())

    def trimmed(tensor: Tensor) -> Tensor:
        # raw sound is longer than its mask of frames
        if tensor.shape == mask.shape:
            return tensor[:, :length]
        return tensor

    return chosen.each(trimmed)


def _sample(states: Tensor, inputs: Inputs, index: int) -> tuple[Tensor, Inputs]:
    """Return the states [1, T, D] and the inputs of one sample of a batch, without padding."""
    row = slice(index, index + 1)
    alone = rows_of(inputs, row)
    state = states[row]
    if alone.mask is not None:
        state = state[:, : alone.mask.shape[1]]
    return state, alone


@torch.inference_mode()
def find_lens(
    module: nn.Module, stack: Stack, inputs: Inputs, last: Tensor, final: Tensor
) -> tuple[Lens | None, str | None]:
    """Return the lens of a model, or None where it has no head over this stack, and a line where there is one unread.

    `last` are the raw states [B, T, D] of layer L on the probe batch `inputs`: on them the lens
    must give the model's own logits. `final` are the same after the final norm: a module that
    returns those has no head.
    """
    if stack.entry:
        return None, None
    try:
        logits = logits_of(forward(module, inputs))
    except Exception as error:
        why = type(error).__name__
        return None, f"the model does not run to its head ({why}): no lens"
    if logits is None or (logits.shape[-1] < 2 and logits.ndim == 3):
        return None, None
    if same(logits, last) or same(logits, final):
        return None, None
    if not bool(torch.isfinite(logits).all()):
        return None, "the model's head gives NaN or infinity: no lens"
    kind: Literal["tokens", "pooled"] = "pooled"
    if logits.ndim == 3:
        kind = "tokens"
        if logits.shape[:2] != last.shape[:2] or "input_ids" not in inputs.named:
            return None, OTHER_PART
    lens = Lens(module, stack, kind, logits.shape[-1])
    try:
        if reads_alike(partial(lens.logits, inputs=inputs), last, logits):
            return lens, None
    except Exception as error:
        return None, f"{OTHER_PART} ({type(error).__name__})"
    return None, OTHER_PART


def reads_alike(
    read: Callable[[Tensor], Tensor], last: Tensor, reference: Tensor
) -> bool:
    """Return whether a function of states gives what the model gives, and something else of other states."""
    tolerance = 1e-4
    if reference.dtype != torch.float32:
        tolerance = 2e-2
    output = read(last)
    agrees = torch.allclose(output, reference.float(), rtol=tolerance, atol=1e-4)
    # an autoencoder's other part does not read the stack at all
    return agrees and not torch.equal(output, read(last.flip(-1)))


@torch.inference_mode()
def token_read(
    read: Callable[[Tensor, Inputs], Tensor], last: Tensor, inputs: Inputs
) -> str:
    """Return which token `read` takes a sample's rows from, found by changing it: "first", "last" or else "mean"."""
    if last.ndim == 2:
        return "mean"
    states, alone = _sample(last, inputs, 0)
    length = states.shape[1]
    rows = read(states, alone)

    def changes(position: int) -> bool:
        other = states.clone()
        other[:, position] = other[:, position].flip(-1) + 1.0
        return not torch.equal(read(other, alone), rows)

    first = changes(0)
    if changes(length // 2) or first == changes(length - 1):
        return "mean"
    if first:
        return "first"
    return "last"
