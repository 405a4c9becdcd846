"""Call a module with the inputs it takes, and pick the hidden state out of what a module gets or gives."""

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from copy import copy
from dataclasses import dataclass
from functools import cache
from typing import Any, ClassVar, TypeVar

import torch
from torch import Tensor, nn

from layerscope.core.errors import LayerscopeError

T = TypeVar("T")
Hook = Callable[..., Any]
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
        return () if self.positional is None else (self.positional,)

    def to(self, device: torch.device) -> "Inputs":
        """Return the same batch on another device; what is pinned travels beside the computation."""
        return self._each(lambda one: one.to(device, non_blocking=True))

    def pinned(self) -> "Inputs":
        """Return the same batch in memory that a GPU reads by itself, where there is one."""
        return self._each(Tensor.pin_memory) if torch.cuda.is_available() else self

    def _each(self, change: Callable[[Tensor], Tensor]) -> "Inputs":
        named = {name: change(one) for name, one in self.named.items()}
        return Inputs(
            named,
            *(
                None if one is None else change(one)
                for one in (self.positional, self.mask)
            ),
        )


@cache
def _parameters(function: Callable[..., Any]) -> frozenset[str]:
    return frozenset(inspect.signature(function).parameters)


def accepts(module: nn.Module, name: str) -> bool:
    """Return whether the module's `forward` names this argument."""
    return name in _parameters(type(module).forward)


@torch.inference_mode()
def forward(module: nn.Module, inputs: Inputs, **extra: object) -> object:
    """Run a module on a batch, passing only what its `forward` names, without caches and gradients."""
    return run(module, inputs, **extra)


def run(module: nn.Module, inputs: Inputs, **extra: object) -> object:
    """Run a module as `forward` does, with gradients where they are on."""
    if inputs.args:
        return module(*inputs.args)
    named = {
        k: fitted(module, v)
        for k, v in {**inputs.named, **extra}.items()
        if accepts(module, k)
    }
    # an auxiliary loss is made from what routers gave in every block, and some blocks may be
    # bypassed
    named |= {
        name: False
        for name in ("use_cache", "output_router_logits")
        if accepts(module, name)
    }
    ids = inputs.named.get("input_ids")
    if (
        ids is not None
        and not hasattr(module, "main_input_name")
        and "input_ids" not in named
    ):
        return module(ids, **named)  # a plain module, whatever it calls them
    try:
        return module(**named)
    except IndexError as error:
        if ids is None or "out of range in self" not in str(error):
            raise
        rows = sorted(
            {
                each.num_embeddings
                for each in module.modules()
                if isinstance(each, nn.Embedding)
            }
        )
        raise LayerscopeError(
            f"token id {int(ids.max())} or position {ids.shape[1]} is beyond an embedding table of the model (of "
            f"{' or '.join(map(str, rows))} rows): give the model's own tokenizer, or a lower `max_length`"
        ) from error


def fitted(module: nn.Module, value: Any) -> Any:
    """Return an input in half precision where the weights are, as sounds and images come in float32."""
    if not isinstance(value, Tensor) or not value.is_floating_point():
        return value
    dtype = next((p.dtype for p in module.parameters()), value.dtype)
    return value.to(dtype) if dtype.itemsize == 2 else value


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether an error says that a device or the machine has no memory left."""
    texts = ("out of memory", "can't allocate memory")
    return isinstance(error, (torch.OutOfMemoryError, MemoryError)) or any(
        t in str(error).lower() for t in texts
    )


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
    except (torch.OutOfMemoryError, MemoryError, RuntimeError) as error:
        if not is_out_of_memory(error):
            raise
        if len(batch) == 1:
            raise LayerscopeError(
                f"out of memory with a single sample {about(batch)}: try a smaller `max_length` or "
                "`dtype='bfloat16'`; what is finished is kept"
            ) from error
    torch.cuda.empty_cache()  # nothing where there is no GPU
    halved(batch)
    for half in (batch[: len(batch) // 2], batch[len(batch) // 2 :]):
        yield from in_halves(half, run, halved, about)


def hidden_of(value: object) -> Tensor | None:
    """Return the hidden state among a module's arguments or results: the first floating tensor with features."""
    if isinstance(value, Tensor):
        return value if value.is_floating_point() and value.ndim > 1 else None
    if isinstance(value, Mapping):
        value = tuple(value.values())
    if isinstance(value, (tuple, list)):
        return next((v for v in map(hidden_of, value) if v is not None), None)
    return None


def hidden_in(args: tuple[object, ...], kwargs: Mapping[str, object]) -> Tensor | None:
    """Return the hidden state that a module is called with."""
    return hidden_of((*args, *kwargs.values()))


@contextmanager
def hooked(
    hooks: Iterable[tuple[nn.Module, Hook | None, Hook | None]],
) -> Iterator[None]:
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
    """How a block returns its hidden state: alone, or among other outputs, which were tensors or not."""

    HIDDEN: ClassVar[str] = "hidden state"
    OTHER: ClassVar[str] = "another tensor"
    output: Any = HIDDEN

    @classmethod
    def of(cls, output: object, state: Tensor) -> "Form":
        """Return the form of what a module returned, in which `state` is its hidden state."""
        return cls(_form(output, state))

    @property
    def more(self) -> bool:
        """Whether it returns other tensors too."""
        return self.OTHER in str(self.output)

    def around(self, hidden: Any) -> Any:
        """Return a state as the module would, with None for everything else."""
        return _around(self.output, hidden)


def _form(value: object, state: Tensor) -> Any:
    if isinstance(value, Tensor):
        return Form.HIDDEN if value is state else Form.OTHER
    if isinstance(value, Mapping):
        return {name: _form(part, state) for name, part in value.items()}
    return (
        tuple(_form(part, state) for part in value)
        if isinstance(value, (tuple, list))
        else None
    )


def _around(form: Any, hidden: Any) -> Any:
    if isinstance(form, dict):
        return {name: _around(part, hidden) for name, part in form.items()}
    if isinstance(form, tuple):
        return tuple(_around(part, hidden) for part in form)
    return hidden if form == Form.HIDDEN else None


def with_state(output: Any, state: Tensor) -> Any:
    """Return a block's output with another hidden state in it; raises `LayerscopeError` for one of an unknown kind."""
    hidden = hidden_of(output)
    if output is hidden:
        return state
    if isinstance(output, dict):
        made = copy(output)
        made.update({name: state for name, item in output.items() if item is hidden})
        return made
    if isinstance(output, (tuple, list)):
        return type(output)(state if item is hidden else item for item in output)
    raise LayerscopeError(
        f"a block of this model gives a {type(output).__name__}: let it give tensors, or a tuple"
    )


def tensors_in(output: object) -> Iterator[Tensor]:
    """Yield every tensor among a module's arguments or results."""
    if isinstance(output, Tensor):
        yield output
    elif isinstance(output, (Mapping, tuple, list)):
        for value in output.values() if isinstance(output, Mapping) else output:
            yield from tensors_in(value)


def frame_mask(mask: Tensor | None, frames: int, module: nn.Module) -> Tensor | None:
    """Return a mask at the rate of the states: speech models read thousands of samples and give one state for several.

    Where a model counts its states, and counts right for the whole length, its count is taken; else
    the share is kept.
    """
    if mask is None or mask.shape[1] == frames:
        return mask
    real, whole = mask.sum(1), mask.shape[1]
    states = torch.ceil(real * (frames / whole))
    for count in filter(None, (getattr(module, name, None) for name in COUNTERS)):
        with suppress(*FAILURES):  # one that counts something else
            counted, most = (
                count(real),
                count(torch.tensor([whole], device=real.device)),
            )
            if (
                isinstance(counted, Tensor)
                and isinstance(most, Tensor)
                and int(most) == frames
            ):
                states = counted
                break
    states = states.long().clamp(1, frames)
    return (torch.arange(frames, device=mask.device) < states[:, None]).long()
