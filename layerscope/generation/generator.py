"""Texts continued by a language model at one depth: greedily, or drawn from the nucleus."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, Unpack

from layerscope.core.errors import LayerscopeError
from layerscope.core.option_kinds import IN_CODE, SEED, Number, Whole
from layerscope.core.options import checked
from layerscope.core.progress import Console, Silent, Teller
from layerscope.core.shared_options import Loading
from layerscope.generation.decoder import open_decoder, open_language_model, token_ids
from layerscope.generation.decoding import continued, greedy, sampled
from layerscope.models import LayeredModel
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

    The model's own forward and its own cache at that depth are used; processors that a generation config may name
    (penalties, suppressed tokens) are not. A text ends at the config's `eos_token_id`. Prompts are batched with others
    of about their length and never padded: a batch reads what all its prompts have at once, and the rest of the longer
    ones token by token while the shorter ones continue. What is drawn for a prompt depends on `seed` and its index in
    the list, not on the rest of its batch. The model is left as it was.

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
    teller: Teller = Console() if progress else Silent()
    found = open_language_model(asked)
    (depth,) = checked_layers([found.stack.depth if layer is None else layer], found.stack.depth)
    rows = token_ids(found, prompts, "prompt")
    _check_room(found, rows, max_new_tokens)
    out: dict[int, Generated] = {}
    with evaluating(found.module), teller.bar(f"layer {depth}", len(rows), "texts") as advance:
        decoder = open_decoder(found, depth)
        if not decoder.cached:
            teller.say("the model's cache does not give what the whole text gives: every step reads the whole text")
        size = 1 if decoder.alone else batch_size
        for batch in _batches([len(row) for row in rows], size, max_new_tokens):
            choose = greedy if top_p is None else sampled(batch, top_p, temperature, seed, max_new_tokens)
            new = continued(decoder, {i: rows[i] for i in batch}, choose, max_new_tokens)
            for i, (ids, log_probs) in new.items():
                text = _text(found, rows[i], ids)
                out[i] = Generated(prompts[i], text, tuple(rows[i]), ids, log_probs, depth)
            advance(len(batch))
    return [out[i] for i in range(len(rows))]


def _check_room(model: LayeredModel, rows: Sequence[list[int]], new: int) -> None:
    """Refuse a prompt that leaves no room: a text that stops at the window would look as if the model had ended it."""
    window = model.max_length
    for i, row in enumerate(rows):
        if window is None or len(row) + new <= window:
            continue
        room = window - len(row)
        reads = f"prompt {i} has {len(row)} tokens, and the model reads {window} with the new ones"
        mend = f"try `max_new_tokens={room}`, or cut the prompt" if room > 0 else f"cut it to {window - 1} or fewer"
        raise LayerscopeError(f"{reads}: {mend}")


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
