"""What every exit of a model gives its one head, with gradients, out of a single forward."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from layerscope.core import LayerscopeError
from layerscope.models import Inputs, LayeredModel, evaluating, logits_of, replaced
from layerscope.models.forward import forward, hooked, state_of, with_state
from layerscope.models.lens import bypassed
from layerscope.models.trace import Call as TracedCall, same, trace
from layerscope.training.loss import exit_weights

Call = Callable[[], Any]
"""Runs the model on a batch, without labels."""


class Exits:
    """The exits of one model, which give what the linear layer `head` makes logits of, or logits where it is None.

    The last block hands on the states of every exit, stacked along the batch, so that the model's
    own code after it reads them all at once. Where that code looks at the batch again, as a
    classifier on a decoder does for its last token, it runs once for each exit with the blocks
    bypassed.
    """

    def __init__(
        self, model: LayeredModel, inputs: Inputs, layers: Sequence[int] | None = None
    ) -> None:
        """Find the head by a probe on `inputs`, a small batch; `layers` are the exits, None is 1 … L."""
        self.model = model
        self.module = model.module
        self.layers = exit_layers(model, layers)
        with evaluating(self.module), torch.no_grad():
            logits = logits_of(forward(self.module, inputs))
            if logits is not None and logits.isnan().any():
                raise LayerscopeError(
                    f"{model.name} gives logits that are NaN before any training: its weights are corrupt, take "
                    "another model"
                )
            if logits is None or model.lens is None:
                raise LayerscopeError(
                    f"{model.name} has no head over its {model.stack.part}: give a model with one"
                )
            self.classes = model.lens.classes
            calls = trace(self.module, "", inputs)
            self.head_path = _linear(calls, logits)
            self._at_once = self._agrees(inputs, logits)

    @property
    def head(self) -> nn.Linear | None:
        """The linear layer that makes logits of what an exit gives."""
        if self.head_path is None:
            return None
        head = self.module.get_submodule(self.head_path)
        if isinstance(head, nn.Linear):
            return head
        return None

    def __call__(self, call: Call) -> list[Tensor]:
        """Return what each exit gives, `[B, …, D]` for `head`, or logits `[B, …, K]`, from one call of the model."""
        if self._at_once:
            with recorded(self.model, self.layers):
                reads = self.last(call)
            return list(reads.chunk(len(self.layers)))
        with self._headless(), recorded(self.model) as states:
            call()
        return [self._alone(call, states[layer - 1]) for layer in self.layers]

    def last(self, call: Call) -> Tensor:
        """Return what the model's last layer gives `head`, or its logits."""
        with self._headless() as reads:
            output = call()
        read = reads[-1] if reads else logits_of(output)
        assert read is not None
        return read

    def reading(self, call: Call, bare: Call) -> tuple[Any, Callable[[int], Tensor]]:
        """Return what the model gives in a call, and what the exit at an index gives in `bare`, without labels."""
        layers = self.layers
        if self.head is not None and self._at_once:
            with (
                self._headless(len(layers)) as reads,
                recorded(self.model, layers),
            ):
                output = call()
            return output, reads[-1].chunk(len(layers)).__getitem__
        with recorded(self.model) as states:
            output = call()
        return output, lambda index: self._alone(bare, states[layers[index] - 1])

    def _alone(self, call: Call, state: Tensor) -> Tensor:
        """Return what one exit gives the head, the blocks bypassed."""
        with bypassed(self.module, self.model.stack, state):
            return self.last(call)

    @contextmanager
    def _headless(self, stacked: int = 0) -> Iterator[list[Tensor]]:
        """Within, the head hands on what it reads, which is kept; of `stacked` exits it reads the last one."""
        reads: list[Tensor] = []
        head: Any = self.head
        if head is None:
            yield reads
            return
        plain = head.forward

        def keep(states: Tensor) -> Any:
            reads.append(states)
            if stacked:
                return plain(states.chunk(stacked)[-1])
            return states

        with replaced({head: keep}):
            yield reads

    def _agrees(self, inputs: Inputs, logits: Tensor) -> bool:
        """Return whether stacked exits are read as each is alone, the last one as the model itself reads it."""
        call = partial(forward, self.module, inputs)
        self._at_once = False
        alone = self(call)
        self._at_once = True
        # the code after the blocks fails in its own way on another batch size
        with suppress(Exception):
            stacked = self(call)
            if self.layers[-1] == self.model.depth:
                last = stacked[-1]
                if self.head is not None:
                    last = self.head(last)
                stacked.append(last)
                alone.append(logits.to(last.dtype))
            return all(map(_near, stacked, alone))
        return False


def _near(one: Tensor, two: Tensor) -> bool:
    """Return whether two tensors are of one shape and hold about the same numbers."""
    return one.shape == two.shape and torch.allclose(one, two, rtol=1e-4, atol=1e-4)


@contextmanager
def recorded(
    model: LayeredModel, stacked: Sequence[int] = ()
) -> Iterator[list[Tensor]]:
    """Within, keep the states of every block; the last one hands on the `stacked` layers, if any."""
    blocks = model.stack.block_modules(model.module)
    states: list[Tensor] = []

    def after(_: nn.Module, __: object, ___: object, output: Any) -> Any:
        states.append(state_of(output))
        if not stacked or len(states) < model.depth:
            return None
        return with_state(output, torch.cat([states[layer - 1] for layer in stacked]))

    with hooked((block, None, after) for block in blocks):
        yield states


def exit_layers(model: LayeredModel, layers: Sequence[int] | None) -> tuple[int, ...]:
    """Return the depths of exits, None is every layer from 1 on; raises `LayerscopeError` for others."""
    if layers is None:
        layers = range(1, model.depth + 1)
    exits = tuple(layers)
    exit_weights(exits, model.depth)  # which checks them
    return exits


def _linear(calls: list[TracedCall], logits: Tensor) -> str | None:
    """Return the path of the linear layer whose output is the logits, if there is one that no adapter adds to."""
    calls = [call for call in calls if same(call.output.to(logits.dtype), logits)]
    linears = [call for call in calls if isinstance(call.module, nn.Linear)]
    if not linears:
        return None
    linear = linears[-1]
    inside = set(linear.module.parameters())
    for call in calls:
        if linear.is_inside([call]) and same(call.input, linear.input):
            others = set(call.module.parameters()) - inside
            if any(parameter.requires_grad for parameter in others):
                return None
    return linear.path
