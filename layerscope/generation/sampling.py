"""How tokens are chosen, the likeliest or drawn from the nucleus; prompts continued with them, plainly or by drafts."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from layerscope.core.errors import LayerscopeError
from layerscope.core.progress import Reporter
from layerscope.generation.decoder import Decoder, ends_of, until_end
from layerscope.generation.options import Sampling
from layerscope.generation.speculation import SelfSpeculation
from layerscope.generation.speculative_rounds import Speculated
from layerscope.models import LayeredModel
from layerscope.models.capture import evaluating

Choose = Callable[[Tensor, Tensor], Tensor]
"""Gives tokens [B] for log-probabilities [B, V], where each row has this many new tokens already, [B]."""


class Continued(NamedTuple):
    """The new tokens of a prompt, and the log-probability of each before temperature and nucleus; of drafts none."""

    ids: tuple[int, ...]
    log_probs: tuple[float, ...]


def prompt_batches(
    prompts: Sequence[Sequence[int]], sampling: Sampling, alone: bool = False
) -> Iterator[list[int]]:
    """Yield rows, shortest first; reading a longer prompt token by token must cost less than its own batch."""
    batch: list[int] = []
    for i in sorted(range(len(prompts)), key=lambda i: len(prompts[i])):
        full = alone or len(batch) == sampling.batch_size
        if batch and (
            full or len(prompts[i]) - len(prompts[batch[0]]) > sampling.max_new_tokens
        ):
            yield batch
            batch = []
        batch.append(i)
    if batch:
        yield batch


def chooser(sampling: Sampling, prompts: Sequence[int]) -> Choose:
    """Return what chooses the tokens of a batch, by the seed and each prompt's index alone."""
    top_p, most = sampling.top_p, sampling.max_new_tokens
    if top_p is None:
        return lambda log_p, _: log_p.argmax(-1)
    draws = [np.random.default_rng([sampling.seed, i]).random(most) for i in prompts]
    uniform = torch.from_numpy(np.stack(draws))

    def choose(log_p: Tensor, done: Tensor) -> Tensor:
        mass = nucleus(log_p, top_p, sampling.temperature).cumsum(-1)
        draw = uniform.to(mass.device).gather(1, done.clamp(0, most - 1)[:, None])
        token = torch.searchsorted(mass, draw * mass[:, -1:], right=True)[:, 0]
        # beyond the last only where a text that has ended gives NaN
        return token.clamp(max=mass.shape[1] - 1)

    return choose


def nucleus(log_p: Tensor, top_p: float, temperature: float = 1.0) -> Tensor:
    """Return the probabilities [B, V] that are drawn from, float64: those outside the nucleus 0, the rest summing to 1.

    The nucleus is the fewest tokens, most probable first, whose probabilities at this temperature
    reach `top_p`.

    Source: Holtzman et al. 2020, The curious case of neural text degeneration.
    """
    ordered, order = (
        (log_p.double() / temperature)
        .softmax(-1)
        .sort(dim=-1, descending=True, stable=True)
    )
    kept = ordered.masked_fill(ordered.cumsum(-1) - ordered >= top_p, 0)
    return torch.zeros_like(kept).scatter(-1, order, kept / kept.sum(-1, keepdim=True))


@torch.inference_mode()
def continued(
    decoder: Decoder, prompts: Mapping[int, list[int]], choose: Choose, new: int
) -> dict[int, Continued]:
    """Return what continues each prompt (shortest first), by its index; refuse NaN."""
    sizes = [len(prompt) for prompt in prompts.values()]
    total = sizes[-1] + new
    device = decoder.device
    rows = [[*prompt, *[0] * (total - len(prompt))] for prompt in prompts.values()]
    ids = torch.tensor(rows, device=device)
    lengths = torch.tensor(sizes, device=device)
    ends = torch.tensor(decoder.ends, dtype=torch.long, device=device)
    log_probs = torch.zeros(ids.shape, device=device)
    ended = torch.zeros_like(lengths, dtype=torch.bool)
    logits = decoder.prefill(ids[:, : sizes[0]])
    for at in range(sizes[0], total):
        log_p = logits.log_softmax(-1)
        done = at - lengths  # below 0 while a longer prompt is still being read
        # one NaN among the logits makes NaN of all
        broken = log_p[:, 0].isnan() & ~ended
        if bool(broken.any()):
            where = (
                f"after {at} tokens of prompt {[*prompts][int(broken.int().argmax())]}"
            )
            raise LayerscopeError(
                f"layer {decoder.layer} gives NaN {where}: check its weights, or try another `dtype`"
            )
        token = choose(log_p, done)
        if at < sizes[-1]:
            token = torch.where(done < 0, ids[:, at], token)
        ids[:, at] = token
        log_probs[:, at] = log_p.gather(1, token[:, None])[:, 0]
        ended |= (done >= 0) & (torch.isin(token, ends) | (done >= new - 1))
        if bool(ended.all()):
            break
        logits = decoder.step(token)
    by_prompt: dict[int, Continued] = {}
    for i, size, row, values in zip(
        prompts, sizes, ids.tolist(), log_probs.tolist(), strict=True
    ):
        # the rest of a row is what it was given after its end, while the others continued
        tokens = until_end(row[size : size + new], decoder.ends)
        by_prompt[i] = Continued(
            tuple(tokens), tuple(values[size : size + len(tokens)])
        )
    return by_prompt


def drafted(
    model: LayeredModel,
    speculation: SelfSpeculation,
    prompts: Sequence[list[int]],
    sampling: Sampling,
    reporter: Reporter,
) -> tuple[list[Continued], Speculated]:
    """Return what continues each prompt by self-speculation, and what was drafted for all of them."""
    from transformers import generation as hf

    warpers: list[Any] = []
    if sampling.top_p is not None:
        warpers = [
            hf.TemperatureLogitsWarper(sampling.temperature),
            hf.TopPLogitsWarper(sampling.top_p),
        ]
    config = hf.GenerationConfig(do_sample=bool(warpers))
    ends, total, device = list(ends_of(model.module)), Speculated(), model.device
    by_prompt: dict[int, Continued] = {}
    bar = reporter.bar("self-speculation", len(prompts), "texts")
    with evaluating(model.module), torch.random.fork_rng(), bar as advance:
        torch.manual_seed(sampling.seed)
        for batch in prompt_batches(prompts, sampling, not model.batching):
            longest = max(len(prompts[i]) for i in batch)
            pads = [longest - len(prompts[i]) for i in batch]
            rows = [[0] * pad + prompts[i] for i, pad in zip(batch, pads, strict=True)]
            mask = torch.arange(longest) >= torch.tensor(pads)[:, None]
            criteria: list[Any] = [
                hf.MaxLengthCriteria(longest + sampling.max_new_tokens)
            ]
            if ends:
                criteria.append(hf.EosTokenCriteria(ends))
            made = speculation(
                model.module,
                torch.tensor(rows).to(device),
                hf.LogitsProcessorList(warpers),
                hf.StoppingCriteriaList(criteria),
                config,
                attention_mask=mask.long().to(device),
            )
            for i, row in zip(batch, made[:, longest:].tolist(), strict=True):
                by_prompt[i] = Continued(
                    tuple(until_end(row[: sampling.max_new_tokens], ends)), ()
                )
            total += speculation.report
            advance(len(batch))
    return [by_prompt[i] for i in range(len(prompts))], total
