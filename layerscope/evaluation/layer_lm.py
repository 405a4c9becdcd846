"""A language model as lm-evaluation-harness sees one, with answers of every layer from one forward."""

import copy
import hashlib
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, Unpack

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import log_softmax
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from layerscope.core.errors import LayerscopeError, needs
from layerscope.core.options import Loading, checked
from layerscope.core.processes import Team
from layerscope.core.progress import reporting
from layerscope.evaluation.judging import quiet
from layerscope.evaluation.options import LanguageModelOptions
from layerscope.inputs.samples import key_of
from layerscope.models import LayeredModel, find_layers, load
from layerscope.models.batching import batches_of
from layerscope.models.capture import evaluating
from layerscope.models.encode import padded
from layerscope.models.forward import Inputs, forward
from layerscope.models.inspection import made_up_samples
from layerscope.models.lens import logits_of

with needs("lm-eval", "tasks of language models need lm-evaluation-harness"):
    from lm_eval.api.registry import register_model
    from lm_eval.models.huggingface import HFLM

HF_OPTIONS = ("max_length", "add_bos_token", "prefix_token_id", "softmax_dtype")
AT_ONCE = 1 << 30
"""Windows of running text that the harness hands over at once; how they are batched for the model is ours."""


def language_model(
    pretrained: Any, processor: Any = None, **loading: Unpack[Loading]
) -> LayeredModel:
    """Load a model and find its layers."""
    options = checked(language_model, locals(), LanguageModelOptions)
    loaded = load(pretrained, options.load, processor)
    return find_layers(loaded, *made_up_samples(loaded), options.override)


@register_model("layerscope")
class LayerLM(HFLM):  # type: ignore[misc]  # lm_eval is not typed
    """A language model for lm-evaluation-harness that scores each request at every layer in one forward pass.

    `pretrained` is what `evaluate` takes as a model, `processor` its tokenizer where it is an
    object. `options` say how it is loaded, as for `evaluate`, or are `max_length`, `add_bos_token`,
    `prefix_token_id` and `softmax_dtype` of the harness's backend `hf`, whose tokens and windows
    these are. A layer's states go through final norm and head, as in the model truncated there. The
    harness gets the answers of `layer`, at first the deepest of `layers` (default: all): set
    another and evaluate again, and no model runs. Batches are built by length unless `batch_size`
    is a number. Once imported the class is registered as `layerscope`. Raises `LayerscopeError` for
    a model that is not a causal language model of transformers, for tasks that generate text, and
    for the harness's cache, which knows no layers.

    >>> from layerscope.evaluation import LayerLM
    >>> lm = LayerLM("tiny-gpt2", progress=False)
    >>> lm.layers, lm.layer
    ((0, 1, 2, 3), 3)
    """

    def __init__(
        self,
        pretrained: Any,
        processor: Any = None,
        *,
        layers: int | Iterable[int] | None = None,
        batch_size: int | str = "auto",
        progress: bool = True,
        **options: Any,
    ) -> None:
        harness = {name: options.pop(name) for name in HF_OPTIONS if name in options}
        is_open = isinstance(pretrained, LayeredModel)
        model = pretrained if is_open else language_model(pretrained, processor, **options)
        self.layered, name, depth = model, model.loaded.name, model.stack.depth
        tokenizer = model.loaded.processor_for("text")
        is_usable = isinstance(model.module, PreTrainedModel)
        is_usable = is_usable and isinstance(tokenizer, PreTrainedTokenizerBase)
        if not (is_usable and model.is_language_model):
            why = "".join(f" ({note})" for note in model.notes if "head" in note)
            raise LayerscopeError(
                f"{name} is not a causal language model of transformers with a tokenizer{why}"
            )
        if layers is None:
            layers = range(depth + 1)
        elif isinstance(layers, int):
            layers = [layers]
        self.layers = tuple(sorted(set(layers)))
        for layer in self.layers:
            if not 0 <= layer <= depth:
                raise LayerscopeError(
                    f"layer {layer} does not exist: {name} has the layers 0 to {depth}"
                )
        self.layer, self.reporter, self.team = self.layers[-1], reporting(progress), Team()
        self.samples_per_batch = None if batch_size == "auto" else int(batch_size)
        self._known: dict[bytes, Any] = {}
        with evaluating(model.module), quiet():  # the harness warns of every model in memory
            tokenizer = copy.deepcopy(tokenizer)  # it is given a token for padding
            super().__init__(
                model.module, "causal", tokenizer=tokenizer, batch_size=AT_ONCE, **harness
            )
            probed = logits_of(
                forward(model.module, Inputs({"input_ids": torch.zeros_like(self._ids([[0]]))}))
            )
        self.logits_dtype = torch.float32 if probed is None else probed.dtype

    def loglikelihood(
        self, requests: Sequence[Any], disable_tqdm: bool = False
    ) -> list[tuple[float, bool]]:
        """Return for each request the log-likelihood of its continuation at `layer`, and whether it is greedy."""
        answers = self._answers(requests, partial(super().loglikelihood, disable_tqdm=disable_tqdm))
        return [(float(logs[self._column]), bool(greedy[self._column])) for logs, greedy in answers]

    def loglikelihood_rolling(
        self, requests: Sequence[Any], disable_tqdm: bool = False
    ) -> list[float]:
        """Return the log-likelihood of each whole text at `layer`, in the harness's windows."""
        answers = self._answers(
            requests, partial(super().loglikelihood_rolling, disable_tqdm=disable_tqdm)
        )
        # the harness adds up the arrays of all windows, or gives 0 for a text without a token
        return [float(np.broadcast_to(logs, len(self.layers))[self._column]) for logs in answers]

    def generate_until(self, requests: Sequence[Any], disable_tqdm: bool = False) -> list[str]:
        """Refuse."""
        raise LayerscopeError(
            "LayerLM generates no text: leave out tasks of the kind generate_until"
        )

    def set_cache_hook(self, cache_hook: Any) -> None:
        """Refuse."""
        raise LayerscopeError(
            "the harness's cache has one answer for all layers: leave out `use_cache`"
        )

    @property
    def _column(self) -> int:
        if self.layer not in self.layers:
            raise LayerscopeError(
                f"layer {self.layer} is not scored: `layers` are {', '.join(map(str, self.layers))}"
            )
        return self.layers.index(self.layer)

    def _answers(
        self, requests: Sequence[Any], compute: Callable[[list[Any]], list[Any]]
    ) -> list[Any]:
        """Return what each request gives at all layers; what is not known yet is computed."""
        keys = [key_of(f"{request.request_type} {request.args!r}") for request in requests]
        new = {
            key: request
            for key, request in zip(keys, requests, strict=True)
            if key not in self._known
        }
        self._known.update(zip(new, compute([*new.values()]), strict=True))
        return [self._known[key] for key in keys]

    def _loglikelihood_tokens(
        self, requests: Sequence[Any], disable_tqdm: bool = False, override_bs: int | None = None
    ) -> list[Any]:
        """Return log-likelihoods and greediness [layers] of (texts, context ids, continuation ids)."""
        reads: dict[tuple[int, ...], list[int]] = {}  # requests that read the same share a row
        name, most = self.layered.loaded.name, self.max_length
        for i, (_, context, continuation) in enumerate(requests):
            if not (context and 0 < len(continuation) <= most):
                sizes = f"{len(context):,} tokens and its continuation {len(continuation):,}"
                raise LayerscopeError(
                    f"a context has {sizes}: {name} takes 1 or more, and 1 to {most:,}"
                )
            reads.setdefault(tuple((context + continuation)[-most - 1 : -1]), []).append(i)
        table, rows = np.empty((2, len(requests), len(self.layers))), list(reads)

        def answer(batch: list[int]) -> Any:
            spans = [(row, requests[i][2]) for row, n in enumerate(batch) for i in reads[rows[n]]]
            return self._batch([rows[n] for n in batch], spans)

        batches = batches_of(self.layered, [*map(len, rows)], self.samples_per_batch)
        answers = self.team.each(
            answer, batches, f"answers to {hashlib.sha256(repr(requests).encode()).hexdigest()}"
        )
        with (
            self.reporter.bar("every layer", len(rows), "texts") as advance,
            evaluating(self.layered.module),
        ):
            for batch, of_batch in zip(batches, answers, strict=True):
                owners = [i for n in batch for i in reads[rows[n]]]
                table[:, owners] = of_batch
                for i, column in np.argwhere(np.isnan(table[0, owners])):
                    text = self.tokenizer.decode(requests[owners[i]][1])[:60]
                    where = f"layer {self.layers[column]} after {text!r}"
                    raise LayerscopeError(
                        f"{name} gives NaN at {where}: try `dtype='float32'`, or leave that task out"
                    )
                advance(len(batch))
        return list(zip(*table, strict=True))

    @torch.inference_mode()
    def _batch(self, rows: Sequence[Sequence[int]], spans: Sequence[tuple[int, list[int]]]) -> Any:
        """Return log-likelihoods and greediness [2, n, layers] of continuations, each after the row of that number."""
        ids, lengths = self._ids(rows), [len(continuation) for _, continuation in spans]
        tokens = self._ids([[token for _, continuation in spans for token in continuation]])[0]
        ends = [row * ids.shape[1] + len(rows[row]) for row, _ in spans]
        read = torch.cat(
            [torch.arange(end - n, end) for end, n in zip(ends, lengths, strict=True)]
        ).to(ids.device)
        answers = []

        def visit(layer: int, site: str, states: Tensor) -> None:
            if site != "raw" or layer not in self.layers:
                return
            logs, greedy = self._read(states.flatten(0, 1)[read], tokens)
            sums = [float(part.sum()) for part in torch.split(logs, lengths)]
            alls = [float(part.all()) for part in torch.split(greedy, lengths)]
            answers.append([sums, alls])

        # without a mask, as the harness does: a causal model does not see what follows
        self.layered.run(Inputs({"input_ids": ids}), visit, self.layers[-1])
        return np.array(answers).transpose(1, 2, 0)

    def _read(self, states: Tensor, tokens: Tensor) -> tuple[Tensor, Tensor]:
        """Return the log-probability [n] of each token after a state [n, D], and whether it is the likeliest."""
        logs, greedy, lens = [], [], self.layered.lens
        assert lens is not None
        for logits in lens.token_logits(states, Inputs({"input_ids": tokens})):
            truths, tokens = tokens[: len(logits)], tokens[len(logits) :]
            shares = log_softmax(logits.to(self.logits_dtype), -1, dtype=self.softmax_dtype)
            logs.append(shares.gather(1, truths[:, None])[:, 0].cpu())
            greedy.append((shares.argmax(-1) == truths).cpu())
        return torch.cat(logs), torch.cat(greedy)

    def _ids(self, rows: Sequence[Sequence[int]]) -> Tensor:
        return padded(rows, 0).to(self.layered.device)
