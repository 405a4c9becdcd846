"""From samples to what is read of each: one batch without padding, the positions read, and the tokens there."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import torch

from layerscope.core.errors import LayerscopeError, count
from layerscope.inputs import Corpus
from layerscope.inputs.pairs import Ids, Pair, encoded
from layerscope.logit_lens.reading import Kind
from layerscope.models import LayeredModel
from layerscope.models.encode import TextEncoder, positions
from layerscope.models.forward import Inputs
from layerscope.models.layered import class_numbers
from layerscope.models.texts import following

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

    `new` tokens continue each text.
    """

    def __init__(self, model: LayeredModel, corpus: Corpus, tokens: int) -> None:
        assert model.lens is not None
        self.model, self.corpus, self.new = model, corpus, tokens
        self.encoder = model.encoder if isinstance(model.encoder, TextEncoder) else None
        self.tokenizer = self.encoder and self.encoder.tokenizer
        self.notes: list[str] = []
        self.classes = class_names(model)
        self.kind: Kind = "class" if model.lens.kind == "pooled" else "tag"
        continues = False
        if self.classes is None:
            two_texts = (
                "decoder_input_ids" in model.encoder.batch([corpus.samples[0]]).named
            )
            self.kind = "next" if model.causal or two_texts else "itself"
            continues = self.kind == "next" and not two_texts
        if tokens and not (continues and hasattr(model.module, "generate")):
            raise LayerscopeError(
                f"`tokens={tokens}` needs a language model that continues texts: leave it out"
            )
        self.token = token_names(self.tokenizer)
        self.mask = getattr(self.tokenizer, "mask_token_id", None)
        self.samples: Sequence[Any] = corpus.samples
        if self.encoder is not None:
            self.samples = self._read(self.encoder)
        self.texts = [*map(_text_of, corpus.samples, corpus.names)]
        if self.kind == "itself" and any(
            self.mask in sample.ids for sample in self.samples
        ):
            self.kind = "masked"

    def __iter__(self) -> Iterator[Subject]:
        """Yield a subject for each sample that has something to read; labels as the model names them, where it does."""
        empty = 0
        for i, sample in enumerate(self.samples):
            if isinstance(sample, Ids) and not self._can_be_read(sample):
                empty += 1
            elif self.kind == "class":
                yield self._classified(i, sample)
            else:
                yield self._text(i, sample.ids)
        if empty:
            lack = "no mask" if self.kind == "masked" else "no token"
            self.notes.append(
                f"{count(empty, 'sample')} of {len(self.samples):,} have {lack}: left out"
            )

    def _can_be_read(self, sample: Ids) -> bool:
        return len(sample.ids) > 0 and (
            self.kind != "masked" or self.mask in sample.ids
        )

    def _classified(self, i: int, sample: Any) -> Subject:
        truth = None
        if self.corpus.labels is not None:
            truth = str(self.corpus.labels[i])
            (number,) = class_numbers([truth], self.model)
            if number is not None:
                truth = self.prediction(number)
        inputs = self.model.encoder.batch([sample]).to(self.model.device)
        return Subject(
            self.corpus.names[i], self.texts[i], inputs, None, (None,), (truth,)
        )

    def prediction(self, number: int) -> str:
        """Return the name of what the head predicts: a class, or a token."""
        return self.token(number) if self.classes is None else self.classes[number]

    def _read(self, encoder: TextEncoder) -> list[Ids]:
        """Return texts as ids, cut where the model has no room."""
        if isinstance(self.corpus.samples[0], Pair):
            return encoded(self.corpus.samples, encoder)
        texts = list(self.corpus.samples)
        if self.kind == "itself":
            texts = self._with_masks(texts)
        rows = encoder.ids(texts, whole=True)
        most = self._room(encoder, longest=max(map(len, rows)))
        cut = sum(len(row) > most for row in rows)
        if cut:
            self.notes.append(
                f"{cut:,} of {count(len(rows), 'text')} are cut at {count(most, 'token')}"
            )
        return [Ids(tuple(row[:most])) for row in rows]

    def _with_masks(self, texts: list[Any]) -> list[Any]:
        """Return texts with the model's own mask token where [MASK] stands."""
        mask = getattr(self.tokenizer, "mask_token", None)
        if mask is None:
            if MASK in texts[0]:
                raise LayerscopeError(
                    f"{self.model.loaded.name} has no mask token: leave {MASK} out of the prompt"
                )
            return texts
        return [
            text.replace(MASK, mask) if isinstance(text, str) else text
            for text in texts
        ]

    def _room(self, encoder: TextEncoder, longest: int) -> int:
        """Return the number of tokens of a text that are read."""
        window = positions(self.model.module)
        # the last token is not read
        room = min(window - max(0, self.new - 1), encoder.max_length)
        if room < 1:
            raise LayerscopeError(
                f"{self.new} new tokens are beyond the model's {window:,.0f} positions: give fewer `tokens`"
            )
        return int(min(room, longest))

    def _text(self, i: int, ids: tuple[int, ...]) -> Subject:
        assert self.encoder is not None
        encoder, device = (
            replace(self.encoder, max_length=len(ids) + self.new),
            self.model.device,
        )
        inputs = encoder.batch([Ids(ids)]).to(device)
        new = continued(self.model.module, inputs, self.new) if self.new else []
        if new:  # nothing follows the last token
            inputs = encoder.batch([Ids((*ids, *new[:-1]))]).to(device)
        start = inputs.named.get("decoder_input_ids")
        read = (
            inputs.named["input_ids"][0].tolist()
            if start is None
            else start[0].tolist()
        )
        chosen = [
            p for p in range(len(read)) if self.kind != "masked" or ids[p] == self.mask
        ]
        truths = self._truths(ids if start is not None else ids[1:], read, len(new))
        return Subject(
            name=self.corpus.names[i],
            text=self.texts[i],
            inputs=inputs,
            positions=chosen,
            tokens=[self.token(read[p]) for p in chosen],
            truths=[truths[p] for p in chosen],
            generated=len(new),
            continuation=following(self.tokenizer, ids, new) if new else "",
        )

    def _truths(
        self, after: Sequence[int], read: Sequence[int], new: int
    ) -> list[str | None]:
        """Return the right answer at each position that is read, None where there is none."""
        if self.kind == "next":
            answers: list[str | None] = [*map(self.token, after), None]
            return answers[: len(read) - new] + [None] * new
        if self.kind == "itself":
            return [*map(self.token, read)]
        return [None] * len(read)


def _text_of(sample: Any, name: str) -> str:
    """Return how a sample is shown: a text or a pair as it is, anything else by its name."""
    if isinstance(sample, str):
        return sample
    return " / ".join(sample) if isinstance(sample, Pair) else name


def class_names(model: LayeredModel) -> dict[int, str] | None:
    """Return the names of a head's classes, None where they are the vocabulary's tokens."""
    assert model.lens is not None
    config = getattr(model.module, "config", None)
    named = getattr(config, "id2label", None) or {}
    if model.lens.kind == "pooled":
        return {
            number: str(named.get(number, number))
            for number in range(model.lens.classes)
        }
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
        in_vocabulary = tokenizer is not None and number < len(tokenizer)
        stored = tokenizer.convert_ids_to_tokens(number) if in_vocabulary else None
        if not isinstance(stored, str):  # rows of the head beyond the vocabulary
            return f"#{number}"
        text = str(tokenizer.decode([number], clean_up_tokenization_spaces=False))
        if stored.startswith(SPACE):  # sentencepiece drops the first space of a text
            text = f" {text.removeprefix(' ')}"
        return stored if not text or LOST in text else text

    return name


@torch.inference_mode()
def continued(module: Any, inputs: Inputs, tokens: int) -> list[int]:
    """Return the likeliest tokens that continue one prompt until the text ends."""
    from transformers import GenerationConfig

    # the model's own settings may forbid, force or punish tokens; as an argument, gaps would be
    # filled from them
    settings = module.generation_config
    module.generation_config = GenerationConfig(
        do_sample=False,
        num_beams=1,
        max_new_tokens=tokens,
        bos_token_id=settings.bos_token_id,
        eos_token_id=settings.eos_token_id,
        pad_token_id=settings.pad_token_id or 0,  # one text: nothing is padded
    )
    try:
        out = module.generate(
            **{name: inputs.named[name] for name in ("input_ids", "attention_mask")}
        )
    finally:
        module.generation_config = settings
    return [int(token) for token in out[0, inputs.named["input_ids"].shape[1] :]]
