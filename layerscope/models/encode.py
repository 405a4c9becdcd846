"""Turn samples into the batches a model takes: always padded on the right, with a mask of what is real."""

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from layerscope.core import LayerscopeError
from layerscope.inputs import resample
from layerscope.inputs.pairs import Ids, Pair, encoded
from layerscope.models.checks import clear_inputs
from layerscope.models.forward import Inputs, accepts, setting
from layerscope.models.modality import check_read, is_ids, positions, vocabulary

TOKENISED_AT_ONCE = 256
NO_TOKENIZER = (
    "a text model as an object needs `processor`: its tokenizer or feature extractor"
)


class Encoder(ABC):
    """What turns samples of one modality into inputs."""

    modality = "tensor"
    cut = 0
    """How many of the samples that `lengths` last measured are longer than the model reads."""

    def lengths(self, samples: Iterable[Any]) -> list[int]:
        """Return each sample's length in tokens (1 where all samples have one size), 0 where nothing is left."""
        return [1 for _ in samples]

    @abstractmethod
    def batch(self, samples: Sequence[Any]) -> Inputs:
        """Return the samples as one right-padded batch."""


@dataclass
class TextEncoder(Encoder):
    """Texts through a tokenizer (`lack` says why there is none), or token ids as they are; cut at `max_length`.

    With `chat` the tokenizer's chat template is around each text, or conversation.
    """

    tokenizer: Any
    module: nn.Module
    max_length: int
    prompt: str = ""
    lack: str = ""
    chat: bool = False
    modality = "text"

    def ids(self, samples: Sequence[Any], *, whole: bool = False) -> list[list[int]]:
        """Return the token ids of each sample, special tokens included, cut at the maximal length unless `whole`."""
        if all(hasattr(sample, "ids") for sample in samples):
            return [list(sample.ids[: self.max_length]) for sample in samples]
        if all(map(is_ids, samples)):
            rows = [sample.tolist() for sample in samples]
            self._check_ids(set(chain(*rows)))
            if whole:
                return rows
            return [row[: self.max_length] for row in rows]
        if self.tokenizer is None:
            raise LayerscopeError(self.lack)
        if isinstance(samples[0], Pair):
            return [list(pair.ids) for pair in encoded(samples, self, whole=whole)]
        texts = [self.prompt + sample for sample in samples]
        with clear_inputs(self.tokenizer):
            if self.chat:
                texts = [self._in_template(sample) for sample in samples]
            encodings = self.tokenizer(
                texts,
                add_special_tokens=not self.chat,  # a chat template has them
                truncation=not whole,
                max_length=self.max_length,
                return_attention_mask=False,
                return_token_type_ids=False,
                verbose=False,
            )
            ids: list[list[int]] = encodings["input_ids"]
        return ids

    def _in_template(self, sample: str) -> str:
        """Return a text, or a conversation, as the chat template writes it before the model's answer."""
        alone = ({"role": "user", "content": sample},)
        first, *rest = getattr(sample, "messages", alone)
        messages = [{**first, "content": self.prompt + first["content"]}, *rest]
        is_answered = messages[-1]["role"] == "assistant"
        return str(
            self.tokenizer.apply_chat_template(
                messages, tokenize=False, add_generation_prompt=not is_answered
            )
        )

    def _check_ids(self, ids: set[int]) -> None:
        """Raise for a token id that the model does not embed."""
        top = vocabulary(self.module) - 1
        for number in (min(ids, default=0), max(ids, default=0)):
            if not 0 <= number <= top:
                raise LayerscopeError(
                    f"token id {number} is not in the vocabulary of this model: it has ids 0..{top}"
                )

    def lengths(self, samples: Iterable[Any]) -> list[int]:
        """Return each sample's number of tokens; `cut` then says how many of them were longer."""
        lengths: list[int] = []
        remaining = iter(samples)
        while chunk := list(islice(remaining, TOKENISED_AT_ONCE)):
            lengths += map(len, self.ids(chunk, whole=True))
        self.cut = sum(length > self.max_length for length in lengths)
        return [min(length, self.max_length) for length in lengths]

    def batch_ids(self, rows: Iterable[Sequence[int]]) -> Inputs:
        """Return rows of token ids as one batch."""
        return self.batch([Ids(tuple(row)) for row in rows])

    def batch(self, samples: Sequence[Any]) -> Inputs:
        """Return ids [B, T] and their mask; a decoder of an encoder-decoder reads the text shifted by one."""
        if isinstance(samples[0], Pair):
            samples = encoded(samples, self)
        rows = self.ids(samples)
        mask = padded([[1] * len(row) for row in rows], 0)
        # a classifier on a decoder looks for its own pad id to find the last token
        pad = setting(self.module, "pad_token_id")
        if not isinstance(pad, int) or pad < 0:
            pad = getattr(self.tokenizer, "pad_token_id", 0)
        ids = padded(rows, int(pad or 0))
        named = {"input_ids": ids, "attention_mask": mask}
        if getattr(samples[0], "types", ()):  # which text of a pair a token is of
            named["token_type_ids"] = padded([sample.types for sample in samples], 0)
        if accepts(self.module, "decoder_input_ids"):
            start = torch.full_like(ids[:, :1], _decoder_start(self.module))
            named["decoder_input_ids"] = torch.cat([start, ids[:, :-1]], 1)
            named["decoder_attention_mask"] = mask
        return Inputs(named, mask=mask)


def _decoder_start(module: Any) -> int:
    """Return the token with which a decoder begins."""
    return setting(module, "decoder_start_token_id") or 0


def padded(rows: Sequence[Sequence[int]], value: int) -> Tensor:
    """Return rows of numbers as one tensor, filled up on the right."""
    tensors = [torch.tensor(row, dtype=torch.long) for row in rows]
    return pad_sequence(tensors, batch_first=True, padding_value=value)


@dataclass
class AudioEncoder(Encoder):
    """Sounds through a feature extractor at its own rate; `mask` is at the rate of the model's frames."""

    processor: Any
    module: nn.Module
    modality = "audio"

    @property
    def max_length(self) -> int | None:
        """Seconds of a sound at most, where the model has a fixed window."""
        return getattr(self.processor, "chunk_length", None)

    def lengths(self, samples: Iterable[Any]) -> list[int]:
        """Return each sound's length in samples, 0 where it is too short; `cut` counts those beyond the window."""
        rate = self.processor.sampling_rate
        lengths = np.array([len(resample(sample, rate)) for sample in samples])
        most = (self.max_length or math.inf) * rate
        self.cut = int((lengths > most).sum())
        states = getattr(self.module, "_get_feat_extract_output_lengths", None)
        if states and getattr(self.module, "main_input_name", "") == "input_values":
            has_states = states(torch.from_numpy(lengths)).numpy() > 0
            lengths = lengths * has_states
        return [int(length) for length in lengths]

    def batch(self, samples: Sequence[Any]) -> Inputs:
        """Return the features the model reads, with the mask of the real ones."""
        rate = self.processor.sampling_rate
        waves = [resample(sample, rate) for sample in samples]
        padding: dict[str, Any] = {"padding": True}
        if self.max_length:
            padding = {"padding": "max_length", "truncation": True}
        with clear_inputs(self.processor):
            out = self.processor(
                waves,
                sampling_rate=rate,
                return_attention_mask=True,
                return_tensors="pt",
                **padding,
            )
        named = dict(out)
        if accepts(self.module, "decoder_input_ids"):
            named["decoder_input_ids"] = torch.full(
                (len(waves), 1), _decoder_start(self.module)
            )
        return Inputs(named, mask=named.get("attention_mask"))


@dataclass
class ImageEncoder(Encoder):
    """Images through a processor or a function of one; else resized, scaled to -1 … 1, grey for one channel."""

    processor: Any
    module: nn.Module
    modality = "image"

    def batch(self, samples: Sequence[Any]) -> Inputs:
        """Return pixel values [B, C, H, W]."""
        config: Any = getattr(self.module, "config", None)
        # of two towers, the one that reads images
        config = getattr(config, "vision_config", None) or config
        images = list(samples)
        if getattr(config, "num_channels", 3) == 1:
            images = list(map(_grey, images))
        if hasattr(self.processor, "model_input_names"):
            with clear_inputs(self.processor):
                pixels = self.processor(images, return_tensors="pt")["pixel_values"]
        else:
            pixels = torch.stack([self._pixels(image, config) for image in images])
        names_input = hasattr(self.module, "main_input_name")
        if names_input or accepts(self.module, "pixel_values"):
            return Inputs({"pixel_values": pixels})
        # a plain module, as timm's, whatever it calls them
        return Inputs({}, pixels)

    def _pixels(self, image: Any, config: Any) -> Tensor:
        """Return one image [C, H, W]; a function of one is such as the transforms of timm and torchvision."""
        if self.processor is None:
            height, width = np.broadcast_to(getattr(config, "image_size", 224), 2)
            if getattr(config, "num_channels", 3) > 1:
                image = image.convert("RGB")
            resized = image.resize((int(width), int(height)))
            numbers = torch.from_numpy(np.array(resized, dtype="float32"))
            made = numbers / 127.5 - 1.0
            return made.view(height, width, -1).permute(2, 0, 1)
        with clear_inputs(self.processor):
            pixels = self.processor(image)
        if not isinstance(pixels, Tensor) or pixels.ndim != 3:
            kind = type(pixels).__name__
            raise LayerscopeError(
                f"the `processor` made a {kind} of an image: give a tensor [channels, height, width]"
            )
        return pixels


def _grey(image: Any) -> Any:
    """Return an image in one channel; what is no image as it is."""
    if hasattr(image, "convert"):
        return image.convert("L")
    return image


@dataclass
class TensorEncoder(Encoder):
    """Rows of an array as they are."""

    dtype: torch.dtype

    def batch(self, samples: Sequence[Any]) -> Inputs:
        """Return the rows stacked."""
        rows = torch.stack(list(map(torch.as_tensor, samples)))
        if rows.is_floating_point():
            rows = rows.to(self.dtype)
        return Inputs({}, rows)


def encoder_for(
    modality: str,
    processor: Any,
    module: nn.Module,
    *,
    max_length: int | None = None,
    prompt: str = "",
    lack: str = "",
    chat: bool = False,
) -> Encoder:
    """Return the encoder for a corpus of this modality ("ids": of token ids), or say what is missing."""
    if modality != "ids":
        check_read(modality, processor, module)
    if modality == "tensor":
        return TensorEncoder(next(module.parameters(), torch.empty(0)).dtype)
    if modality == "image":
        return ImageEncoder(processor, module)
    if modality == "audio":
        if not hasattr(processor, "sampling_rate"):
            raise LayerscopeError(
                "an audio model as an object needs `processor`: its feature extractor"
            )
        return AudioEncoder(processor, module)
    most = positions(module)
    if max_length is None:
        default = getattr(processor, "model_max_length", None) or math.inf
        max_length = int(min(default, most, 512))
    elif max_length > most:
        raise LayerscopeError(
            f"max length {max_length} is beyond the model's {int(most)} positions: give at most that"
        )
    lack = lack or NO_TOKENIZER
    encoder = TextEncoder(processor, module, max_length, prompt, lack, chat)
    if processor is not None and modality != "ids":
        _check_room(encoder)
    return encoder


def _check_room(encoder: TextEncoder) -> None:
    """Raise where special tokens and the prompt leave no room for text."""
    taken = len(encoder.ids([""], whole=True)[0])
    most = encoder.max_length
    if taken >= most:
        what = "special tokens take"
        if encoder.prompt:
            what = "the prompt and special tokens take"
        raise LayerscopeError(
            f"{what} {taken} of at most {most} tokens and leave no room for text: raise `max_length`"
        )
