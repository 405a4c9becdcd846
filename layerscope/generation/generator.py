"""Texts continued by a language model at one depth: greedily, or drawn from the nucleus."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Unpack

import numpy as np
import torch
from torch import Tensor

from layerscope.core.errors import LayerscopeError
from layerscope.core.option_kinds import IN_CODE, SEED, Number, Whole
from layerscope.core.options import Loading, checked
from layerscope.core.progress import reporting
from layerscope.generation.decoder import Decoder, open_decoder, open_language_model, token_ids
from layerscope.logit_lens.subjects import following
from layerscope.models.capture import evaluating
from layerscope.truncation.cutting import checked_layers

Choose = Callable[[Tensor, Tensor], Tensor]
"""Gives tokens [B] for log-probabilities [B, V], where each row has this many new tokens already, [B]."""
Continued = tuple[tuple[int, ...], tuple[float, ...]]


@dataclass(frozen=True)
class Generated:
    """A prompt continued at layer `layer`.

    `ids` are the new tokens, including the one that ends the text, and `text` is what they add to the decoded prompt.
    `log_probs` is the log-probability of each new token in the model's own distribution at that depth, before
    temperature and nucleus.

    >>> from layerscope.generation import generate
    >>> found, = generate("tiny-gpt2", ["the food was"], max_new_tokens=3, progress=False)
    >>> found.layer, len(found.prompt_ids), len(found.ids)
    (3, 3, 3)
    """

    prompt: str
    text: str
    prompt_ids: tuple[int, ...]
    ids: tuple[int, ...]
    log_probs: tuple[float, ...]
    layer: int


def generate(
    model: Any,
    prompts: Sequence[str],
    layer: Annotated[int | None, Whole()] = None,
    *,
    max_new_tokens: Annotated[int, Whole(1)] = 64,
    top_p: Annotated[float | None, Number(above=0, most=1)] = None,
    temperature: Annotated[float, Number(above=0)] = 1.0,
    seed: Annotated[int, SEED] = 0,
    batch_size: Annotated[int, Whole(1)] = 8,
    processor: Annotated[Any, IN_CODE] = None,
    progress: Annotated[bool, IN_CODE] = True,
    **loading: Unpack[Loading],
) -> list[Generated]:
    """Continue each prompt with the model cut at a layer, greedily or by nucleus sampling (Holtzman et al. 2020).

    The model's own forward and cache are used, without the penalties that its generation config may name; a text ends
    at the config's `eos_token_id`. Prompts are batched with others of about their length and never padded. What is
    drawn depends on `seed` and a prompt's index in the list, not on its batch. The model is left as it was.

    Args:
        model: hub name, local folder, or a loaded transformers model with `processor`.
        prompts: texts; an empty one is read as the tokenizer's token that begins a text.
        layer: last layer that is run, 1 … L; by default L, the model itself.
        max_new_tokens: new tokens per text at most.
        top_p: draw from the fewest tokens that have this probability together; by default take the most probable one.
        temperature: divides the logits before the nucleus is taken; greedy texts ignore it.
        seed: random seed of the draws.
        batch_size: texts per batch at most.
        processor: tokenizer of a model given as an object.
        progress: show progress on standard error.
        **loading: how the model is loaded: `Loading`.

    Raises:
        LayerscopeError: for every wrong input, and for logits that are NaN.

    Example:
        >>> from layerscope.generation import generate
        >>> [found.text for found in generate("tiny-gpt2", ["the food was"], layer=2, max_new_tokens=3, progress=False)]
        [' was was was']

    """
    asked = checked(generate, locals())
    reporter = reporting(progress)
    found = open_language_model(asked)
    (depth,) = checked_layers([found.stack.depth if layer is None else layer], found.stack.depth)
    rows = token_ids(found, prompts, "prompt", max_new_tokens)
    out: dict[int, Generated] = {}
    with evaluating(found.module), reporter.bar(f"layer {depth}", len(rows), "texts") as advance:
        decoder = open_decoder(found, depth)
        if not decoder.cached:
            reporter.say("the model's cache does not give what the whole text gives: every step reads the whole text")
        size, tokenizer = 1 if decoder.alone else batch_size, getattr(found.encoder, "tokenizer", None)
        for batch in _batches([len(row) for row in rows], size, max_new_tokens):
            choose = chooser(batch, top_p, temperature, seed, max_new_tokens)
            new = continued(decoder, {i: rows[i] for i in batch}, choose, max_new_tokens)
            for i, (ids, log_probs) in new.items():
                text = following(tokenizer, rows[i], ids, skip_special_tokens=True)
                out[i] = Generated(prompts[i], text, tuple(rows[i]), ids, log_probs, depth)
            advance(len(batch))
    return [out[i] for i in range(len(rows))]


def _batches(lengths: Sequence[int], size: int, new: int) -> Iterator[list[int]]:
    """Yield rows, shortest first; reading a longer prompt token by token must cost less than a batch of its own."""
    batch: list[int] = []
    for i in sorted(range(len(lengths)), key=lambda i: (lengths[i], i)):
        if batch and (len(batch) == size or lengths[i] - lengths[batch[0]] > new):
            yield batch
            batch = []
        batch.append(i)
    if batch:
        yield batch


def chooser(prompts: Sequence[int], top_p: float | None, temperature: float, seed: int, new: int) -> Choose:
    """Return what takes the likeliest token, or draws from the nucleus: by the seed and each prompt's index alone."""
    if top_p is None:
        return lambda log_p, _: log_p.argmax(-1)
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
    """Return the new tokens of each prompt (shortest first) and their log-probabilities, by its index; refuse NaN."""
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
            where = f"after {at} tokens of prompt {[*prompts][int(broken.int().argmax())]}"
            raise LayerscopeError(f"layer {decoder.layer} gives NaN {where}: check its weights, or try another `dtype`")
        token = choose(log_p, done)
        if at < sizes[-1]:  # longer prompts are still being read
            token = torch.where(done < 0, ids[:, at], token)
        ids[:, at], log_probs[:, at] = token, log_p.gather(1, token[:, None])[:, 0]
        ended |= (done >= 0) & (torch.isin(token, ends) | (done >= new - 1))
        if bool(ended.all()):
            break
        logits = decoder.step(token)
    out: dict[int, Continued] = {}
    for i, size, row, values in zip(prompts, sizes, ids.tolist(), log_probs.tolist(), strict=True):
        tokens = row[size : size + new]
        # the rest of a row is what it was given after its end, while the others continued
        stop = next((n for n, token in enumerate(tokens, start=1) if token in decoder.ends), len(tokens))
        out[i] = tuple(tokens[:stop]), tuple(values[size : size + stop])
    return out
