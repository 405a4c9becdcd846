"""Which dimensions of what a model hands its blocks count samples, and which positions: found by three probes."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from layerscope.core import LayerscopeError
from layerscope.models import Inputs, LayeredModel, evaluating
from layerscope.models.forward import Args, Hooks, Kwargs, forward, hooked, state_of

Path = tuple[str | int, ...]
"""What a tensor is handed to or comes from, then the keys that lead to it in there."""


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

    `front` names the modules that run before the first block and not after the last, each outside
    the others.
    """

    axes: Mapping[Path, Axes]
    trims: bool
    front: tuple[str, ...]

    def cut(self, path: Path, tensor: Tensor, left: Left) -> Tensor:
        """Return what is left of a tensor; of one that is cut already, or the same for all samples, the tensor."""
        axes = self.axes.get(path)
        if not tensor.ndim:
            return tensor
        if axes is None:
            raise LayerscopeError(
                f"{_words(path)} was not there in the probe of the model: leave that argument out"
            )
        for dim, each in axes.rows:
            size = tensor.shape[dim]
            # 1: the same for all samples of this batch
            if size not in (left.total * each, len(left) * each, 1):
                raise LayerscopeError(
                    f"{_words(path)} has {size} entries for {left.total} samples: none can leave"
                )
            if size == left.total * each and len(left) < left.total:
                offsets = torch.arange(each, device=left.rows.device)
                entries = (left.rows[:, None] * each + offsets).flatten()
                tensor = tensor.index_select(dim, entries)
        for dim in axes.positions:
            if tensor.shape[dim] == left.widest and left.width < left.widest:
                tensor = tensor.narrow(dim, 0, left.width)
        return tensor

    def cut_input(self, name: str, value: Tensor, left: Left) -> Tensor:
        """Return what is left of one of the model's inputs: a row a sample, and where it has them, its positions."""
        if len(value) == left.total and len(left) < left.total:
            value = value[left.rows]
        tokens = value.ndim == 2 or name == "inputs_embeds"
        if self.trims and tokens and value.shape[1] == left.widest:
            value = value[:, : left.width]
        return value

    def inputs(self, inputs: Inputs, left: Left) -> Inputs:
        """Return what is left of a batch."""
        named = {
            name: self.cut_input(name, value, left)
            for name, value in inputs.named.items()
        }
        row = inputs.positional
        if row is not None:
            row = self.cut_input("", row, left)
        return Inputs(named, row, named.get("attention_mask"))

    def stand_in(
        self, name: str, output: Any, left: Left, /, *_: object, **__: object
    ) -> Any:
        """Return zeros in the shapes of what a module of the front gave, for the rows that are left.

        What the module itself is called with is ignored.
        """

        def blank(path: Path, tensor: Tensor) -> Tensor:
            if path not in self.axes:
                return tensor
            tensor = self.cut(path, tensor, left)
            if not self.axes[path].rows:
                return tensor
            # zeros of its own, never the states: some models write into what comes before blocks
            return torch.zeros_like(tensor)

        return changed(output, blank, ("front", name))


def changed(tree: Any, change: Callable[[Path, Tensor], Any], path: Path = ()) -> Any:
    """Return the same tuples, lists and mappings with every tensor changed; other objects as they are."""
    if isinstance(tree, Tensor):
        return change(path, tree)
    if isinstance(tree, Mapping):
        named = {key: changed(tree[key], change, (*path, key)) for key in tree}
        return type(tree)(**named)
    if isinstance(tree, (tuple, list)):
        items = [changed(each, change, (*path, i)) for i, each in enumerate(tree)]
        if hasattr(tree, "_fields"):
            return type(tree)(*items)
        return type(tree)(items)
    return tree


def front_of(module: nn.Module, blocks: Sequence[str]) -> tuple[str, ...]:
    """Return the modules beside the way from the model down to its blocks."""
    above = {""}
    for path in blocks:
        while path:
            path = path.rpartition(".")[0]
            above.add(path)
    on_the_way = {*above, *blocks}
    names = [name for name, _ in module.named_modules() if name not in on_the_way]
    return tuple(name for name in names if name.rpartition(".")[0] in above)


def find_layout(
    model: LayeredModel, batch: Inputs, one_more: Inputs, shorter: Inputs
) -> Layout:
    """Return the layout of a model, from a batch of two samples, the same with a third, and two of fewer positions."""
    name = model.name
    axes = {}
    with evaluating(model.module):
        two = _Seen(model, batch)
        three = _Seen(model, one_more)
        short = _Seen(model, shorter)
    trims = model.padding and model.rank == 3 and two.width != short.width
    for path in two.shapes.keys() & three.shapes.keys():
        shape = two.shapes[path]
        shorter_shape = short.shapes.get(path, shape)
        rows = _rows(shape, three.shapes[path])
        if rows is None or len(shorter_shape) != len(shape):
            raise LayerscopeError(
                f"{_words(path)} of {name} does not hold one entry a sample: none can leave"
            )
        sizes = [*zip(shape, shorter_shape, strict=True)]
        changing = [dim for dim, (size, less) in enumerate(sizes) if size != less]
        widths = two.width, short.width
        positions = [dim for dim in changing if sizes[dim] == widths]
        trims = trims and path in short.shapes and positions == changing
        axes[path] = Axes(rows, tuple(positions))
    for layer in range(model.depth):
        state = axes.get(("block", layer, "state"))
        if state is None or state.rows != ((0, 1),):
            raise LayerscopeError(
                f"the states of {name} do not hold one entry a sample: none can leave a batch"
            )
    return Layout(axes, trims, tuple(two.front))


def _rows(
    two: Sequence[int], three: Sequence[int]
) -> tuple[tuple[int, int], ...] | None:
    """Return which dimensions of a tensor count samples, with the entries that a sample has there.

    None where a dimension changes with the samples otherwise.
    """
    if len(two) != len(three):
        return None
    rows = tuple((dim, n // 2) for dim, n in enumerate(two) if n != three[dim])
    for dim, each in rows:
        if (two[dim], three[dim]) != (2 * each, 3 * each):
            return None
    return rows


def width_of(state: Tensor) -> int:
    """Return the number of positions of states, 1 where they have none."""
    if state.ndim == 3:
        return state.shape[1]
    return 1


class _Seen:
    """The shapes of one probe, the number of positions of its states, and what ran before the blocks alone."""

    def __init__(self, model: LayeredModel, inputs: Inputs) -> None:
        self.shapes: dict[Path, torch.Size] = {}
        self.front: dict[str, None] = {}
        self.width = 0
        self.started = 0
        self.ended = 0
        self.depth = model.depth
        stack = model.stack
        module = model.module
        hooks: list[Hooks] = [
            (block, self._start, self._end) for block in stack.block_modules(module)
        ]
        for name in front_of(module, stack.blocks):
            beside = partial(self._beside, name)
            hooks.append((module.get_submodule(name), None, beside))
        with hooked(hooks):
            forward(module, inputs)

    def _add(self, tree: Any, *path: str | int) -> None:
        """Keep the shapes of all tensors in there."""

        def keep(path: Path, tensor: Tensor) -> None:
            self.shapes[path] = tensor.shape

        changed(tree, keep, path)

    def _start(self, _: nn.Module, args: Args, kwargs: Kwargs) -> None:
        """See what a block is handed."""
        self._add((args, kwargs), "block", self.started)
        self.started += 1

    def _end(self, _: nn.Module, __: Args, ___: Kwargs, output: Any) -> None:
        """See what a block gives."""
        state = state_of(output)
        self.width = width_of(state)
        self._add(output, "output", self.ended)
        self._add({"state": state}, "block", self.ended)
        self.ended += 1

    def _beside(
        self, name: str, _: nn.Module, __: Args, ___: Kwargs, output: Any
    ) -> None:
        """See what a module beside the blocks gives, and when it runs."""
        if not self.started:
            self.front[name] = None
            self._add(output, "front", name)
        elif self.ended == self.depth:
            self.front.pop(name, None)


def _words(path: Path) -> str:
    """Return where a tensor is, in words."""
    return " ".join(map(str, path))
