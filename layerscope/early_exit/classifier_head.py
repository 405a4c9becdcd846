"""The head of a classifier on states of any layer, proved on a batch whose rows leave at every turn."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import product
from typing import Any

import torch
from torch import Tensor, nn

from layerscope.core.errors import LayerscopeError
from layerscope.early_exit.batch_axes import Layout, Left, find_layout, front_of
from layerscope.early_exit.batch_compaction import run
from layerscope.models import LayeredModel
from layerscope.models.capture import evaluating
from layerscope.models.forward import FAILURES, Inputs, accepts, forward
from layerscope.models.inspection import made_up_samples
from layerscope.models.lens import Lens, logits_of, replaced
from layerscope.models.probe_forward import beginning, probe_sample
from layerscope.models.stack import Stack
from layerscope.models.trace import same, trace
from layerscope.truncation.expected import states_at


@dataclass(frozen=True)
class Tail:
    """What follows the last block, on the states of rows that are left.

    Where that is one module after another on one tensor, or on its first token alone, these `steps`
    are called: the path of each, and whether it reads the first token. Else it is the model's own
    code, the blocks bypassed; with `skips` the modules before the first block do not run for it (a
    convolution over sound costs as much as blocks). Layers with a head of their own, in `heads`
    under their number, are read by that instead of the one at `head`.
    """

    lens: Lens
    layout: Layout
    skips: bool
    steps: tuple[tuple[str, bool], ...] = ()
    heads: nn.ModuleDict = field(default_factory=nn.ModuleDict)
    head: str = ""

    def __call__(
        self, states: Tensor, inputs: Inputs, left: Left, front: Mapping[str, Any], layer: int
    ) -> Tensor:
        """Return the float32 logits [b, K] of states [b, T, D] of a layer, the rows `left` of the batch `inputs`."""
        module, instead = self.lens.module, {}
        if str(layer) in self.heads:
            instead[module.get_submodule(self.head)] = self.heads[str(layer)].forward
        for name, shapes in front.items() if self.skips else ():
            instead[module.get_submodule(name)] = partial(self._stand_in, name, shapes, left)
        with replaced(instead):
            if not self.steps:
                return self.lens.sample_logits(states, self.layout.inputs(inputs, left))
            for path, first in self.steps:
                states = module.get_submodule(path)(states[:, 0] if first else states)
            return states.float()

    def _stand_in(self, name: str, shapes: Any, left: Left, *_: Any, **__: Any) -> Any:
        return self.layout.stand_in(name, shapes, left)


@torch.inference_mode()
def find_tail(model: LayeredModel) -> Tail:
    """Return what reads the rows of a batch at every exit; raises `LayerscopeError` where rows cannot leave batches.

    Of four samples each leaves at another layer, the longest first; each must have the logits it
    has alone. Where that fails with the shortcuts (sequences trimmed, steps called one by one, the
    front skipped), it is tried without.
    """
    lens, name, module, stack = _head(model), model.loaded.name, model.module, model.stack

    def batch(samples: Sequence[Any]) -> Inputs:
        return model.encoder.batch(samples).to(model.device)

    long = probe_sample(model.encoder, made_up_samples(model.loaded)[1])
    short, shorter = beginning(long, 0.5), beginning(long, 0.25)
    samples = [long, short, shorter]
    probes = (
        _with_positions(module, batch(some)) for some in ([long, short], samples, [short, shorter])
    )
    try:
        layout = find_layout(model, *probes)
    except LayerscopeError:
        raise
    except FAILURES as error:
        raise LayerscopeError(
            f"{name} does not run on samples of several lengths ({_line(error)})"
        ) from error
    samples = [*samples, short] if model.padding else [long] * 4
    layers = [1, max(1, stack.depth - 1), stack.depth, max(1, stack.depth // 2)]
    inputs, why = batch(samples), "their logits change"
    exits = sorted(set(layers) - {stack.depth})

    def decide(layer: int, _: Tensor, rows: Tensor) -> Tensor:
        return torch.tensor(layers)[rows.cpu()] == layer

    with evaluating(module):
        wanted = []
        for sample, layer in zip(samples, layers, strict=True):
            single = batch([sample])
            state = states_at(module, stack, single, layer)["raw"]
            wanted.append(lens.sample_logits(state, single)[0].to(state.dtype))
        steps = find_steps(module, stack, inputs)
        ways = [(False, steps)] * bool(steps) + [(True, ()), (False, ())]  # the quickest first
        for trims, (skips, some) in product([True, False] if layout.trims else [False], ways):
            tail = Tail(lens, replace(layout, trims=trims), skips, some)
            try:
                found = run(
                    model, tail, partial(forward, module, inputs), inputs, exits, decide
                ).logits.float()
            except LayerscopeError:
                raise
            except Exception as error:  # code that looks at the batch again fails in its own way
                why = f"{type(error).__name__}: {_line(error)}"
                continue
            close = (
                5e-2 if wanted[0].dtype.itemsize < 4 else 1e-4
            )  # as far as the precision of the weights can say
            pairs = zip(found, wanted, strict=True)
            if all(
                (own - alone).norm() <= close * alone.float().norm().clamp_min(1e-3)
                for own, alone in pairs
            ):
                return tail
    raise LayerscopeError(f"rows cannot leave the batches of {name} ({why})")


def _with_positions(module: nn.Module, inputs: Inputs) -> Inputs:
    """Return a batch with its positions, as a caller may give them: what follows is then each row's own."""
    ids = inputs.named.get("input_ids")
    if ids is None or not accepts(module, "position_ids"):
        return inputs
    positions = torch.arange(ids.shape[1], device=ids.device).expand(ids.shape)
    return replace(inputs, named={**inputs.named, "position_ids": positions})


def find_steps(module: nn.Module, stack: Stack, inputs: Inputs) -> tuple[tuple[str, bool], ...]:
    """Return the modules, one reading what the other gives, from the last block's states to the logits; else none."""
    beside = set(front_of(module, stack.blocks))
    calls = trace(module, "", inputs)
    last = max(i for i, call in enumerate(calls) if call.path == stack.blocks[-1])
    value, steps = calls[last].returned, []
    for call in calls[last + 1 :]:
        if call.path not in beside:
            continue
        first = not same(call.given, value)
        if first and not (value.ndim == 3 and same(call.given, value[:, 0])):
            return ()
        steps.append((call.path, first))
        value = call.returned
    logits = logits_of(forward(module, inputs))
    return tuple(steps) if logits is not None and same(value, logits) else ()


def _line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0][:150]


def _head(model: LayeredModel) -> Lens:
    """Return the lens of a classifier that runs in batches; raises `LayerscopeError` for any other model."""
    name, lens = model.loaded.name, model.lens
    problem = getattr(getattr(model.module, "config", None), "problem_type", None)
    broken = next((note for note in model.notes if "NaN" in note), None)
    if lens is None and broken is not None:
        raise LayerscopeError(
            f"{name} cannot leave early: {broken.removesuffix(': no lens')}; check its weights"
        )
    if lens is None:
        raise LayerscopeError(
            f"{name} has no head of classes over its {model.stack.part}: give a classifier"
        )
    if lens.kind == "tokens":
        raise LayerscopeError(
            f"{name} predicts tokens: give a model with one row of classes for each sample"
        )
    if problem in ("regression", "multi_label_classification"):
        raise LayerscopeError(
            f"{name} is made for {problem}: exits need classes of which one is right"
        )
    if not model.batching:
        raise LayerscopeError(
            f"other samples in a batch change the states of {name}: no row can leave its batches"
        )
    if lens.alone:
        raise LayerscopeError(
            f"{name} takes one sample at a time: set config.pad_token_id for batches"
        )
    return lens
