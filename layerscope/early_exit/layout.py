"""Which dimensions of what a model hands its blocks count samples, and which positions: found by three probes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, nn

from layerscope.core.errors import LayerscopeError
from layerscope.models import LayeredModel
from layerscope.models.capture import evaluating
from layerscope.models.forward import Inputs, forward, hidden_of

Place = tuple[str | int, ...]
"""Where a tensor stands: what it is handed to or comes from, then its place in there."""


@dataclass(frozen=True)
class Axes:
    """The dimensions of one tensor: (dimension, entries a sample has there) of samples, and those of positions."""

    rows: tuple[tuple[int, int], ...]
    positions: tuple[int, ...]


@dataclass
class Left:
    """The samples of a batch that are left: `rows` of `total`, and their first `width` of `widest` positions."""

    total: int
    widest: int
    rows: Tensor
    width: int

    def __len__(self) -> int:
        return len(self.rows)


@dataclass(frozen=True)
class Layout:
    """The axes of every tensor that was seen; `trims`: whether positions can be cut from the end.

    `front` names the modules that run before the first block and not after the last, each outside the others.
    """

    axes: Mapping[Place, Axes]
    trims: bool
    front: tuple[str, ...]

    def cut(self, path: Place, tensor: Tensor, left: Left) -> Tensor:
        """Return what is left of a tensor; of one that is cut already, or the same for all samples, the tensor."""
        axes = self.axes.get(path)
        if not tensor.ndim:
            return tensor
        if axes is None:
            raise LayerscopeError(
                f"{told(path)} is a tensor {tuple(tensor.shape)} that the probe did not see: leave that argument out"
            )
        for dim, each in axes.rows:
            size = tensor.shape[dim]
            if size == left.total * each and len(left) < left.total:
                tensor = tensor.index_select(dim, _spread(left.rows, each))
            elif size not in (left.total * each, len(left) * each, 1):  # 1: the same for all samples of this batch
                raise LayerscopeError(f"{told(path)} has {size} entries for {left.total} samples: none can leave")
        for dim in axes.positions:
            if tensor.shape[dim] == left.widest and left.width < left.widest:
                tensor = tensor.narrow(dim, 0, left.width)
        return tensor

    def cut_input(self, name: str, value: Tensor, left: Left) -> Tensor:
        """Return what is left of one of the model's inputs: a row a sample, and where it has one a token, so many."""
        if len(value) == left.total and len(left) < left.total:
            value = value[left.rows]
        tokens = self.trims and (value.ndim == 2 or name == "inputs_embeds")
        return value[:, : left.width] if tokens and value.shape[1] == left.widest else value

    def inputs(self, inputs: Inputs, left: Left) -> Inputs:
        """Return what is left of a batch."""
        named = {name: self.cut_input(name, value, left) for name, value in inputs.named.items()}
        return replace(inputs, named=named, mask=named.get("attention_mask"))

    def shape(self, path: Place, shape: torch.Size, left: Left) -> tuple[int, ...] | None:
        """Return what is left of a shape, None where it is the same for all samples."""
        axes = self.axes.get(path)
        if axes is None or not axes.rows:
            return None
        rows = dict(axes.rows)
        cut = {dim: len(left) * each for dim, each in rows.items() if shape[dim] == left.total * each}
        cut |= {dim: left.width for dim in axes.positions if shape[dim] == left.widest}
        return tuple(cut.get(dim, size) for dim, size in enumerate(shape))


def told(path: Place) -> str:
    """Return where a tensor stands, in words."""
    return " ".join(map(str, path))


def tensors(tree: Any, path: Place = ()) -> Iterator[tuple[Place, Tensor]]:
    """Yield every tensor in tuples, lists and mappings, with its place."""
    if isinstance(tree, Tensor):
        yield path, tree
    elif isinstance(tree, Mapping):
        for key, value in tree.items():
            yield from tensors(value, (*path, key))
    elif isinstance(tree, (tuple, list)):
        for i, value in enumerate(tree):
            yield from tensors(value, (*path, i))


def changed(tree: Any, change: Callable[[Place, Tensor], Any], path: Place = ()) -> Any:
    """Return the same tuples, lists and mappings with every tensor changed; other objects as they are."""
    if isinstance(tree, Tensor):
        return change(path, tree)
    if isinstance(tree, Mapping):
        return type(tree)(**{key: changed(value, change, (*path, key)) for key, value in tree.items()})
    if isinstance(tree, (tuple, list)):
        items = [changed(value, change, (*path, i)) for i, value in enumerate(tree)]
        return type(tree)(*items) if hasattr(tree, "_fields") else type(tree)(items)
    return tree


def front_of(module: nn.Module, blocks: Sequence[str]) -> tuple[str, ...]:
    """Return the modules beside the way from the model down to its blocks."""
    above = {path[:i] for path in blocks for i, letter in enumerate(path) if letter == "."} | {""}
    return tuple(
        name
        for name, _ in module.named_modules()
        if name and name not in above and name not in blocks and name.rpartition(".")[0] in above
    )


@dataclass
class Seen:
    """The shapes of one probe, and the number of positions of its states."""

    shapes: dict[Place, torch.Size] = field(default_factory=dict)
    before: list[str] = field(default_factory=list)
    after: set[str] = field(default_factory=set)
    width: int = 0

    def add(self, tree: Any, *path: str | int) -> None:
        """Keep the shape of every tensor."""
        self.shapes |= {found: tensor.shape for found, tensor in tensors(tree, path)}


def find_layout(model: LayeredModel, batch: Inputs, one_more: Inputs, shorter: Inputs) -> Layout:
    """Return the layout of a model.

    Args:
        model: with its blocks found; run in evaluation mode.
        batch: two samples, one of them padded where samples differ in length.
        one_more: the same and a third, as wide.
        shorter: two samples, as padded, of fewer positions where samples differ in length.

    Raises:
        LayerscopeError: where a block's states do not hold one entry a sample.

    """
    with evaluating(model.module):
        two, three, short = (_seen(model, inputs) for inputs in (batch, one_more, shorter))
    axes, trims = {}, model.padding and model.rank == 3 and two.width != short.width
    for path in two.shapes.keys() & three.shapes.keys():
        shapes = two.shapes[path], three.shapes[path], short.shapes.get(path, two.shapes[path])
        trims = trims and path in short.shapes
        if len({len(shape) for shape in shapes}) > 1:
            raise LayerscopeError(f"{told(path)} has another rank in each batch: no sample can leave it")
        positions = [d for d, (a, _, c) in enumerate(zip(*shapes, strict=True)) if a != c]
        measured = [d for d in positions if (shapes[0][d], shapes[2][d]) == (two.width, short.width)]
        rows = [(d, a // 2) for d, (a, b, _) in enumerate(zip(*shapes, strict=True)) if a != b]
        if any((shapes[0][d], shapes[1][d]) != (2 * each, 3 * each) for d, each in rows):
            raise LayerscopeError(
                f"{told(path)} of {model.loaded.name} does not hold one entry a sample: none can leave"
            )
        trims = trims and measured == positions
        axes[path] = Axes(tuple(rows), tuple(measured))
    states = [axes.get(("block", i, "state")) for i in range(model.stack.depth)]
    if any(found is None or found.rows != ((0, 1),) for found in states):
        raise LayerscopeError(
            f"the states of {model.loaded.name} do not hold one entry a sample: none can leave a batch"
        )
    return Layout(axes, trims, tuple(name for name in two.before if name not in two.after))


@contextmanager
def hooked(module: nn.Module, hooks: Sequence[tuple[str, str, Any]]) -> Iterator[None]:
    """Within, hooks ("before" or "after", a module's path, the function with keyword arguments) stand on modules."""
    handles = []
    try:
        for when, path, hook in hooks:
            child = module.get_submodule(path)
            add = child.register_forward_pre_hook if when == "before" else child.register_forward_hook
            handles.append(add(hook, with_kwargs=True))
        yield
    finally:
        for handle in handles:
            handle.remove()


def _seen(model: LayeredModel, inputs: Inputs) -> Seen:
    seen, started, ended = Seen(), 0, 0

    def before(_: nn.Module, args: Any, kwargs: Any) -> None:
        nonlocal started
        seen.add((args, kwargs), "block", started)
        started += 1

    def after(_: nn.Module, __: Any, ___: Any, output: Any) -> None:
        nonlocal ended
        state = hidden_of(output)
        assert state is not None
        seen.width = state.shape[1] if state.ndim == 3 else 1
        seen.add(output, "output", ended)
        seen.add({"state": state}, "block", ended)
        ended += 1

    def front(name: str) -> Any:
        def keep(_: nn.Module, __: Any, ___: Any, output: Any) -> None:
            if not started:
                seen.before += [name] if name not in seen.before else []
                seen.add(output, "front", name)
            elif ended == model.stack.depth:
                seen.after.add(name)

        return keep

    blocks = list(dict.fromkeys(model.stack.blocks))
    hooks = [(when, path, hook) for path in blocks for when, hook in (("before", before), ("after", after))]
    hooks += [("after", name, front(name)) for name in front_of(model.module, blocks)]
    with hooked(model.module, hooks):
        forward(model.module, inputs)
    return seen


def _spread(rows: Tensor, each: int) -> Tensor:
    """Return the places of samples where each has several entries."""
    return rows if each == 1 else (rows[:, None] * each + torch.arange(each, device=rows.device)).flatten()
