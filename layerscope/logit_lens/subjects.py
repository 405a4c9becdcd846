"""From samples to what is read of each: one batch without padding, the positions read, and the tokens there.

What there is to read depends on the model's head. Of "the food was good" in four tokens:

    next      a causal model predicts after each token the next one: the answers are food, was, good
    masked    where a text has masks, the tokens in their places: nothing else is read
    itself    a masked model that is given no mask: each token in its own place
    tag       a tagger: the tag of each token
    class     a classifier: the class of the text

A language model may first continue the text; then the new tokens are read with the rest.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import torch

from layerscope.core import LayerscopeError, count
from layerscope.inputs import Corpus
from layerscope.inputs.pairs import Ids, Pair, encoded
from layerscope.logit_lens.along_text import phases
from layerscope.logit_lens.reading import Kind
from layerscope.models import LayeredModel
from layerscope.models.encode import TextEncoder
from layerscope.models.forward import Inputs, setting
from layerscope.models.layered import class_numbers
from layerscope.models.modality import positions
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
    phases: Sequence[str | None] = ()
    """Of each token that was generated: thinking or answer, None in a text without their marks."""


class Subjects:
    """The samples of a corpus as a model reads them, one at a time; `notes` grows by what is left out of them.

    `new` tokens continue each text.
    """

    def __init__(self, model: LayeredModel, corpus: Corpus, new: int) -> None:
        assert model.lens is not None
        self.model = model
        self.corpus = corpus
        self.new = new
        self.tokenizer = getattr(model.encoder, "tokenizer", None)
        self.notes: list[str] = []
        self.classes = class_names(model)
        self.kind: Kind = "tag"
        continues = False
        if model.lens.kind == "pooled":
            self.kind = "class"
        elif self.classes is None:
            first = model.encoder.batch([corpus.samples[0]])
            two_texts = "decoder_input_ids" in first.named
            self.kind = "next" if model.causal or two_texts else "itself"
            continues = model.causal and not two_texts
        if new and not (continues and hasattr(model.module, "generate")):
            raise LayerscopeError(
                f"`generate={new}` needs a language model that continues texts: leave it out"
            )
        self.token = token_names(self.tokenizer)
        self.mask = getattr(self.tokenizer, "mask_token_id", None)
        self.samples: Sequence[Any] = corpus.samples
        if isinstance(model.encoder, TextEncoder):
            self.samples = self._read(model.encoder)
        self.texts = [*map(_text_of, corpus.samples, corpus.names)]
        may_be_masked = self.kind == "itself"
        if may_be_masked and any(self.mask in sample.ids for sample in self.samples):
            self.kind = "masked"

    def __iter__(self) -> Iterator[Subject]:
        """Yield a subject for each sample that has something to read; labels as the model names them, where it does."""
        empty = 0
        for i, sample in enumerate(self.samples):
            ids = sample.ids if isinstance(sample, Ids) else None
            if ids == () or (self.kind == "masked" and self.mask not in sample.ids):
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

    def _classified(self, i: int, sample: Any) -> Subject:
        truth = None
        if self.corpus.labels is not None:
            truth = str(self.corpus.labels[i])
            (number,) = class_numbers([truth], self.model)
            if number is not None:
                truth = self.prediction(number)
        inputs = self.model.encoder.batch([sample]).to(self.model.device)
        name = self.corpus.names[i]
        text = self.texts[i]
        return Subject(name, text, inputs, None, (None,), (truth,))

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
        if mask is None and MASK in texts[0]:
            raise LayerscopeError(
                f"{self.model.name} has no mask token: leave {MASK} out of the prompt"
            )
        if mask is None or not isinstance(texts[0], str):
            return texts
        return [text.replace(MASK, mask) for text in texts]

    def _room(self, encoder: TextEncoder, longest: int) -> int:
        """Return the number of tokens of a text that are read."""
        window = positions(self.model.module)
        # the last token is not read
        room = min(window - max(0, self.new - 1), encoder.max_length)
        if room < 1:
            raise LayerscopeError(
                f"{self.new} new tokens are beyond the model's {window:,.0f} positions: `generate` fewer"
            )
        return int(min(room, longest))

    def _text(self, i: int, ids: tuple[int, ...]) -> Subject:
        assert isinstance(self.model.encoder, TextEncoder)
        device = self.model.device
        encoder = replace(self.model.encoder, max_length=len(ids) + self.new)
        inputs = encoder.batch([Ids(ids)]).to(device)
        new = list[int]()
        continuation = ""
        named = list[str | None]()
        if self.new:
            new = continued(self.model.module, inputs, self.new)
        if new:  # nothing follows the last token
            inputs = encoder.batch([Ids((*ids, *new[:-1]))]).to(device)
            continuation = following(self.tokenizer, ids, new)
            named = phases([*map(self.token, (*ids, *new))])[len(ids) :]
        after = ids[1:]
        tokens = inputs.named["input_ids"]
        if "decoder_input_ids" in inputs.named:
            after = ids
            tokens = inputs.named["decoder_input_ids"]
        read = tokens[0].tolist()
        chosen = [*range(len(read))]
        if self.kind == "masked":
            chosen = [p for p in chosen if read[p] == self.mask]
        truths = self._truths(after, read, len(new))
        return Subject(
            name=self.corpus.names[i],
            text=self.texts[i],
            inputs=inputs,
            positions=chosen,
            tokens=[self.token(read[p]) for p in chosen],
            truths=[truths[p] for p in chosen],
            generated=len(new),
            continuation=continuation,
            phases=named,
        )

    def _truths(
        self, after: Sequence[int], read: Sequence[int], new: int
    ) -> list[str | None]:
        """Return the right answer at each position that is read, None where there is none.

        `after` are the tokens that follow those that are `read`; the last `new` of these were generated,
        and have no right answer.
        """
        if self.kind == "next":
            answers = [*map(self.token, after), None]
            return answers[: len(read) - new] + [None] * new
        if self.kind == "itself":
            return [*map(self.token, read)]
        return [None] * len(read)


def _text_of(sample: Any, name: str) -> str:
    """Return how a sample is shown: a text or a pair as it is, anything else by its name.

    >>> _text_of("good", "0"), _text_of(Pair("good", "bad"), "0"), _text_of(object(), "cat.png")
    ('good', 'good / bad', 'cat.png')
    """
    if isinstance(sample, str):
        return sample
    return " / ".join(sample) if isinstance(sample, Pair) else name


def class_names(model: LayeredModel) -> dict[int, str] | None:
    """Return the names of a head's classes, None where they are the vocabulary's tokens."""
    assert model.lens is not None
    named = setting(model.module, "id2label") or {}
    total = model.lens.classes
    if model.lens.kind == "pooled":
        return {number: str(named.get(number, number)) for number in range(total)}
    if len(named) != total or setting(model.module, "vocab_size") == total:
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
        out = module.generate(**inputs.named)
    finally:
        module.generation_config = settings
    return [int(token) for token in out[0, inputs.named["input_ids"].shape[1] :]]
