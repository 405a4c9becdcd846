"""From samples to what is read of each: one batch without padding, and the positions that are asked for."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from layerscope.core.errors import LayerscopeError
from layerscope.inputs import Corpus
from layerscope.inputs.corpus import count
from layerscope.inputs.pairs import Ids, Pair, encoded
from layerscope.logit_lens.continuing import continued
from layerscope.logit_lens.naming import class_names, following, token_names
from layerscope.logit_lens.reading import Kind
from layerscope.models import LayeredModel
from layerscope.models.encode import TextEncoder, positions
from layerscope.models.forward import Inputs
from layerscope.models.layered import class_numbers

MASK = "[MASK]"


@dataclass(frozen=True)
class Subject:
    """A sample: `inputs` on the model's device, and for each position read what stands there and what is known of it.

    `positions` is None of a classifier, which reads the sample: there `tokens` is (None,).
    """

    name: str
    text: str
    inputs: Inputs
    positions: tuple[int, ...] | None
    tokens: tuple[str | None, ...]
    truths: tuple[str | None, ...]
    generated: int = 0
    continuation: str = ""


def kind_of(model: LayeredModel, inputs: Inputs) -> Kind:
    """Return what a model predicts, given one of its batches."""
    assert model.lens is not None
    if model.lens.kind == "pooled":
        return "class"
    if class_names(model) is not None:
        return "tag"
    return "next" if model.lens.causal or "decoder_input_ids" in inputs.named else "itself"


class Subjects:
    """The samples of a corpus as a model reads them, one at a time; `notes` grows by what is left out of them."""

    def __init__(self, model: LayeredModel, corpus: Corpus, tokens: int, whole: bool) -> None:
        self.model, self.corpus, self.new, self.whole = model, corpus, tokens, whole
        self.notes: list[str] = []
        self.samples: Sequence[Any] = corpus.samples
        self.kind: Kind = kind_of(model, model.encoder.batch([corpus.samples[0]]) if not _pairs(corpus) else Inputs({}))
        self.name = token_names(model.encoder.tokenizer) if isinstance(model.encoder, TextEncoder) else str
        if tokens and self.kind != "next":
            raise LayerscopeError(
                f"--tokens {tokens} continues a text, and {model.loaded.name} predicts no next token: leave it out"
            )
        if isinstance(model.encoder, TextEncoder):
            self.samples = self._read(model.encoder)
        if self.kind == "itself" and any(self._masks(ids) for ids in self.samples):
            self.kind = "masked"

    def __iter__(self) -> Iterator[Subject]:
        """Yield a subject for each sample that has something to read."""
        empty = 0
        for i, sample in enumerate(self.samples):
            if isinstance(sample, Ids) and not (sample.ids and (self.kind != "masked" or self._masks(sample))):
                empty += 1
                continue
            yield self._sample(i) if self.kind == "class" else self._text(i, sample.ids)
        if empty:
            what = "have no mask" if self.kind == "masked" else "have no token"
            self.notes.append(f"{count(empty, 'sample')} of {len(self.samples):,} {what}: left out")

    def _read(self, encoder: TextEncoder) -> list[Ids]:
        """Return texts as ids, cut where the model has no room; of a prompt that is an error."""
        if _pairs(self.corpus):
            return encoded(self.corpus.samples, encoder)
        texts = [self._with_mask(s) if isinstance(s, str) else s for s in self.corpus.samples]
        room = positions(self.model.module)
        if not self._two_stacks:  # the last new token is not read
            room -= max(0, self.new - 1)
        most = room if self.whole else min(room, encoder.max_length)
        rows = encoder.whole(texts)
        longest = max(map(len, rows))
        if longest > most and (self.whole or most < 1):
            raise LayerscopeError(self._too_long(longest))
        cut = sum(len(row) > most for row in rows)
        if cut:
            self.notes.append(f"{cut:,} of {count(len(rows), 'text')} are cut at {count(int(most), 'token')}")
        return [Ids(tuple(row[: int(min(most, len(row)))])) for row in rows]

    def _too_long(self, length: int) -> str:
        most = int(positions(self.model.module))
        if self.new > 1 and length <= most:
            return (
                f"--tokens {self.new} after {count(length, 'token')} is beyond the model's {most:,} positions: give "
                f"--tokens {most - length + 1} or fewer"
            )
        if self.new > most:
            return f"--tokens {self.new} is beyond the model's {most:,} positions: give fewer"
        return f"the prompt has {length:,} tokens, and the model {most:,} positions: make it shorter"

    @property
    def _tokenizer(self) -> Any:
        assert isinstance(self.model.encoder, TextEncoder)
        return self.model.encoder.tokenizer

    @property
    def _two_stacks(self) -> bool:
        return bool(getattr(getattr(self.model.module, "config", None), "is_encoder_decoder", False))

    def _with_mask(self, text: str) -> str:
        mask = getattr(self._tokenizer, "mask_token", None)
        if self.whole and self.kind == "itself" and mask is None and MASK in text:
            raise LayerscopeError(f"{self.model.loaded.name} has no mask token: leave {MASK} out of the prompt")
        return text.replace(MASK, mask) if mask and self.kind == "itself" else text

    def _masks(self, sample: Ids) -> list[int]:
        mask = getattr(self._tokenizer, "mask_token_id", None)
        return [position for position, token in enumerate(sample.ids) if token == mask]

    def _sample(self, i: int) -> Subject:
        labels = self.corpus.labels
        inputs = self.model.encoder.batch([self.samples[i]]).to(self.model.device)
        truth = None if labels is None else self._class(labels[i])
        return Subject(self.corpus.names[i], self._shown(i), inputs, None, (None,), (truth,))

    def _class(self, label: str | int) -> str:
        """Return the model's name of a label, where it is one of its classes."""
        number = class_numbers([label], self.model)[0]
        return str(label) if number is None else (class_names(self.model) or {})[number]

    def _text(self, i: int, ids: tuple[int, ...]) -> Subject:
        inputs = self._batch(ids)
        new: list[int] = []
        if self.new:
            new = continued(self.model, inputs, self.new)
            inputs = self._with_new(inputs, ids, new)
        read = inputs.named.get("decoder_input_ids", inputs.named["input_ids"])[0].tolist()
        truths: list[str | None] = [None] * len(read)
        if self.kind == "next":
            after = ids if "decoder_input_ids" in inputs.named else ids[1:]
            truths[: len(read) - len(new)] = [*map(self.name, after), None][: len(read) - len(new)]
        elif self.kind == "itself":
            truths = [*map(self.name, read)]
        chosen = self._masks(Ids(ids)) if self.kind == "masked" else range(len(read))
        before = [] if "decoder_input_ids" in inputs.named else ids
        continuation = following(self._tokenizer, before, new) if new else ""
        return Subject(
            self.corpus.names[i], self._shown(i), inputs, tuple(chosen), tuple(self.name(read[p]) for p in chosen),
            tuple(truths[p] for p in chosen), len(new), continuation,
        )  # fmt: skip

    def _batch(self, ids: tuple[int, ...]) -> Inputs:
        encoder = self.model.encoder
        assert isinstance(encoder, TextEncoder)
        return replace(encoder, max_length=len(ids)).batch([Ids(ids)]).to(self.model.device)

    def _with_new(self, inputs: Inputs, ids: tuple[int, ...], new: list[int]) -> Inputs:
        """Return the batch that reads a text and what was made of it, but for the last token, which nothing follows."""
        if "decoder_input_ids" not in inputs.named:
            return self._batch((*ids, *new[:-1]))
        start = inputs.named["decoder_input_ids"][:, :1]
        decoder = torch.cat([start, start.new_tensor([new[:-1]])], 1)
        named = {"decoder_input_ids": decoder, "decoder_attention_mask": torch.ones_like(decoder)}
        return Inputs({**inputs.named, **named}, mask=named["decoder_attention_mask"])

    def _shown(self, i: int) -> str:
        sample = self.corpus.samples[i]
        if isinstance(sample, Pair):
            return f"{sample.first} / {sample.second}"
        return sample if isinstance(sample, str) else self.corpus.names[i]


def _pairs(corpus: Corpus) -> bool:
    return isinstance(corpus.samples[0], Pair)
