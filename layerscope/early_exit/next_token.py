"""Next tokens from an early layer that is sure of them: decoding, and the evidence that few differ.

Layer 2 of 4 may be left at a confidence of 0.9 or more; "bad" is not written:

    blocks 1, 2 and the head   the → food 0.95   food → was 0.97   was → bad 0.4
    blocks 3, 4 and the head                                       the, food, was → good

The late blocks read the states of tokens that left as soon as a later token needs them, all at once, so
that every state is that of plain decoding. Only the tokens that were written may differ.

Tokens of one text are alike, and no independent evidence. So one token is drawn from each text, and the
texts, drawn independently, have the guarantee that samples of a classifier have: it is on the share of tokens
that differ from the full model's after the same beginning, every text counting alike.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from layerscope.core import LayerscopeError, Number, Reporter, Whole
from layerscope.early_exit.predictions import Recorded, last_real, sureness
from layerscope.generation import Speculated
from layerscope.generation.speculation import as_asked, check_call, withheld
from layerscope.generation.split_model import SplitModel
from layerscope.models import LayeredModel, TextEncoder, batches_of


class NextTokenExits:
    """Greedy decoding for `model.generate(custom_generate=…)` that takes a token from a layer that is sure of it.

    In a batch all texts leave, or none. `report` counts the tokens after the first as `drafted`,
    and those that left as `accepted`. Raises `LayerscopeError` for a model whose blocks or cache
    cannot run apart, a layer that is not before the last, sampling, beams and a streamer.

    Source: Schuster et al. 2022, Confident adaptive language modeling, whose copied states are
    replaced by late blocks that run when they are needed.

    Example:
        >>> from transformers import AutoModelForCausalLM, AutoTokenizer
        >>> from layerscope.early_exit import NextTokenExits
        >>> model, tokenizer = (kind.from_pretrained("tiny-gpt2") for kind in (AutoModelForCausalLM, AutoTokenizer))
        >>> exits = NextTokenExits(model, layer=2, threshold=0.0)
        >>> prompt = tokenizer("the food was", return_tensors="pt")
        >>> model.generate(**prompt, max_new_tokens=8, do_sample=False, custom_generate=exits).shape
        torch.Size([1, 11])
        >>> exits.report.accepted, exits.report.drafted  # whatever it says, layer 2 is sure enough
        (7, 7)

    """

    def __init__(self, model: Any, layer: int, threshold: float) -> None:
        self.split = SplitModel(model)
        self.layer = int(Whole(1, self.split.depth - 1).take("layer", layer))
        self.threshold = float(Number(0).take("threshold", threshold))
        self.report = Speculated()
        self.split.check(layer)

    @torch.no_grad()
    def __call__(
        self,
        model: Any,
        input_ids: Tensor,
        logits_processor: Any,
        stopping_criteria: Any,
        generation_config: Any,
        **model_kwargs: Any,
    ) -> Any:
        """Return prompts and continuations [B, T], as `generate` does."""
        options = model_kwargs | withheld(self)
        check_call(
            "an exit for next tokens", model, self.split, generation_config, options
        )
        if generation_config.do_sample:
            raise LayerscopeError(
                "next-token exits take the likeliest token: give `do_sample=False`"
            )
        split = self.split
        report = Speculated(self.layer)
        pad = generation_config.pad_token_id or 0
        mask = model_kwargs.get("attention_mask")
        if mask is None:
            mask = torch.ones_like(input_ids)
        ids = input_ids
        ended = torch.zeros_like(input_ids[:, 0], dtype=torch.bool)
        waiting = list[Tensor]()
        states = list[Tensor]()
        with split.open():
            split.start(mask)
            logits = split.prompts(ids)[:, -1]
            while True:
                scores = logits_processor(ids, logits)
                token = scores.argmax(-1, keepdim=True)
                token = token.masked_fill(ended[:, None], pad)
                ids = torch.cat([ids, token], 1)
                ended = ended | stopping_criteria(ids, None)
                report.tokens += 1
                if bool(ended.all()):
                    break
                logits = split.early(token, self.layer)
                waiting.append(token)
                states.append(split.state)
                sure = sureness(logits) >= self.threshold
                leaves = bool((sure | ended.cpu()).all())
                report.drafted += 1
                report.accepted += leaves
                if not leaves:
                    tokens = torch.cat(waiting, 1)
                    late = split.late(tokens, self.layer, torch.cat(states, 1))
                    logits = late[:, -1]
                    split.cut(torch.full_like(token[:, 0], len(waiting)), len(waiting))
                    waiting.clear()
                    states.clear()
        self.report = report
        return as_asked(ids, generation_config)


@torch.inference_mode()
def record_tokens(
    model: LayeredModel,
    rows: Sequence[Sequence[int]],
    prefix: int,
    new: int,
    seed: int,
    reporter: Reporter,
) -> Recorded:
    """Return what every layer says of one token of each text, drawn from the `new` ones after its `prefix`."""
    assert model.lens is not None and isinstance(model.encoder, TextEncoder)
    draws = np.random.default_rng(seed)
    beginnings = []
    for row in rows:
        ends = min(len(row), prefix + new)
        beginnings.append(row[: int(draws.integers(prefix, ends))])
    scores = np.zeros((len(beginnings), model.depth))
    predictions = np.zeros(scores.shape, dtype=np.int64)
    states: list[Tensor] = []
    bar = reporter.bar("every layer", len(beginnings), "texts")
    with bar as advance:
        for batch in batches_of(model, [*map(len, beginnings)]):
            texts = [beginnings[i] for i in batch]
            inputs = model.encoder.batch_ids(texts).to(model.device)
            assert inputs.mask is not None
            last_tokens = (
                torch.arange(len(batch), device=model.device),
                last_real(inputs.mask) - 1,
            )
            states.clear()

            def keep(
                layer: int, site: str, tokens: Tensor, at: Any = last_tokens
            ) -> None:
                if site == "raw" and layer:
                    states.append(tokens[at])

            model.run(inputs, keep)
            # states are those of layer 1 of all texts, then of layer 2, …
            sure = []
            likeliest = []
            for logits in model.lens.token_logits(torch.cat(states), inputs):
                sure.append(sureness(logits))
                likeliest.append(logits.argmax(-1).cpu())
            scores[batch] = torch.cat(sure).view(model.depth, -1).T
            predictions[batch] = torch.cat(likeliest).view(model.depth, -1).T
            advance(len(batch))
    return Recorded(model.lens.classes, scores, predictions)
