"""Self-speculative decoding: early layers draft tokens, all layers verify them, and the text stays the same."""

import inspect
import time
from collections.abc import Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from layerscope.core import LayerscopeError, Whole
from layerscope.core.option_kinds import shown
from layerscope.generation.draft_scheduler import DraftScheduler
from layerscope.generation.speculated import Speculated
from layerscope.generation.speculative_rounds import SpeculativeTexts
from layerscope.generation.split_model import CACHES, SplitModel, positions_of

HANDED_ON = {*CACHES, "attention_mask", "position_ids", "use_cache", "logits_to_keep"}
OTHER_DECODING = {
    "output_scores": False, "output_logits": False, "output_attentions": False, "output_hidden_states": False,
    "prefill_chunk_size": None,
    "num_beams": 1, "guidance_scale": 1, "penalty_alpha": 0, "constraints": None, "force_words_ids": None,
    "prompt_lookup_num_tokens": None, "assistant_early_exit": None, "dola_layers": None, "use_mtp": False,
}  # fmt: skip
"""Settings of transformers that ask for other outputs or another way to decode, and the values that do not."""
FROM_GENERATE = ("assistant_model", "streamer")
"""Arguments of `model.generate` that transformers does not pass on to a decoding of one's own."""


class SelfSpeculation:
    """Decoding for `model.generate(custom_generate=…)` in which the model's early layers draft what all layers verify.

    Greedy decoding gives the tokens of `model.generate`, and sampling draws from the same
    distribution, with the model's own logits processors and stopping criteria. Draft and
    verification share states and cache, so that no block runs twice for a token; a rejected token
    leaves nothing behind. In bfloat16 a near tie may fall the other way, as it may between decoding
    with and without a cache.

    Args:
        model: loaded language model of transformers that keeps what it has read in `DynamicCache`:
            attention of any kind. Models with recurrent layers, such as Mamba, are refused.
        draft_layer: layer that drafts, 1 … L − 1, or auto: chosen by acceptance and cost while the
            text is generated.
        draft_tokens: tokens drafted before each verification, or auto.
        fall_back: decode plainly where drafting does not pay; with False every round drafts.

    A streamer given to `model.generate` receives each token. Its `stop_strings` need a tokenizer,
    which transformers does not pass on: give `stopping_criteria=[StopStringCriteria(tokenizer,
    strings)]` instead.

    Raises:
        LayerscopeError: for a model whose blocks or cache cannot run apart, and settings that
            cannot be kept to.

    Source: Leviathan et al. 2023, Fast inference from transformers via speculative decoding;
    Elhoushi et al. 2024,
    LayerSkip; Zhang et al. 2023, Draft & Verify.

    Example:
        >>> from transformers import AutoModelForCausalLM, AutoTokenizer
        >>> model, tokenizer = (kind.from_pretrained("tiny-gpt2") for kind in (AutoModelForCausalLM, AutoTokenizer))
        >>> prompt = tokenizer("the food was", return_tensors="pt")
        >>> plain = model.generate(**prompt, max_new_tokens=8, do_sample=False)
        >>> faster = SelfSpeculation(model)
        >>> bool((plain == model.generate(**prompt, max_new_tokens=8, do_sample=False, custom_generate=faster)).all())
        True

    """

    def __init__(
        self,
        model: Any,
        draft_layer: int | str = "auto",
        draft_tokens: int | str = "auto",
        *,
        fall_back: bool = True,
    ) -> None:
        if not isinstance(model, nn.Module) or not hasattr(model, "generate"):
            raise LayerscopeError(
                f"SelfSpeculation takes a loaded language model of transformers, and this is {shown(model)}: load it "
                "with transformers.AutoModelForCausalLM.from_pretrained"
            )
        self.split = SplitModel(model)
        depth = self.split.depth
        if depth < 2:
            raise LayerscopeError(
                f"{type(model).__name__} has one block: no earlier layer can draft"
            )
        draft_layer = Whole(1, depth - 1, words=("auto",)).take(
            "draft_layer", draft_layer
        )
        draft_tokens = Whole(1, words=("auto",)).take("draft_tokens", draft_tokens)
        layer = None if draft_layer == "auto" else int(draft_layer)
        tokens = None if draft_tokens == "auto" else int(draft_tokens)
        self._new_scheduler = partial(
            DraftScheduler,
            depth,
            layer,
            tokens,
            always=not fall_back,
            head=self.split.head_work,
        )
        """Returns a scheduler that knows nothing yet of the texts and the machine."""
        self.scheduler = self._new_scheduler()
        self.report = Speculated()
        self.split.check(self.scheduler.layers[0])

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
        batch = len(input_ids)
        kept_back = withheld(self)
        streamer = kept_back.pop("streamer", None)
        options = model_kwargs | kept_back
        check_call("self-speculation", model, self.split, generation_config, options)
        if streamer is not None and batch > 1:
            raise LayerscopeError(
                f"a streamer takes one text, and there are {batch}: leave `streamer` out"
            )
        started = time.perf_counter()
        self.report = Speculated()
        self.scheduler = self._new_scheduler()
        mask = model_kwargs.get("attention_mask")
        if mask is None:
            mask = torch.ones_like(input_ids)
        texts = SpeculativeTexts(
            self.split,
            self.scheduler,
            self.report,
            logits_processor,
            stopping_criteria,
            generation_config.do_sample,
            streamer,
        )
        padding = int((mask == 0).all(0).sum())
        continued = texts.generate(input_ids[:, padding:], mask[:, padding:], input_ids)
        if streamer is not None:
            streamer.end()
        self.report.seconds = time.perf_counter() - started
        pad = getattr(generation_config, "_pad_token_tensor", None)
        ids = pad_sequence(continued, batch_first=True, padding_value=int(pad or 0))
        return as_asked(ids, generation_config)


def withheld(decoding: Any) -> dict[str, Any]:
    """Return the arguments that the call of `generate` which decodes by this object keeps to itself."""
    frame = inspect.currentframe()
    while frame is not None and frame.f_locals.get("custom_generate") is not decoding:
        frame = frame.f_back
    if frame is None:
        return {}
    return {name: frame.f_locals.get(name) for name in FROM_GENERATE}


def as_asked(ids: Tensor, config: Any) -> Any:
    """Return token ids as `generate` does, in its record where that is wanted."""
    if not config.return_dict_in_generate:
        return ids
    from transformers.generation import GenerateDecoderOnlyOutput

    return GenerateDecoderOnlyOutput(sequences=ids)


def check_call(
    what: str, model: Any, split: SplitModel, config: Any, options: dict[str, Any]
) -> None:
    """Raise for what a decoding with split blocks cannot keep to; `what` names it."""
    if model is not split.module:
        raise LayerscopeError(
            f"this is another model than {what} was made for: make it again with this one"
        )
    refused = [
        *_other_decoding(config),
        *_other_inputs(options),
        *_other_caches(model, options),
    ]
    if refused:
        raise LayerscopeError(
            f"{what} does not work with {' or '.join(refused)}: leave it out, or decode plainly"
        )


def _other_inputs(options: dict[str, Any]) -> Iterator[str]:
    """Yield the arguments of a call that change what is read."""
    for name in sorted({*options} - HANDED_ON - {"synced_gpus"}):
        if options[name] is not None and options[name] is not False:
            yield f"`{name}`"
    positions = options.get("position_ids")
    mask = options.get("attention_mask")
    if mask is not None and not bool(mask[:, -1].all()):
        yield "prompts padded at the right (pad at the left)"
    if positions is not None:
        if mask is None:
            mask = torch.ones_like(positions)
        real = mask.bool()
        if not torch.equal(positions[real], positions_of(mask)[real]):
            yield "`position_ids` of your own"


def _other_caches(model: Any, options: dict[str, Any]) -> Iterator[str]:
    """Yield what keeps a call from a cache that can be cut back."""
    # MPT's own is False, which does not change its text
    default = getattr(model.generation_config, "use_cache", None)
    if options.get("use_cache") is False and default is not False:
        yield "`use_cache=False`"
    for name in CACHES:
        past = options.get(name)
        if past is None:
            continue
        kind = type(past).__name__
        if kind != "DynamicCache":
            yield f"a {kind}"
        elif any(each.is_initialized for each in past.layers):
            yield "a cache that is filled already"
    if getattr(model.config, "is_encoder_decoder", False):
        yield "an encoder-decoder"


def _other_decoding(config: Any) -> Iterator[str]:
    """Yield the settings of a generation config that ask for outputs or a search of another kind."""
    for name, harmless in OTHER_DECODING.items():
        value = getattr(config, name, None)
        if value not in (None, harmless):
            yield f"`{name}={value}`"
