"""One layer's tokens of a batch of samples, as metrics read them while the model runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar, TypeVar

import torch
from torch import Tensor

from layerscope.metrics.arrays import Array, as_tensor, real_first, real_mask
from layerscope.metrics.metric import How, Needs

T = TypeVar("T")
SINK = 10.0
"""A token is a sink where its norm is more than this many times its sample's median."""


class Tokens:
    """States `[..., T, D]` of tokens, a `mask` of the real ones (None: all), and the factors that metrics share."""

    def __init__(self, states: Tensor, mask: Tensor | None = None, without_sinks: bool = False) -> None:
        self.states, self.mask, self.without_sinks = states, mask, without_sinks
        self._found: dict[Callable[[Tokens], Any], Any] = {}

    @classmethod
    def of(cls, tokens: Array | Tokens, mask: Array | None) -> Tokens:
        """Return the tokens of arrays, half precision in float32, or tokens as they are."""
        if isinstance(tokens, Tokens):
            return tokens
        return cls(as_tensor(tokens, "tokens", 2), None if mask is None else torch.as_tensor(mask))

    @cached_property
    def real(self) -> Tensor:
        """Which tokens are real `[..., T]`."""
        return real_mask(self.states, self.mask)

    @cached_property
    def norms(self) -> Tensor:
        """The Euclidean norm of every token `[..., T]`, at least in float32."""
        exact = torch.promote_types(self.states.dtype, torch.float32)
        found: Tensor = torch.linalg.vector_norm(self.states, dim=-1, dtype=exact)
        return found

    @cached_property
    def median(self) -> Tensor:
        """The median norm of each sample `[...]`, the mean of the middle two of an even number, NaN without tokens."""
        count = self.real.sum(-1, keepdim=True)
        ordered = self.norms.masked_fill(~self.real, torch.inf).sort(-1).values
        middle = [ordered.gather(-1, at.clamp(min=0)) for at in ((count - 1) // 2, count // 2)]
        found: Tensor = ((middle[0] + middle[1]) / 2).masked_fill(count == 0, torch.nan)
        return found.squeeze(-1)

    @cached_property
    def sinks(self) -> Tensor:
        """Which tokens are sinks `[..., T]`."""
        return self.real & (self.norms > SINK * self.median[..., None])

    @cached_property
    def used(self) -> Tensor | None:
        """Which tokens entropies and means take `[..., T]`, without sinks where these are left out; None: all."""
        return (self.real & ~self.sinks).long() if self.without_sinks else self.mask

    @cached_property
    def lengths(self) -> Tensor:
        """The number of used tokens `[...]`."""
        every = torch.full(self.states.shape[:-2], self.states.shape[-2], device=self.states.device)
        return every if self.used is None else self.used.sum(-1)

    def once(self, factor: Callable[[Tokens], T]) -> T:
        """Return what a metric's own factor gives, computed when it is first needed."""
        if factor not in self._found:
            self._found[factor] = factor(self)
        found: T = self._found[factor]
        return found

    def first(self, prefix: int) -> Tokens:
        """Return the first `prefix` used tokens of samples that have as many; the other samples are empty."""
        found = Tokens(self._fronted[..., :prefix, :], None, self.without_sinks)
        found.used, found.lengths = None, torch.where(self.lengths >= prefix, prefix, 0)
        return found

    @cached_property
    def _fronted(self) -> Tensor:
        return real_first(self.states, self.used)[0]


def by_layer(layers: Sequence[Tensor], orders: Sequence[float], chosen: Any) -> dict[str, Tensor]:
    """Return the values `[L, B]` of a metric without variants."""
    return {"": torch.stack(list(layers)).float()}


@dataclass(frozen=True)
class FromTokens(How):
    """A metric of each sample's tokens, computed layer by layer inside the pass and finished once a batch."""

    needs: ClassVar[Needs] = "tokens"
    compute: Callable[[Tokens], Any]
    """Returns the value of each sample, or what `finish` makes it of."""
    finish: Callable[[Sequence[Any], Sequence[float], Any], dict[str, Tensor]] = field(default=by_layer)
    """Takes what all layers gave, the orders of the Rényi entropy and an index of the samples whose eigenvalues are
    computed; returns values `[L, B]` by variant."""
    prefixes: bool = False
    """Whether it is also taken of each sample's first tokens, where a run asks for it."""
    rare: bool = False
    """Left out of the table of a run in which it is zero everywhere."""
