"""The loop that continues prompts, and the two ways to choose a token."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import torch
from torch import Tensor

from layerscope.core.errors import LayerscopeError
from layerscope.generation.decoder import Decoder

Choose = Callable[[Tensor, Tensor], Tensor]
"""Gives tokens [B] for log-probabilities [B, V], where each row has this many new tokens already, [B]."""
Continued = tuple[tuple[int, ...], tuple[float, ...]]


def greedy(log_p: Tensor, _: Tensor) -> Tensor:
    """Choose the most probable token."""
    return log_p.argmax(-1)


def sampled(prompts: Sequence[int], top_p: float, temperature: float, seed: int, new: int) -> Choose:
    """Return what draws from the nucleus, at numbers that depend on the seed and on each prompt's index alone."""
    uniform = torch.from_numpy(np.stack([np.random.default_rng([seed, i]).random(new) for i in prompts]))

    def choose(log_p: Tensor, done: Tensor) -> Tensor:
        mass = nucleus(log_p, top_p, temperature).cumsum(-1)
        level = uniform.to(mass.device).gather(1, done.clamp(0, new - 1)[:, None]) * mass[:, -1:]
        found = torch.searchsorted(mass, level, right=True)[:, 0]
        return found.clamp(max=mass.shape[1] - 1)  # beyond the last token only where a text that has ended gives NaN

    return choose


def nucleus(log_p: Tensor, top_p: float, temperature: float = 1.0) -> Tensor:
    """Return the probabilities [B, V] that are drawn from, float64: those outside the nucleus 0, the rest summing to 1.

    The nucleus is the fewest tokens, most probable first, whose probabilities at this temperature reach `top_p`.

    Source: Holtzman et al. 2020, The curious case of neural text degeneration.
    """
    ordered, order = (log_p.double() / temperature).softmax(-1).sort(dim=-1, descending=True, stable=True)
    kept = ordered.masked_fill(ordered.cumsum(-1) - ordered >= top_p, 0)
    return torch.zeros_like(kept).scatter(-1, order, kept / kept.sum(-1, keepdim=True))


@torch.inference_mode()
def continued(decoder: Decoder, prompts: Mapping[int, list[int]], choose: Choose, new: int) -> dict[int, Continued]:
    """Return the new tokens of each prompt (shortest first) with their log-probabilities, by its index.

    Raises `LayerscopeError` for logits that are NaN in a text that has not ended.
    """
    sizes = [len(prompt) for prompt in prompts.values()]
    total, device = sizes[-1] + new, decoder.device
    ids = torch.tensor([[*prompt, *[0] * (total - len(prompt))] for prompt in prompts.values()], device=device)
    lengths, ends = torch.tensor(sizes, device=device), torch.tensor(decoder.ends, dtype=torch.long, device=device)
    log_probs, ended = torch.zeros(ids.shape, device=device), torch.zeros_like(lengths, dtype=torch.bool)
    logits = decoder.prefill(ids[:, : sizes[0]])
    for at in range(sizes[0], total):
        log_p, done = logits.log_softmax(-1), at - lengths
        broken = log_p[:, 0].isnan() & ~ended  # one NaN among the logits makes NaN of all
        if bool(broken.any()):
            raise LayerscopeError(
                f"layer {decoder.layer} gives logits that are NaN after {at} tokens of prompt "
                f"{[*prompts][int(broken.int().argmax())]}: check its weights, or try another dtype"
            )
        token = choose(log_p, done)
        if at < sizes[-1]:  # longer prompts are still being read
            token = torch.where(done < 0, ids[:, at], token)
        ids[:, at], log_probs[:, at] = token, log_p.gather(1, token[:, None])[:, 0]
        ended |= (done >= 0) & (torch.isin(token, ends) | (done >= new - 1))
        if bool(ended.all()):
            break
        logits = decoder.step(token)
    rows = zip(prompts, sizes, ids.tolist(), log_probs.tolist(), strict=True)
    return {i: _cut(row[size : size + new], values[size:], decoder.ends) for i, size, row, values in rows}


def _cut(ids: list[int], log_probs: list[float], ends: Sequence[int]) -> Continued:
    """Leave out what a row was given after its end, while the others continued."""
    stop = next((i for i, token in enumerate(ids, start=1) if token in ends), len(ids))
    return tuple(ids[:stop]), tuple(log_probs[:stop])
