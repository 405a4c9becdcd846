"""Run one forward and hand over the state of every layer as it appears."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from torch import Tensor, nn

from layerscope.models.forward import Inputs, forward, hidden_of
from layerscope.models.stack import Stack

Visit = Callable[[int, str, Tensor], None]
"""Called as visit(layer, site, tokens[B, T, D]), layers 0..L in order, site "raw" then, with a norm, "normed"."""


class _Enough(Exception):
    """Ends a forward after the layer that was asked for: the head never runs."""


def capture(module: nn.Module, stack: Stack, inputs: Inputs, visit: Visit, until: int | None = None) -> None:
    """Run `module` once and visit every layer's state, raw and (where the model has a final norm) normed.

    Stops after layer `until` (default: the last), so that nothing after it is computed. Hooks are removed whatever
    happens, and the model is left as it was.
    """
    last = stack.depth if until is None else until
    norm = module.get_submodule(stack.norm) if stack.norm else None
    # a model may fill a text up to whole windows of its own
    length = inputs.named["input_ids"].shape[1] if "input_ids" in inputs.named else None
    calls = 0

    def show(layer: int, state: Tensor) -> None:
        hidden = state[:, :length] if state.ndim == 3 else state
        visit(layer, "raw", hidden)
        if norm is not None:
            visit(layer, "normed", norm(hidden))

    def before(_: nn.Module, args: tuple[object, ...], kwargs: dict[str, object]) -> None:
        if calls == 0:
            show(0, _state((*args, *kwargs.values())))
            if last == 0:
                raise _Enough

    def after(_: nn.Module, __: object, output: object) -> None:
        nonlocal calls
        calls += 1
        show(calls, _state(output))
        if calls == last:
            raise _Enough

    handles = [module.get_submodule(stack.blocks[0]).register_forward_pre_hook(before, with_kwargs=True)]
    handles += [module.get_submodule(path).register_forward_hook(after) for path in dict.fromkeys(stack.blocks)]
    try:
        forward(module.get_submodule(stack.entry), inputs)
    except _Enough:
        return
    finally:
        for handle in handles:
            handle.remove()
    raise RuntimeError(f"the model ran {calls} blocks where its probe ran {stack.depth}")


@contextmanager
def evaluating(module: nn.Module) -> Iterator[None]:
    """Put every module into evaluation mode (no dropout, no random masking) and afterwards back as it was."""
    training = [child for child in module.modules() if child.training]
    config = getattr(module, "config", None)
    masking = getattr(config, "mask_ratio", None)  # ViTMAE masks patches at random even in evaluation
    module.eval()
    if masking:
        config.mask_ratio = 0.0  # type: ignore[union-attr]
    try:
        yield
    finally:
        if masking:
            config.mask_ratio = masking  # type: ignore[union-attr]
        for child in training:
            child.training = True


def _state(value: object) -> Tensor:
    hidden = hidden_of(value)
    if hidden is None:
        raise RuntimeError("a block gave no hidden state")
    return hidden
