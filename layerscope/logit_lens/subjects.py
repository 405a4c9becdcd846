"""From samples to what is read of each: one batch without padding, the positions read, and the tokens there."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Any

import torch

from layerscope.core.errors import LayerscopeError, count
from layerscope.inputs import Corpus
from layerscope.inputs.pairs import Ids, Pair, encoded
from layerscope.logit_lens.reading import Kind
from layerscope.models import LayeredModel
from layerscope.models.encode import TextEncoder, positions
from layerscope.models.forward import Inputs, forward
from layerscope.models.layered import class_numbers
from layerscope.models.lens import logits_of

MASK = "[MASK]"
LOST = "\N{REPLACEMENT CHARACTER}"
SPACE = "\N{LOWER ONE EIGHTH BLOCK}"
"""What sentencepiece stores a space as."""


@dataclass(frozen=True)
class Subject:
    """A sample on the model's device, and for each position (a classifier has none) the token read and the answer."""

    name: str
    text: str
    inputs: Inputs
    positions: Sequence[int] | None
    tokens: Sequence[str | None]
    truths: Sequence[str | None]
    generated: int = 0
    continuation: str = ""


class Subjects:
    """The samples of a corpus as a model reads them, one at a time; `notes` grows by what is left out of them.

    `new` tokens continue each text; where it is `whole`, a text that the model has no room for is
    an error.
    """

    def __init__(self, model: LayeredModel, corpus: Corpus, tokens: int, whole: bool) -> None:
        assert model.lens is not None
        self.model, self.corpus, self.new, self.whole = model, corpus, tokens, whole
        self.encoder = model.encoder if isinstance(model.encoder, TextEncoder) else None
        self.tokenizer = self.encoder and self.encoder.tokenizer
        self.notes: list[str] = []
        self.classes = class_names(model)
        self.kind: Kind = "class" if model.lens.kind == "pooled" else "tag"
        if self.classes is None:
            inputs = model.encoder.batch([corpus.samples[0]])
            self.kind = "next" if model.causal or "decoder_input_ids" in inputs.named else "itself"
        if tokens and self.kind != "next":
            raise LayerscopeError(
                f"`tokens={tokens}` needs a model that predicts the next token: leave it out"
            )
        self.token, self.mask = (
            token_names(self.tokenizer),
            getattr(self.tokenizer, "mask_token_id", None),
        )
        self.samples: Sequence[Any] = (
            corpus.samples if self.encoder is None else self._read(self.encoder)
        )
        self.texts = [
            sample
            if isinstance(sample, str)
            else " / ".join(sample)
            if isinstance(sample, Pair)
            else name
            for name, sample in zip(corpus.names, corpus.samples, strict=True)
        ]
        if self.kind == "itself" and any(self.mask in sample.ids for sample in self.samples):
            self.kind = "masked"

    def __iter__(self) -> Iterator[Subject]:
        """Yield a subject for each sample that has something to read; labels as the model names them, where it does."""
        empty = 0
        for i, sample in enumerate(self.samples):
            if isinstance(sample, Ids) and not (
                sample.ids and (self.kind != "masked" or self.mask in sample.ids)
            ):
                empty += 1
            elif self.kind == "class":
                label = None if self.corpus.labels is None else str(self.corpus.labels[i])
                (number,) = [None] if label is None else class_numbers([label], self.model)
                inputs = self.model.encoder.batch([sample]).to(self.model.device)
                truth = label if number is None else self.prediction(number)
                yield Subject(self.corpus.names[i], self.texts[i], inputs, None, (None,), (truth,))
            else:
                yield self._text(i, sample.ids)
        if empty:
            lack = "no mask" if self.kind == "masked" else "no token"
            self.notes.append(
                f"{count(empty, 'sample')} of {len(self.samples):,} have {lack}: left out"
            )

    def prediction(self, number: int) -> str:
        """Return the name of what the head predicts: a class, or a token."""
        return self.token(number) if self.classes is None else self.classes[number]

    def _read(self, encoder: TextEncoder) -> list[Ids]:
        """Return texts as ids, cut where the model has no room; of a prompt that is an error."""
        if isinstance(self.corpus.samples[0], Pair):
            return encoded(self.corpus.samples, encoder)
        texts = list(self.corpus.samples)
        if self.kind == "itself":
            mask = getattr(self.tokenizer, "mask_token", None)
            if self.whole and mask is None and MASK in texts[0]:
                raise LayerscopeError(
                    f"{self.model.loaded.name} has no mask token: leave {MASK} out of the prompt"
                )
            texts = [
                text.replace(MASK, mask) if mask and isinstance(text, str) else text
                for text in texts
            ]
        window = positions(self.model.module)
        two_stacks = getattr(
            getattr(self.model.module, "config", None), "is_encoder_decoder", False
        )
        room = window - (0 if two_stacks else max(0, self.new - 1))  # the last token is not read
        most = room if self.whole else min(room, encoder.max_length)
        rows = encoder.ids(texts, whole=True)
        longest = max(map(len, rows))
        if longest > most and (self.whole or most < 1):
            if self.new > 1 and longest <= window:
                raise LayerscopeError(
                    f"`tokens={self.new}` after {count(longest, 'token')} is beyond the model's {window:,.0f} "
                    f"positions: give `tokens={window - longest + 1:.0f}` or fewer"
                )
            raise LayerscopeError(
                f"the text has {longest:,} tokens, and the model {window:,.0f} positions: shorten it"
            )
        cut = sum(len(row) > most for row in rows)
        if cut:
            self.notes.append(
                f"{cut:,} of {count(len(rows), 'text')} are cut at {count(int(most), 'token')}"
            )
        return [Ids(tuple(row[: int(min(most, len(row)))])) for row in rows]

    def _text(self, i: int, ids: tuple[int, ...]) -> Subject:
        assert self.encoder is not None
        encoder, device = replace(self.encoder, max_length=len(ids) + self.new), self.model.device
        inputs = encoder.batch([Ids(ids)]).to(device)
        new: list[int] = continued(self.model, inputs, self.new) if self.new else []
        start = inputs.named.get("decoder_input_ids")
        if new and start is None:
            inputs = encoder.batch([Ids((*ids, *new[:-1]))]).to(
                device
            )  # nothing follows the last token
        elif new and start is not None:
            decoder = torch.cat([start[:, :1], start.new_tensor([new[:-1]])], 1)
            named = {
                "decoder_input_ids": decoder,
                "decoder_attention_mask": torch.ones_like(decoder),
            }
            inputs = Inputs({**inputs.named, **named}, mask=named["decoder_attention_mask"])
        read = (inputs.named["input_ids"] if start is None else inputs.named["decoder_input_ids"])[
            0
        ].tolist()
        truths: list[str | None] = [None] * len(read)
        if self.kind == "next":
            after, old = ids[1:] if start is None else ids, len(read) - len(new)
            truths[:old] = [*map(self.token, after), None][:old]
        elif self.kind == "itself":
            truths = [*map(self.token, read)]
        chosen = [p for p in range(len(read)) if self.kind != "masked" or ids[p] == self.mask]
        continuation = following(self.tokenizer, ids if start is None else [], new) if new else ""
        name, tokens, known = (
            self.corpus.names[i],
            [self.token(read[p]) for p in chosen],
            [truths[p] for p in chosen],
        )
        return Subject(name, self.texts[i], inputs, chosen, tokens, known, len(new), continuation)


def class_names(model: LayeredModel) -> dict[int, str] | None:
    """Return the names of a head's classes, None where they are the vocabulary's tokens."""
    assert model.lens is not None
    config = getattr(model.module, "config", None)
    named = getattr(config, "id2label", None) or {}
    if model.lens.kind == "pooled":
        return {number: str(named.get(number, number)) for number in range(model.lens.classes)}
    if (
        len(named) != model.lens.classes
        or getattr(config, "vocab_size", None) == model.lens.classes
    ):
        return None
    return {int(number): str(name) for number, name in named.items()}


def token_names(tokenizer: Any) -> Callable[[int], str]:
    """Return what gives a token's text with the space before it, its stored form (part of a character) or number."""

    @cache
    def name(number: int) -> str:
        known = tokenizer is not None and number < len(tokenizer)
        stored = tokenizer.convert_ids_to_tokens(number) if known else None
        if not isinstance(stored, str):  # rows of the head beyond the vocabulary
            return f"#{number}"
        text = str(tokenizer.decode([number], clean_up_tokenization_spaces=False))
        if stored.startswith(SPACE) and not text.startswith(
            " "
        ):  # sentencepiece drops the first space of a text
            text = f" {text}"
        return stored if not text or LOST in text else text

    return name


def following(tokenizer: Any, ids: Sequence[int], new: Sequence[int], **how: bool) -> str:
    """Return what new tokens add to the text of those before them (alone they may lose a space), or their numbers."""
    if tokenizer is None:
        return " ".join(f"#{number}" for number in new)
    read = partial(tokenizer.decode, clean_up_tokenization_spaces=False, **how)
    before, whole = read([*ids]), read([*ids, *new])
    return str(whole[len(before) :] if whole.startswith(before) else read([*new]))


@torch.inference_mode()
def continued(model: LayeredModel, inputs: Inputs, tokens: int) -> list[int]:
    """Return the tokens that continue one prompt until the text ends: by its own `generate`, or one by one."""
    module: Any = model.module
    named = {name: inputs.named[name] for name in ("input_ids", "attention_mask")}
    ids, own = named["input_ids"], getattr(module, "generation_config", None)
    if own is not None and hasattr(module, "generate"):
        from transformers import GenerationConfig

        # the model's own settings may forbid, force or punish tokens; as an argument, gaps would be
        # filled from them
        kept = {
            name: getattr(own, name)
            for name in ("bos_token_id", "eos_token_id", "decoder_start_token_id")
        }
        kept["pad_token_id"] = own.pad_token_id or 0  # one text: nothing is padded
        module.generation_config = GenerationConfig(
            do_sample=False, num_beams=1, max_new_tokens=tokens, **kept
        )
        try:
            out = module.generate(**named)
        finally:
            module.generation_config = own
        return [
            int(token)
            for token in out[0, 1 if "decoder_input_ids" in inputs.named else ids.shape[1] :]
        ]
    end = getattr(getattr(module, "config", None), "eos_token_id", None)
    new: list[int] = []
    while len(new) < tokens and (not new or new[-1] != end):
        logits = logits_of(
            forward(module, Inputs({"input_ids": ids, "attention_mask": torch.ones_like(ids)}))
        )
        assert logits is not None
        new.append(int(logits[0, -1].argmax()))
        ids = torch.cat([ids, ids.new_tensor([new[-1:]])], 1)
    return new
