"""Texts continued by a language model at one depth: greedy, or drawn from the nucleus."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from layerscope.core.errors import LayerscopeError
from layerscope.core.progress import Console, Silent, Teller
from layerscope.generation.decoder import open_decoder, open_language_model, read
from layerscope.generation.decoding import continued, greedy, sampled
from layerscope.models import LayeredModel, LoadOptions, Override
from layerscope.models.capture import evaluating
from layerscope.truncation.cutting import checked_layers


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
    layer: int | None = None,
    *,
    max_new_tokens: int = 64,
    top_p: float | None = None,
    temperature: float = 1.0,
    seed: int = 0,
    batch_size: int = 8,
    processor: Any = None,
    part: str | None = None,
    blocks: str | None = None,
    norm: str | None = None,
    revision: str | None = None,
    dtype: str = "auto",
    device: str = "auto",
    trust_remote_code: bool = False,
    allow_pickle: bool = False,
    progress: bool = True,
) -> list[Generated]:
    """Continue each prompt with the model cut at a layer, greedily or by nucleus sampling (Holtzman et al. 2020).

    The model's own forward and its own cache at that depth are used; processors that a generation config may name
    (penalties, suppressed tokens) are not. A text ends at the config's `eos_token_id`. Prompts are batched with others
    of about their length and never padded: a batch reads what all its prompts have at once, and the rest of the longer
    ones token by token while the shorter ones go on. What is drawn for a prompt depends on `seed` and its place in the
    list, not on its batch-mates. The model is left as it was.

    Args:
        model: a hub name, a local folder, or a loaded transformers model with `processor`.
        prompts: texts; an empty one is the tokenizer's token that begins a text.
        layer: the last layer that is run, 1 … L; None: L, the model itself.
        max_new_tokens: of each text.
        top_p: None: the most probable token; in (0, 1]: one drawn from the fewest tokens that have this much together.
        temperature: divides the logits before the nucleus is taken; of no effect on greedy texts.
        seed: of the draws.
        batch_size: texts at once.
        processor: tokenizer of a model given as an object.
        part: which stack of blocks, where a model has several.
        blocks: path of the module that holds the blocks, where the probe is not to decide.
        norm: path of the final norm, or "none".
        revision: of a hub model.
        dtype: of the weights.
        device: where to put them.
        trust_remote_code: let the checkpoint's own code run.
        allow_pickle: load pickled weights.
        progress: tell what happens on standard error.

    Raises:
        LayerscopeError: for every wrong input, and for logits that are NaN.

    Example:
        >>> from layerscope.generation import generate
        >>> [found.text for found in generate("tiny-gpt2", ["the food was"], layer=2, max_new_tokens=3, progress=False)]
        [' was was was']

    """
    _check(max_new_tokens, top_p, temperature, seed, batch_size)
    teller: Teller = Console() if progress else Silent()
    options = LoadOptions(revision, dtype, device, trust_remote_code, allow_pickle)
    found = open_language_model(model, processor, Override(part, blocks, norm), options)
    (depth,) = checked_layers([found.stack.depth if layer is None else layer], found.stack.depth)
    rows = read(found, prompts, "prompt")
    _check_room(found, rows, max_new_tokens)
    out: dict[int, Generated] = {}
    with evaluating(found.module), teller.bar(f"layer {depth}", len(rows), "texts") as advance:
        decoder = open_decoder(found, depth)
        if not decoder.cached:
            teller.say("this model's cache does not give what the whole text gives: every step reads the whole text")
        size = 1 if decoder.alone else batch_size
        for batch in _batches([len(row) for row in rows], size, max_new_tokens):
            choose = greedy if top_p is None else sampled(batch, top_p, temperature, seed, max_new_tokens)
            told = continued(decoder, {i: rows[i] for i in batch}, choose, max_new_tokens)
            for i, (ids, log_probs) in told.items():
                text = _text(found, rows[i], ids)
                out[i] = Generated(prompts[i], text, tuple(rows[i]), ids, log_probs, depth)
            advance(len(batch))
    return [out[i] for i in range(len(rows))]


def _check(new: Any, top_p: Any, temperature: Any, seed: Any, batch_size: Any) -> None:
    for name, value, least in (("max_new_tokens", new, 1), ("batch_size", batch_size, 1), ("seed", seed, 0)):
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            raise LayerscopeError(f"{name} {value!r} is not a whole number of {least} or more: give one")
    if top_p is not None and not (_is_number(top_p) and 0 < top_p <= 1):
        raise LayerscopeError(
            f"top_p {top_p!r} is not a share of the probability: give a number in (0, 1], or None (greedy)"
        )
    if not (_is_number(temperature) and 0 < temperature < math.inf):
        raise LayerscopeError(f"temperature {temperature!r} is not above 0: give 1, or less for surer draws")


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _check_room(model: LayeredModel, rows: Sequence[list[int]], new: int) -> None:
    """Refuse a prompt that leaves no room: a text that stops at the window would look as if the model had ended it."""
    window = model.max_length
    for i, row in enumerate(rows):
        if window is None or len(row) + new <= window:
            continue
        if len(row) >= window:
            raise LayerscopeError(
                f"prompt {i} has {len(row)} tokens and the model reads {window}: cut it to {window - 1} or fewer"
            )
        raise LayerscopeError(
            f"prompt {i} has {len(row)} tokens, and {new} new ones do not fit the model's {window}: "
            f"take max_new_tokens {window - len(row)} or less, or cut the prompt"
        )


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


def _text(model: LayeredModel, prompt: Sequence[int], ids: Sequence[int]) -> str:
    """Return what new tokens add to the text of a prompt: alone they may lose the space before them."""
    encoder: Any = model.encoder
    read = partial(encoder.tokenizer.decode, skip_special_tokens=True, clean_up_tokenization_spaces=False)
    before, whole = read([*prompt]), read([*prompt, *ids])
    return str(whole[len(before) :] if whole.startswith(before) else read([*ids]))
