"""A language model as lm-evaluation-harness sees one, with answers of every layer from one forward."""

import copy
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import log_softmax
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from layerscope.core import LayerscopeError, Reporter, Team
from layerscope.core.errors import needs
from layerscope.evaluation.judging import quiet
from layerscope.inputs.samples import hash_of
from layerscope.models import Inputs, LayeredModel, batches_of, evaluating
from layerscope.models.encode import padded

with needs("lm-eval", "tasks of language models need lm-evaluation-harness"):
    from lm_eval.models.huggingface import HFLM

Answer = tuple[Any, Any]
"""Log-likelihoods of a continuation and whether it is greedy, each by layer [layers]."""


class LayerLM(HFLM):  # type: ignore[misc]  # lm_eval is not typed
    """A language model for lm-evaluation-harness that scores the requests of one task at every layer in one pass.

    Tokens and windows are those of the harness's backend `hf`. A layer's states go through final
    norm and head, as in the model truncated there. The harness gets the answers of `layer`: set
    another and evaluate again, and no model runs. Raises `LayerscopeError` for a model that is not
    a causal language model of transformers.
    """

    def __init__(self, model: LayeredModel, layers: Sequence[int]) -> None:
        tokenizer = model.loaded.processor_for("text")
        module = model.module
        is_usable = isinstance(module, PreTrainedModel)
        is_usable = is_usable and isinstance(tokenizer, PreTrainedTokenizerBase)
        if not (is_usable and model.is_language_model):
            raise LayerscopeError(
                f"{model.name} is not a causal language model of transformers with a tokenizer"
            )
        self.layers = tuple(layers)
        self.layered = model
        self.layer = layers[-1]
        self.reporter = Reporter()
        self.team = Team()
        self.answers: list[Answer] = []
        with evaluating(module), quiet():  # the harness warns of every model in memory
            tokenizer = copy.deepcopy(tokenizer)  # it is given a token for padding
            super().__init__(module, "causal", tokenizer=tokenizer, batch_size=1)

    def loglikelihood(
        self, requests: Sequence[Any], disable_tqdm: bool = False
    ) -> list[tuple[float, bool]]:
        """Return for each request the log-likelihood of its continuation at `layer`, and whether it is greedy."""
        if not self.answers:
            self.answers = super().loglikelihood(requests, disable_tqdm=disable_tqdm)
        column = self.layers.index(self.layer)
        return [
            (float(logs[column]), bool(greedy[column])) for logs, greedy in self.answers
        ]

    def _loglikelihood_tokens(
        self,
        requests: Sequence[Any],
        disable_tqdm: bool = False,
        override_bs: int | None = None,
    ) -> list[Answer]:
        """Return the answers to (texts, context ids, continuation ids)."""
        # several may read the same row of tokens
        requests_of: dict[tuple[int, ...], list[int]] = {}
        for i, (_, context, continuation) in enumerate(requests):
            n = len(continuation)
            assert 0 < n <= self.max_length, f"a continuation has {n} tokens"
            row = tuple((context + continuation)[-self.max_length - 1 : -1])
            requests_of.setdefault(row, []).append(i)
        rows = list(requests_of)

        def answer(batch: list[int]) -> Any:
            spans = []
            for place, n in enumerate(batch):
                for i in requests_of[rows[n]]:
                    _, _, continuation = requests[i]
                    spans.append((place, continuation))
            return self._batch([rows[n] for n in batch], spans)

        batches = batches_of(self.layered, [*map(len, rows)])
        about = f"answers to {hash_of(requests)}"
        answers = self.team.each(answer, batches, about)
        table = np.empty((2, len(requests), len(self.layers)))
        with (
            self.reporter.bar("every layer", len(rows), "texts") as advance,
            evaluating(self.layered.module),
        ):
            for batch, of_batch in zip(batches, answers, strict=True):
                numbers = [i for n in batch for i in requests_of[rows[n]]]
                table[:, numbers] = of_batch
                advance(len(batch))
        broken = np.isnan(table[0]).any(0)
        if broken.any():
            layer = self.layers[int(broken.argmax())]
            raise LayerscopeError(
                f"{self.layered.name} gives NaN at layer {layer}: try `dtype='float32'`, or leave that task out"
            )
        return list(zip(*table, strict=True))

    @torch.inference_mode()
    def _batch(
        self, rows: Sequence[Sequence[int]], spans: Sequence[tuple[int, list[int]]]
    ) -> Any:
        """Return answers [2, n, layers] of continuations, each after the row of that number."""
        device = self.layered.device
        ids = padded(rows, 0).to(device)
        lengths = [len(continuation) for _, continuation in spans]
        tokens = [token for _, continuation in spans for token in continuation]
        truths = torch.tensor(tokens, device=device)
        width = ids.shape[1]
        ends = [row * width + len(rows[row]) for row, _ in spans]
        places = zip(ends, lengths, strict=True)
        positions = [torch.arange(end - n, end) for end, n in places]
        read = torch.cat(positions).to(device)
        answers = []

        def visit(layer: int, site: str, states: Tensor) -> None:
            if site != "raw" or layer not in self.layers:
                return
            ending = states.flatten(0, 1)[read]
            logs, greedy = self._read(ending, truths)
            sums = [float(part.sum()) for part in torch.split(logs, lengths)]
            alls = [float(part.all()) for part in torch.split(greedy, lengths)]
            answers.append([sums, alls])

        # without a mask, as the harness does: a causal model does not see what follows
        self.layered.run(Inputs({"input_ids": ids}), visit, self.layers[-1])
        return np.array(answers).transpose(1, 2, 0)

    def _read(self, states: Tensor, tokens: Tensor) -> tuple[Tensor, Tensor]:
        """Return the log-probability [n] of each token after a state [n, D], and whether it is the likeliest."""
        logs = []
        greedy = []
        lens = self.layered.lens
        assert lens is not None
        for logits in lens.token_logits(states, Inputs({"input_ids": tokens})):
            truths = tokens[: len(logits)]
            tokens = tokens[len(logits) :]
            log_p = log_softmax(logits.float(), -1)
            of_truths = log_p.gather(1, truths[:, None])
            logs.append(of_truths[:, 0].cpu())
            greedy.append((log_p.argmax(-1) == truths).cpu())
        return torch.cat(logs), torch.cat(greedy)
