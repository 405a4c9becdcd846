"""Call a module with the inputs it takes, and pick the hidden state out of what a module gets or gives."""

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.utils._pytree import (
    TreeSpec,
    tree_flatten,
    tree_leaves,
    tree_map_only,
    tree_unflatten,
)

from layerscope.core import LayerscopeError

T = TypeVar("T")
Args = tuple[Any, ...]
Kwargs = dict[str, Any]
"""What a module is called with, as its hooks see it."""
Hook = Callable[..., Any]
Hooks = tuple[nn.Module, Hook | None, Hook | None]
"""A module with what runs before and after it."""
FAILURES = (RuntimeError, TypeError, ValueError, LookupError, AttributeError)
"""What a forward may raise where a model, or a part of it, is not run the way that it was written for."""
COUNTERS = ("_get_feat_extract_output_lengths", "_get_subsampling_output_length")
"""What speech models of transformers call the function that says how many states an input of a length gives."""


@dataclass(frozen=True)
class Inputs:
    """One batch as a model takes it: named tensors, or one positional tensor for a plain module.

    `mask` [B, T] marks the real positions of the states (None: all are real).
    """

    named: Mapping[str, Tensor]
    positional: Tensor | None = None
    mask: Tensor | None = None

    @property
    def args(self) -> tuple[Tensor, ...]:
        """What a plain module is called with."""
        if self.positional is None:
            return ()
        return (self.positional,)

    def to(self, device: torch.device) -> "Inputs":
        """Return the same batch on another device; what is pinned travels beside the computation."""
        return self.each(lambda one: one.to(device, non_blocking=True))

    def pinned(self) -> "Inputs":
        """Return the same batch in memory that a GPU reads by itself, where there is one."""
        if not torch.cuda.is_available():
            return self
        return self.each(Tensor.pin_memory)

    def each(self, change: Callable[[Tensor], Tensor]) -> "Inputs":
        """Return the batch with every tensor changed."""
        tensors = vars(self) | {"named": dict(self.named)}
        return Inputs(**tree_map_only(Tensor, change, tensors))


@cache
def _parameters(function: Callable[..., Any]) -> frozenset[str]:
    """Return the names of a function's arguments."""
    return frozenset(inspect.signature(function).parameters)


def accepts(module: nn.Module, name: str) -> bool:
    """Return whether the module's `forward` names this argument."""
    return name in _parameters(type(module).forward)


@torch.inference_mode()
def forward(module: nn.Module, inputs: Inputs) -> object:
    """Run a module on a batch, passing only what its `forward` names, without caches and gradients."""
    return run(module, inputs)


def run(module: nn.Module, inputs: Inputs) -> object:
    """Run a module as `forward` does, with gradients where they are on."""
    if inputs.args:
        return module(*inputs.args)
    named: dict[str, Any] = {}
    for name, value in inputs.named.items():
        if accepts(module, name):
            named[name] = fitted(module, value)
    # an auxiliary loss is made from what routers gave in every block, and some blocks may be
    # bypassed
    for name in ("use_cache", "output_router_logits"):
        if accepts(module, name):
            named[name] = False
    ids = inputs.named.get("input_ids")
    is_plain = not hasattr(module, "main_input_name")
    if ids is not None and is_plain and "input_ids" not in named:
        return module(ids, **named)  # a plain module, whatever it calls them
    try:
        return module(**named)
    except IndexError as error:
        if ids is None or "out of range in self" not in str(error):
            raise
        raise LayerscopeError(
            f"token id {int(ids.max())} or position {ids.shape[1]} is beyond an embedding table of the model: give "
            "the model's own tokenizer, or a lower `max_length`"
        ) from error


def setting(module: nn.Module, name: str, default: Any = None) -> Any:
    """Return what the config of a model says, the default where it says nothing or there is none."""
    return getattr(getattr(module, "config", None), name, default)


def fitted(module: nn.Module, value: Any) -> Any:
    """Return an input in half precision where the weights are, as sounds and images come in float32."""
    if not isinstance(value, Tensor) or not value.is_floating_point():
        return value
    parameter = next(module.parameters(), value)
    if parameter.dtype.itemsize == 2:
        return value.to(parameter.dtype)
    return value


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether an error says that a device or the machine has no memory left."""
    if isinstance(error, (torch.OutOfMemoryError, MemoryError)):
        return True
    text = str(error).lower()
    return "out of memory" in text or "can't allocate memory" in text


def in_halves(
    batch: Any,
    run: Callable[[Any], T],
    halved: Callable[[Any], None],
    about: Callable[[Any], str],
) -> Iterator[tuple[Any, T]]:
    """Yield a batch with what `run` makes of it or, after a call of `halved`, its halves where memory runs out.

    Raises `LayerscopeError` for a single sample that does not fit, with what `about` says of it.
    """
    try:
        yield batch, run(batch)
        return
    except (MemoryError, RuntimeError) as error:
        if not is_out_of_memory(error):
            raise
        if len(batch) == 1:
            raise LayerscopeError(
                f"out of memory with a single sample {about(batch)}: try a smaller `max_length` or "
                "`dtype='bfloat16'`; what is finished is kept"
            ) from error
    torch.cuda.empty_cache()  # nothing where there is no GPU
    halved(batch)
    middle = len(batch) // 2
    for half in (batch[:middle], batch[middle:]):
        yield from in_halves(half, run, halved, about)


def hidden_of(value: object) -> Tensor | None:
    """Return the hidden state among a module's arguments or results: the first floating tensor with features."""
    for tensor in tensors_in(value):
        if tensor.is_floating_point() and tensor.ndim > 1:
            return tensor
    return None


def state_of(value: object) -> Tensor:
    """Return the hidden state among a block's arguments or results, which has one; raises `RuntimeError` where not."""
    hidden = hidden_of(value)
    if hidden is None:
        raise RuntimeError("a block gave no hidden state")
    return hidden


@contextmanager
def hooked(hooks: Iterable[Hooks]) -> Iterator[None]:
    """Within, functions run before and after modules.

    They are called as before(module, args, kwargs) and after(module, args, kwargs, output).
    """
    with ExitStack() as handles:
        for module, before, after in hooks:
            if before is not None:
                handle = module.register_forward_pre_hook(before, with_kwargs=True)
                handles.enter_context(handle)
            if after is not None:
                handle = module.register_forward_hook(after, with_kwargs=True)
                handles.enter_context(handle)
        yield


@dataclass(frozen=True)
class Form:
    """How a block returns its hidden state: alone, or among other outputs; `more` is whether those hold tensors."""

    spec: TreeSpec
    place: int
    more: bool

    @classmethod
    def of(cls, output: object) -> "Form":
        """Return the form of what a module returned, which has a hidden state."""
        leaves, spec = tree_flatten(output)
        state = state_of(output)
        place = [leaf is state for leaf in leaves].index(True)
        return cls(spec, place, len(list(tensors_in(leaves))) > 1)

    def around(self, hidden: Any) -> Any:
        """Return a state as the module would, with None for everything else."""
        leaves = [None] * self.spec.num_leaves
        leaves[self.place] = hidden
        return tree_unflatten(leaves, self.spec)


def with_state(output: Any, state: Tensor) -> Any:
    """Return a block's output with another hidden state in it."""
    leaves, spec = tree_flatten(output)
    form = Form.of(output)
    leaves[form.place] = state
    return tree_unflatten(leaves, spec)


def tensors_in(output: object) -> Iterator[Tensor]:
    """Yield every tensor among a module's arguments or results."""
    return (leaf for leaf in tree_leaves(output) if isinstance(leaf, Tensor))


def frame_mask(mask: Tensor | None, frames: int, module: nn.Module) -> Tensor | None:
    """Return a mask at the rate of the states: speech models read thousands of samples and give one state for several.

    Where a model counts its states, and counts right for the whole length, its count is taken; else
    the share is kept.
    """
    if mask is None or mask.shape[1] == frames:
        return mask
    real = mask.sum(1)
    full_length = torch.full((1,), mask.shape[1], device=mask.device)
    states = torch.ceil(real * (frames / mask.shape[1]))
    for name in COUNTERS:
        # a model may have none, or one that counts something else
        with suppress(*FAILURES):
            count = getattr(module, name)
            if int(count(full_length)) == frames:
                states = count(real)
                break
    states = states.long().clamp(1, frames)
    numbers = torch.arange(frames, device=mask.device)
    return (numbers < states[:, None]).long()
