"""Texts by self-speculation, as the verb `generate` asks for them."""

from collections.abc import Sequence
from dataclasses import fields

import torch

from layerscope.core.progress import Reporter
from layerscope.generation.decoder import ends_of
from layerscope.generation.sampling import Continued, Sampling
from layerscope.generation.speculation import SelfSpeculation, Speculated
from layerscope.models import LayeredModel
from layerscope.models.capture import evaluating


class Drafts:
    """Continues prompts by self-speculation; `report` sums up what was drafted for all of them."""

    def __init__(self, model: LayeredModel, layer: int | str, tokens: int | str, threshold: float | None) -> None:
        self.model, self.report = model, Speculated()
        self.decoding = SelfSpeculation(model.module, layer, tokens, threshold, fall_back="auto" in (layer, tokens))
        self.decoding.scored = True

    @property
    def summary(self) -> str:
        """What was drafted, in a line."""
        return f"{self.report}; {self.report.tokens / self.report.seconds:,.0f} tokens per second"

    def continuations(self, prompts: Sequence[list[int]], sampling: Sampling, reporter: Reporter) -> list[Continued]:
        """Return what continues each prompt."""
        from transformers import GenerationConfig, LogitsProcessorList, StoppingCriteriaList, generation as hf

        sample, processors = sampling.top_p is not None, LogitsProcessorList()
        if sample:
            processors += [hf.TemperatureLogitsWarper(sampling.temperature), hf.TopPLogitsWarper(sampling.top_p)]
        config = GenerationConfig(do_sample=sample)
        ends, found = list(ends_of(self.model.module)), dict[int, Continued]()
        bar = reporter.bar("self-speculation", len(prompts), "texts")
        with evaluating(self.model.module), torch.random.fork_rng(), bar as advance:
            torch.manual_seed(sampling.seed)
            for batch in sampling.batches([len(prompt) for prompt in prompts], not self.model.batching):
                longest = max(len(prompts[i]) for i in batch)
                pads = [longest - len(prompts[i]) for i in batch]
                ids = torch.tensor([[0] * pad + prompts[i] for i, pad in zip(batch, pads, strict=True)])
                mask = torch.arange(longest)[None] >= torch.tensor(pads)[:, None]
                criteria = StoppingCriteriaList([hf.MaxLengthCriteria(longest + sampling.max_new_tokens)])
                criteria += [hf.EosTokenCriteria(ends)] if ends else []
                ids, mask = ids.to(self.model.device), mask.long().to(self.model.device)
                made = self.decoding(self.model.module, ids, processors, criteria, config, attention_mask=mask)
                for i, row, values in zip(batch, made, self.decoding.log_probs, strict=True):
                    found[i] = Continued(tuple(row[longest : longest + len(values)].tolist()), tuple(values))
                self._add(self.decoding.report)
                advance(len(batch))
        return [found[i] for i in range(len(prompts))]

    def _add(self, report: Speculated) -> None:
        for each in fields(report):
            old, new = getattr(self.report, each.name), getattr(report, each.name)
            latest = each.name in ("layer", "draft_tokens", "expected")
            setattr(self.report, each.name, new if latest else old + new)
