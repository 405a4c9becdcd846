"""Self-speculative decoding: early layers draft tokens, all layers verify them, and the text stays the same."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from layerscope.core.errors import LayerscopeError
from layerscope.generation.halves import Halves
from layerscope.generation.pace import Pace
from layerscope.models.forward import accepts

SURVEY = 32
"""Last tokens of a prompt at which all layers are compared."""
HANDED_ON = {"attention_mask", "position_ids", "past_key_values", "cache_params", "use_cache", "logits_to_keep"}
REFUSED = ("output_scores", "output_logits", "output_attentions", "output_hidden_states", "prefill_chunk_size")


@dataclass
class Speculated:
    """What a call drafted: `accepted` of `drafted` tokens in `rounds`, `tokens` new in all, `rerun` twice.

    `layer` and `draft_tokens` are those of the last round, 0 tokens where plain decoding was faster; `expected` is the
    speed over plain decoding that acceptance and timings foretell.
    """

    layer: int = 0
    draft_tokens: int = 0
    rounds: int = 0
    drafted: int = 0
    accepted: int = 0
    tokens: int = 0
    rerun: int = 0
    plain: int = 0
    expected: float = 1.0
    seconds: float = 0.0

    @property
    def acceptance(self) -> float:
        """Share of drafted tokens that were accepted, NaN where none was drafted."""
        return self.accepted / self.drafted if self.drafted else float("nan")

    def __str__(self) -> str:
        drafted = f"{self.accepted} of {self.drafted} draft tokens accepted ({self.acceptance:.0%})"
        if 2 * self.plain > self.tokens:
            return f"drafts do not pay here: {self.plain} of {self.tokens} tokens were decoded plainly"
        return f"drafts by layer {self.layer}: {drafted}"


class SelfSpeculation:
    """Decoding for `model.generate(custom_generate=…)` in which the model's early layers draft what all layers verify.

    Greedy decoding gives the tokens of `model.generate`, and sampling draws from the same distribution, with the
    model's own logits processors and stopping criteria. Draft and verification share states and cache, so that no
    block runs twice for a token; a rejected token leaves nothing behind. Recurrent layers go back to a copy, and
    `report.rerun` counts the tokens that they read again.

    Args:
        model: transformers causal language model.
        draft_layer: layer that drafts, 1 … L − 1, or auto: chosen by acceptance and cost while the text is generated.
        draft_tokens: tokens drafted before each verification, or auto.
        fall_back: decode plainly where drafting does not pay; with False every round drafts.
        streamer: streamer of transformers, which receives each token (transformers does not pass its own on).

    Raises:
        LayerscopeError: for a model whose blocks or cache cannot run apart, and settings that cannot be kept to.

    Source: Leviathan et al. 2023, Fast inference from transformers via speculative decoding; Elhoushi et al. 2024,
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
        self, model: Any, draft_layer: int | str = "auto", draft_tokens: int | str = "auto", *, fall_back: bool = True,
        streamer: Any = None,
    ) -> None:  # fmt: skip
        self.halves, self.fall_back, self.streamer = Halves(model), fall_back, streamer
        depth = self.halves.depth
        if depth < 2 or (draft_layer != "auto" and not 1 <= int(draft_layer) < depth):
            raise LayerscopeError(f"layer {draft_layer} cannot draft: give one of 1 … {depth - 1} as `draft_layer`")
        if draft_tokens != "auto" and int(draft_tokens) < 1:
            raise LayerscopeError(f"`draft_tokens={draft_tokens}` is below 1")
        self.layer = None if draft_layer == "auto" else int(draft_layer)
        self.tokens = None if draft_tokens == "auto" else int(draft_tokens)
        self.pace, self.report = self._pace(), Speculated()
        self.scored, self.log_probs = False, list[list[float]]()
        """Whether to keep the log-probabilities of new tokens by the model, before temperature and nucleus."""

    def _pace(self) -> Pace:
        return Pace(self.halves.depth, self.layer, self.tokens, always=not self.fall_back)

    @torch.no_grad()
    def __call__(
        self, model: Any, input_ids: Tensor, logits_processor: Any, stopping_criteria: Any, generation_config: Any,
        **model_kwargs: Any,
    ) -> Any:  # fmt: skip
        """Return prompts and continuations [B, T], as `generate` does."""
        batch, streamer = len(input_ids), self.streamer
        for name in ("streamer", "synced_gpus"):
            model_kwargs.pop(name, None)
        _check(model, self.halves, generation_config, model_kwargs)
        if streamer is not None:
            if batch > 1:
                raise LayerscopeError(f"a streamer takes one text, and there are {batch}: leave `streamer` out")
            streamer.put(input_ids.cpu())
        started = time.perf_counter()
        self.report, self.pace, self.log_probs = Speculated(), self._pace(), []
        mask = model_kwargs.get("attention_mask")
        mask = torch.ones_like(input_ids) if mask is None else mask
        model_kwargs |= {"use_cache": True, "attention_mask": None if bool(mask.all()) else mask}
        if model_kwargs.get("position_ids") is None and accepts(model, "position_ids"):
            model_kwargs["position_ids"] = (mask.long().cumsum(1) - 1).clamp(min=0)
        rows = [slice(None)]
        if self.halves.start(mask[:1]).layers and self.halves.recurrent and batch > 1:
            rows = [slice(i, i + 1) for i in range(batch)]  # recurrent states cannot be cut back row by row
        made: list[Tensor] = []
        for part in rows:
            real = slice(int((mask[part] == 0).all(0).sum()), None)
            settings = logits_processor, stopping_criteria, generation_config, streamer, part.start or 0, batch
            found = _Texts(self, model, *settings)
            cut = {name: each[part, real] if name in ("attention_mask", "position_ids") and each is not None else each
                   for name, each in model_kwargs.items()}  # fmt: skip
            made += found.generate(input_ids[part, real], mask[part, real], cut, input_ids[part])
            self.log_probs += found.log_probs
        if streamer is not None:
            streamer.end()
        report = self.report
        report.seconds = time.perf_counter() - started
        if report.rounds and report.plain:
            report.expected = self.pace.speedup(report.layer, report.draft_tokens + 1)
        pad = getattr(generation_config, "_pad_token_tensor", None)
        ids = torch.nn.utils.rnn.pad_sequence(made, batch_first=True, padding_value=0 if pad is None else int(pad))
        if generation_config.return_dict_in_generate:
            from transformers.generation import GenerateDecoderOnlyOutput

            return GenerateDecoderOnlyOutput(sequences=ids)
        return ids


class _Texts:
    """The texts of one batch while they are generated."""

    def __init__(
        self, owner: SelfSpeculation, model: Any, processors: Any, criteria: Any, config: Any, streamer: Any,
        offset: int, batch: int,
    ) -> None:  # fmt: skip
        from transformers.generation.stopping_criteria import EosTokenCriteria, MaxLengthCriteria

        self.halves, self.pace, self.report = owner.halves, owner.pace, owner.report
        self.model, self.processors, self.config, self.streamer = model, processors, config, streamer
        self.offset, self.batch = offset, batch
        self.sample, self.scored = config.do_sample, owner.scored
        plain = (EosTokenCriteria, MaxLengthCriteria)
        self.criteria = [each for each in criteria if not isinstance(each, plain)]
        self.ends = {
            int(i) for each in criteria if isinstance(each, EosTokenCriteria) for i in each.eos_token_id.view(-1)
        }
        self.longest = min(
            [each.max_length for each in criteria if isinstance(each, MaxLengthCriteria)], default=1 << 60
        )

    def generate(self, ids: Tensor, mask: Tensor, options: dict[str, Any], whole: Tensor) -> list[Tensor]:
        """Return each prompt with its continuation."""
        halves, last = self.halves, ids[:, -1:]
        self.texts, self.left, self.log_probs = [*whole], [*range(len(ids))], [list[float]() for _ in ids]
        with halves.open():
            halves.keep, halves.kept = self.pace.layers, {}
            options = options | {halves.cache_name: halves.start(mask)}
            logits = self.model._prefill(ids, self.config, options).logits[:, -1:].float()
            self._survey(mask[:, -SURVEY:].bool())
            halves.keep = ()
            pending = self._written(logits, last, *self._accepted(logits, last, []))
            while self.left:
                pending = self._round(pending)
        return self.texts

    def _survey(self, real: Tensor) -> None:
        """Learn how often each layer agrees with the last one on the prompts' last tokens."""
        last = self.halves.read(self.halves.state[:, -SURVEY:][real]).argmax(-1)
        for layer, states in self.halves.kept.items():
            agree = self.halves.read(states[-1][:, -SURVEY:][real]).argmax(-1) == last
            self.pace.observe(layer, agree.tolist())

    def _round(self, pending: Tensor) -> Tensor:
        """Draft and verify; return the next token of each text that goes on, [B, 1]."""
        halves, pace, report = self.halves, self.pace, self.report
        layer, new = pace.next()
        new = max(1, min(new, min(self.longest - len(self.texts[row]) for row in self.left)))
        begun = time.perf_counter()
        if new == 1:
            logits = halves.all(pending)
            _wait(logits)
            pace.costs.add(halves.depth, 1, time.perf_counter() - begun)
            report.plain += len(self.left)
            return self._kept(logits, pending, [])
        before = halves.snapshot() if halves.recurrent else None
        drawn, states, laws = [pending], list[Tensor](), list[Tensor]()
        for step in range(new):
            logits_early = halves.early(drawn[-1], layer, head=step < new - 1)
            states.append(halves.state)
            if logits_early is not None:
                scores = self._processed(logits_early[:, None], torch.cat(drawn, 1))[:, 0]
                if self.sample:
                    laws.append(scores.softmax(-1))
                drawn.append(torch.multinomial(laws[-1], 1) if self.sample else scores.argmax(-1, keepdim=True))
        tokens = torch.cat(drawn, 1)
        _wait(tokens)
        drafted = time.perf_counter()
        logits = halves.late(tokens, layer, torch.cat(states, 1))
        _wait(logits)
        pace.costs.add(layer, 1, (drafted - begun) / new)
        pace.costs.add(halves.depth - layer, new, time.perf_counter() - drafted)
        report.layer, report.draft_tokens, report.rounds = layer, new - 1, report.rounds + 1
        return self._kept(logits, tokens, laws, before)

    def _kept(self, logits: Tensor, tokens: Tensor, laws: Sequence[Tensor], before: Any = None) -> Tensor:
        """Take the draft tokens that all layers agree with and one of their own, and cut the rest back."""
        good, following = self._accepted(logits, tokens, laws)
        new, report = tokens.shape[1], self.report
        if new > 1:
            for number in good.tolist():
                self.pace.observe(report.layer, [True] * number + [False] * (number < new - 1))
            report.drafted, report.accepted = report.drafted + (new - 1) * len(good), report.accepted + int(good.sum())
        kept = good + 1
        if before is not None and int(kept) < new:  # recurrent states cannot be cut, and are read again from a copy
            self.halves.restore(before)
            self.halves.cut(torch.zeros_like(kept), new)
            new = int(kept)
            self.halves.all(tokens[:, :new])
            report.rerun += new
        self.halves.cut(kept, new)
        return self._written(logits, tokens, good, following)

    def _accepted(self, logits: Tensor, tokens: Tensor, laws: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
        """Return how many draft tokens of each text stay, [B], and the token that follows them, [B, 1]."""
        if bool(logits[..., 0].isnan().any()):  # one NaN makes NaN of all
            raise LayerscopeError("the model gives NaN: check its weights, or try another `dtype`")
        scores = self._processed(logits, tokens)
        if self.sample:
            return _sampled(scores.softmax(-1), tokens, laws)
        targets = scores.argmax(-1)
        good = (targets[:, :-1] == tokens[:, 1:]).long().cumprod(1).sum(1)
        return good, targets.gather(1, good[:, None])

    def _written(self, logits: Tensor, tokens: Tensor, good: Tensor, following: Tensor) -> Tensor:
        """Append what was accepted to each text, and go on with those that have not ended."""
        fresh = torch.cat([tokens[:, 1:], following], 1).scatter(1, good[:, None], following)
        scored = fresh if not self.scored else logits.log_softmax(-1).gather(2, fresh[..., None])[..., 0]
        going = []
        for i, (row, number) in enumerate(zip(list(self.left), (good + 1).tolist(), strict=True)):
            before = len(self.texts[row])
            if self._extended(row, fresh[i, :number].tolist()):
                going.append(i)
            if self.scored:
                self.log_probs[row] += scored[i, : len(self.texts[row]) - before].tolist()
        if len(going) < len(self.left):
            self.left = [self.left[i] for i in going]
            rows = torch.tensor(going, dtype=torch.long, device=following.device)
            following = following[rows]
            if self.left:
                self.halves.select(rows)
        return following

    def _extended(self, row: int, fresh: Sequence[int]) -> bool:
        """Append tokens to a text up to its end, and return whether it goes on."""
        text = self.texts[row]
        for token in fresh:
            text = torch.cat([text, text.new_tensor([token])])
            self.report.tokens += 1
            if self.streamer is not None:
                self.streamer.put(text[-1:].cpu())
            over = token in self.ends or len(text) >= self.longest
            if over or any(bool(each(text[None], None).any()) for each in self.criteria):
                self.texts[row] = text
                return False
        self.texts[row] = text
        return True

    def _processed(self, logits: Tensor, tokens: Tensor) -> Tensor:
        """Return the scores [B, n, V] that the model's logits processors make of the logits after tokens [B, m].

        The first token is the last one of each text, and the logits are those after the last n tokens. Each text is
        processed as it would be without drafts.
        """
        if not self.processors:
            return logits
        found, first = torch.empty_like(logits), self.offset
        for length in {len(self.texts[row]) for row in self.left}:
            rows = [i for i, row in enumerate(self.left) if len(self.texts[row]) == length]
            own = [first + self.left[i] for i in rows]
            for at in range(-logits.shape[1], 0):
                drafts = tokens[rows, 1 : tokens.shape[1] + at + 1]
                # a processor sees the whole batch, as some keep what is theirs by row; other rows are as good as any
                ids = tokens.new_zeros(self.batch, length + drafts.shape[1])
                ids[own] = torch.cat([torch.stack([self.texts[self.left[i]] for i in rows]), drafts], 1)
                scores = logits.new_zeros(self.batch, logits.shape[2])
                scores[own] = logits[rows, at]
                found[rows, at] = self.processors(ids, scores)[own]
        return found


def _sampled(law: Tensor, tokens: Tensor, laws: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
    """Accept draft tokens so that what is drawn follows `law` [B, n, V]; return how many, [B], and one more, [B, 1].

    A token of the draft's law q is accepted with probability min(1, p / q), and the first that is rejected is drawn
    again from what q lacks of p (Leviathan et al. 2023, algorithm 1).
    """
    q = torch.stack([*laws, torch.zeros_like(law[:, 0])], 1)
    drafted = tokens[:, 1:, None]
    chance = law[:, :-1].gather(2, drafted) / q[:, :-1].gather(2, drafted)
    good = (torch.rand_like(chance) < chance)[..., 0].long().cumprod(1).sum(1)
    at = good[:, None, None].expand(-1, 1, law.shape[2])
    rest = (law.gather(1, at) - q.gather(1, at))[:, 0].clamp(min=0)
    own = law.gather(1, at)[:, 0]  # rounding may leave nothing where both laws are the same
    return good, torch.multinomial(torch.where(rest.sum(-1, keepdim=True) > 0, rest, own), 1)


def _wait(tensor: Tensor) -> None:
    if tensor.device.type != "cpu":
        torch.accelerator.synchronize(tensor.device)


def _check(model: Any, halves: Halves, config: Any, options: dict[str, Any]) -> None:
    """Raise for what self-speculation cannot keep to."""
    if model is not halves.module:
        raise LayerscopeError("this is another model than self-speculation was made for: make it again with this one")
    asked = [f"`{name}=True`" for name in REFUSED if getattr(config, name, None)]
    asked += [f"`{name}={value}`" for name, least in (("num_beams", 1), ("guidance_scale", 1))
              if (value := getattr(config, name, None)) not in (None, least)]  # fmt: skip
    asked += [f"`{name}`" for name, value in options.items() if name not in HANDED_ON and value not in (None, False)]
    if options.get("use_cache") is False:
        asked.append("`use_cache=False`")
    past = next((options[name] for name in ("past_key_values", "cache_params") if options.get(name) is not None), None)
    if past is not None and type(past).__name__ != "DynamicCache":
        asked.append(f"a {type(past).__name__}")
    elif past is not None and any(getattr(each, "is_initialized", False) for each in past.layers):
        asked.append("a cache that is filled already")
    if getattr(model.config, "is_encoder_decoder", False):
        asked.append("an encoder-decoder")
    if asked:
        raise LayerscopeError(
            f"self-speculation does not work with {' or '.join(asked)}: leave it out, or decode plainly"
        )
