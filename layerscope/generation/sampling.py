"""Prompts continued by transformers' own `generate`: by the likeliest tokens, draws from the nucleus, or drafts."""

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from layerscope.core.progress import Advance
from layerscope.generation.acceptance import refuse_nan
from layerscope.generation.language_model import ends_of, until_end
from layerscope.generation.options import Sampling
from layerscope.models import dtype_of

Processor = Callable[[Tensor, Tensor], Tensor]
"""Gives scores [B, V] for the ids so far [B, T] and scores [B, V]."""
STEPS = 4
EXACT = 1e-3
"""How far, relative to their norm, what is read by the cache may be from what is read of the whole text."""
HALF = 1e-1
"""The same for weights in half precision."""


def prompt_batches(
    prompts: Sequence[Sequence[int]], most: int
) -> Iterator[tuple[list[int], Tensor]]:
    """Yield the indices and ids of prompts of one length, so that none is padded, at most `most` at a time."""
    by_length: dict[int, list[int]] = defaultdict(list)
    for index, prompt in enumerate(prompts):
        by_length[len(prompt)].append(index)
    for indices in by_length.values():
        for start in range(0, len(indices), most):
            batch = indices[start : start + most]
            yield batch, torch.tensor([prompts[index] for index in batch])


@contextmanager
def plain_settings(module: Any) -> Iterator[None]:
    """Within, `generate` of a model follows what it is given alone: no penalties of the model's own config."""
    from transformers import GenerationConfig

    before = module.generation_config
    module.generation_config = GenerationConfig(pad_token_id=0)
    try:
        yield
    finally:
        module.generation_config = before


def continued(
    module: Any,
    prompts: Sequence[list[int]],
    sampling: Sampling,
    most: int,
    advance: Advance,
    layer: int | None = None,
    **settings: Any,
) -> list[tuple[int, ...]]:
    """Return the tokens that continue each prompt, in batches of at most `most`.

    A model that is cut at a `layer` refuses NaN and draws by the prompts; `settings` are those of
    transformers' `generate`.
    """
    ends = ends_of(module)
    device = next(module.parameters()).device
    continuations: list[tuple[int, ...]] = [()] * len(prompts)
    with plain_settings(module):
        for batch, ids in prompt_batches(prompts, most):
            length = ids.shape[1]
            processors: list[Processor] = []
            if layer is not None:
                processors.append(checking(layer))
                if sampling.top_p is not None:
                    processors.append(drawing(sampling, batch, length))
            generated = module.generate(
                ids.to(device),
                attention_mask=torch.ones_like(ids, device=device),
                max_new_tokens=sampling.max_new_tokens,
                eos_token_id=list(ends) or None,
                logits_processor=processors,
                **settings,
            )
            new = generated[:, length:].tolist()
            for index, row in zip(batch, new, strict=True):
                continuations[index] = tuple(until_end(row, ends))
            advance(len(batch))
    return continuations


def checking(layer: int) -> Processor:
    """Return a processor that raises for scores that are NaN."""

    def check(_: Tensor, scores: Tensor) -> Tensor:
        # one NaN among the logits makes NaN of all
        refuse_nan(scores.log_softmax(-1)[:, 0], f"layer {layer}")
        return scores

    return check


def drawing(sampling: Sampling, prompts: list[int], length: int) -> Processor:
    """Return a processor that leaves the token drawn for each text, by the seed and the prompt's index alone."""
    draws = []
    for index in prompts:
        generator = np.random.default_rng([sampling.seed, index])
        draws.append(generator.random(sampling.max_new_tokens))
    uniform = torch.from_numpy(np.stack(draws))

    def draw(ids: Tensor, scores: Tensor) -> Tensor:
        log_p = scores.log_softmax(-1)
        cdf = nucleus(log_p, sampling.top_p or 1.0, sampling.temperature).cumsum(-1)
        drawn = uniform[:, ids.shape[1] - length, None].to(cdf.device)
        token = torch.searchsorted(cdf, drawn * cdf[:, -1:], right=True)
        # rounding may leave what was drawn at the very end
        token = token.clamp(max=cdf.shape[1] - 1)
        return torch.full_like(scores, -torch.inf).scatter(1, token, 0.0)

    return draw


def nucleus(log_p: Tensor, top_p: float, temperature: float) -> Tensor:
    """Return the probabilities [B, V] that are drawn from, float64: those outside the nucleus 0, the rest summing to 1.

    The nucleus is the fewest tokens, most probable first, whose probabilities at this temperature
    reach `top_p`.

    Source: Holtzman et al. 2020, The curious case of neural text degeneration.
    """
    p = (log_p.double() / temperature).softmax(-1)
    ordered, order = p.sort(dim=-1, descending=True, stable=True)
    before = ordered.cumsum(-1) - ordered
    kept = ordered.masked_fill(before >= top_p, 0)
    renormalised = kept / kept.sum(-1, keepdim=True)
    return torch.zeros_like(kept).scatter(-1, order, renormalised)


def tolerance_of(module: nn.Module) -> float:
    """Return how far what a model reads by its cache may be from what it reads of the whole text."""
    if dtype_of(module) in ("float32", "float64"):
        return EXACT
    return HALF


@torch.inference_mode()
def follows_its_cache(module: Any, ids: Tensor) -> bool:
    """Return whether steps by the cache, in a batch [B, T], give the logits of each text read alone and whole."""
    tolerance = tolerance_of(module)
    try:
        with plain_settings(module):
            generated = module.generate(
                ids,
                attention_mask=torch.ones_like(ids),
                max_new_tokens=STEPS,
                do_sample=False,
                output_logits=True,
                return_dict_in_generate=True,
            )
    # a model may raise anything where it cannot continue from its own cache
    except Exception:
        return False
    stepwise = torch.stack(generated.logits, 1).float()
    for text, logits in zip(generated.sequences, stepwise, strict=True):
        read = module(text[None]).logits[0]
        expected = read[-STEPS - 1 : -1].float()
        if bool((logits - expected).norm() > tolerance * expected.norm()):
            return False
    return True
