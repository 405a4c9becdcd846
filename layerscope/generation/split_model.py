"""A language model whose early and late blocks run apart, over one cache that can be cut back."""

import math
from collections.abc import Callable, Collection, Mapping
from contextlib import AbstractContextManager, suppress
from copy import copy
from functools import partial
from typing import Any

import torch
from torch import Tensor

from layerscope.core import LayerscopeError
from layerscope.generation.sampling import tolerance_of
from layerscope.models import (
    Inputs,
    Lens,
    accepts,
    evaluating,
    parameters,
    replaced,
)
from layerscope.models.capture import Enough
from layerscope.models.forward import FAILURES, hidden_of, is_out_of_memory, state_of
from layerscope.models.modality import positions
from layerscope.models.stack import choose, find_stacks

CACHES = ("past_key_values", "cache")
"""What a forward calls its cache: in transformers before 5.24, and since."""
SURVEY_TOKENS = 32
"""Last tokens of the prompts, of all texts together, at which layers are compared."""


class SplitModel:
    """Runs the blocks of a language model from one layer to another, for texts of one batch, over one cache.

    `real` [B, T] says which columns of the cache a text has filled: all but the padding at its
    left. Columns that are cut back for one text while another keeps them are closed up, as some
    models count distances in columns: two tokens of a text are always as many columns apart as they
    are positions apart.
    """

    def __init__(self, module: Any) -> None:
        ids = probe_ids(module, 1, 4)
        inputs = Inputs({"input_ids": ids, "attention_mask": torch.ones_like(ids)})
        self.stack = choose(find_stacks(module, inputs), None)
        self.module = module
        self.config = module.config.get_text_config(decoder=True)
        self.blocks = self.stack.block_modules(module)
        self.depth = self.stack.depth
        if len(self.blocks) < self.depth:
            raise refusal(module, "which runs one block several times")
        if not any(accepts(module, name) for name in CACHES):
            raise refusal(module, "which has no cache that can be cut back")
        number = positions(module)
        self.context = int(number) if math.isfinite(number) else 0
        """Number of positions that the model has, 0 where it does not say."""
        head = self.config.vocab_size * self.stack.width
        self.head_work: float = head / max(1, parameters(self.blocks[0]))
        """Work of the model's head, in blocks, by the number of weights that each multiplies."""
        self.first = 0
        self.last = self.depth
        self.head = True
        self.entering = self.state = torch.empty(0)
        self.recorded_layers: Collection[int] = ()
        self.recorded_states: dict[int, list[Tensor]] = {}
        """States of these layers at the last tokens of each forward."""

    def open(self) -> AbstractContextManager[None]:
        """Within, the model runs those of its blocks that `run` asks for, and all of them by default."""
        forwards = {}
        for i, block in enumerate(self.blocks):
            forwards[block] = partial(self._block, i, block.forward)
        return replaced(forwards)

    @torch.no_grad()
    def check(self, layer: int) -> None:
        """Raise where a token that is read after rejected drafts of a layer is not read as it is without them."""
        with evaluating(self.module), self.open():
            if not self._reads_after(layer):
                why = "which keeps something of tokens that were cut back, or whose blocks cannot run separately"
                raise refusal(self.module, why)

    def _reads_after(self, layer: int) -> bool:
        """Return whether two texts, which accept none and one of two drafts of a layer, go on as without drafts."""
        accepted = [0, 1]
        ids = probe_ids(self.module, 2, 6)
        read = ids[:, :3]
        drafts = ids[:, 3:5]
        token = ids[:, 5:]
        self.start(torch.ones_like(read))
        try:
            self.prompts(read)
            self.early(drafts[:, :1], layer)
            states = [self.state]
            # as in a round: the last draft needs no head
            states.append(self.early_states(drafts[:, 1:], layer))
            self.late(drafts, layer, torch.cat(states, 1))
            columns = read.shape[1] + drafts.shape[1]
            # what is around a block may have written to the cache while the block was left out
            if any(each.keys.shape[-2] != columns for each in self.cache.layers):
                return False
            self.cut(torch.tensor(accepted, device=ids.device), drafts.shape[1])
            state = self.early_states(token, layer)
            after_drafts = self.late(token, layer, state)
            plain = []
            for row, number in enumerate(accepted):
                text = torch.cat([read[row], drafts[row, :number], token[row]])
                whole = text[None]
                self.start(torch.ones_like(whole))
                plain.append(self.prompts(whole))
        except FAILURES as error:
            if is_out_of_memory(error):
                raise
            return False
        tolerance = tolerance_of(self.module)
        expected = torch.cat(plain)
        difference = (after_drafts - expected).norm(dim=-1)
        return not bool((difference > tolerance * expected.norm(dim=-1)).any())

    def start(self, mask: Tensor) -> None:
        """Forget what was read, for prompts that are real where `mask` [B, T] is."""
        from transformers.cache_utils import (
            DynamicCache,
            DynamicLayer,
            DynamicSlidingWindowLayer,
        )

        cache = DynamicCache(config=self.config)
        # what has left a window could not come back; the masks keep to the window without that
        for i, layer in enumerate(cache.layers):
            if type(layer) is DynamicSlidingWindowLayer:
                cache.layers[i] = DynamicLayer()
        kinds = {type(each) for each in cache.layers}
        if kinds - {DynamicLayer} or len(cache.layers) not in (0, self.depth):
            names = ", ".join(sorted(kind.__name__ for kind in kinds))
            raise refusal(self.module, f"whose caches cannot be cut back ({names})")
        self.real = mask.bool()
        self.cache = cache
        self.ahead = 0
        self.whole = bool(self.real.all())

    def prompts(self, ids: Tensor) -> Tensor:
        """Read prompts [B, T] and return the logits after them, [B, 1, V]."""
        mask = None
        if not self.whole:
            mask = self.real.long()
        options = {"input_ids": ids, "attention_mask": mask, "logits_to_keep": 1}
        logits = self._forward(options, positions_of(self.real))
        return logits[:, -1:]

    def early(self, tokens: Tensor, layer: int) -> Tensor:
        """Run the blocks up to a layer and the head on one more token of each text, [B, 1]; return logits [B, V].

        `state` is then what the layer gave, [B, 1, D].
        """
        self.ahead += 1
        return self._run(tokens, self.ahead, 0, layer)[:, -1]

    def early_states(self, tokens: Tensor, layer: int) -> Tensor:
        """Run the blocks up to a layer, without the head; return what the layer gave, [B, 1, D]."""
        self.head = False
        try:
            with suppress(Enough):
                self.early(tokens, layer)
        finally:
            self.head = True
        return self.state

    def late(self, tokens: Tensor, layer: int, states: Tensor) -> Tensor:
        """Run the blocks after a layer on its states [B, n, D] of tokens [B, n], and return logits [B, n, V]."""
        self.entering = states
        return self._following(tokens, layer)

    def all(self, tokens: Tensor) -> Tensor:
        """Run all blocks on tokens [B, n] that follow, and return logits [B, n, V]."""
        return self._following(tokens, 0)

    def _following(self, tokens: Tensor, first: int) -> Tensor:
        """Run the blocks from the first on tokens that follow."""
        self.ahead = 0
        return self._run(tokens, tokens.shape[1], first, self.depth)

    def read(self, states: Mapping[int, Tensor]) -> dict[int, Tensor]:
        """Return the logits [N, V] of the model's head for states [N, D] of layers.

        The states of all layers go through the head at once: one pass over its weights is most of
        the cost.
        """
        every = torch.cat([*states.values()])
        lens = Lens(self.module, self.stack, "tokens", self.config.vocab_size)
        ids = torch.zeros(1, 1, dtype=torch.long, device=every.device)
        chunks = lens.token_logits(every, Inputs({"input_ids": ids}))
        logits = torch.cat([*chunks])
        return dict(zip(states, logits.chunk(len(states)), strict=True))

    def cut(self, kept: Tensor, new: int) -> None:
        """Keep of the last `new` columns the first `kept` [B] of each text."""
        counts = kept.tolist()
        most = max(counts)
        columns = torch.arange(most, device=kept.device)[None] < kept[:, None]
        self.real = torch.cat([self.real, columns], 1)
        if len({*counts}) > 1:
            self._close_up()
        elif most < new:
            self._narrow(slice(most - new))

    def select(self, rows: Tensor) -> None:
        """Go on with these texts of the batch alone."""
        self.cache.batch_select_indices(rows)
        self.real = self.real[rows]
        unused = self.real.shape[1] - self._longest()
        self.real = self.real[:, unused:]
        self.whole = bool(self.real.all())
        if unused:
            self._narrow(slice(unused, None))

    def _narrow(self, columns: slice) -> None:
        """Keep these columns of the cache alone."""
        for layer in self.cache.layers:
            layer.keys = layer.keys[..., columns, :]
            layer.values = layer.values[..., columns, :]

    def _longest(self) -> int:
        """Return how many columns the longest text has filled."""
        return int(self.real.sum(1).max())

    def _close_up(self) -> None:
        """Move each text's columns to the right, over those that are not real."""
        width = self._longest()
        order = self.real.byte().argsort(dim=1, stable=True)
        order = order[:, -width:]
        self.real = self.real.gather(1, order)
        self.whole = bool(self.real.all())
        for layer in self.cache.layers:
            layer.keys = _columns(layer.keys, order)
            layer.values = _columns(layer.values, order)

    def _run(self, tokens: Tensor, new: int, first: int, last: int) -> Tensor:
        """Run some blocks on the last of `new` tokens that follow the real columns, and return logits."""
        device = tokens.device
        after = torch.arange(new - tokens.shape[1], new, device=device)
        at = self.real.sum(1, keepdim=True) + after
        mask = None
        if not self.whole:
            ones = torch.ones(len(tokens), new, dtype=torch.bool, device=device)
            mask = torch.cat([self.real, ones], 1).long()
        self.first = first
        self.last = last
        try:
            inputs = {"input_ids": tokens, "attention_mask": mask}
            return self._forward(inputs, at)
        finally:
            self.first = 0
            self.last = self.depth

    def _forward(self, inputs: dict[str, Any], positions: Tensor) -> Tensor:
        """Return the logits [B, n, V] of a forward over the cache, with what the model takes of these inputs."""
        cache = self.cache
        if self.first:
            cache = _behind(cache, self.first)
        options = inputs | {"use_cache": True, "position_ids": positions}
        options |= dict.fromkeys(CACHES, cache)
        names = [name for name in options if accepts(self.module, name)]
        named = {name: options[name] for name in names}
        logits: Tensor = self.module(**named).logits
        return logits.float()

    def _block(
        self, index: int, forward: Callable[..., Any], *args: Any, **kwargs: Any
    ) -> Any:
        """Stand in for a block: run it where it is among those wanted, else hand its input on."""
        if self.first <= index < self.last:
            output = forward(*args, **kwargs)
            layer = index + 1
            state = state_of(output)
            if layer in self.recorded_layers:
                last = state[:, -SURVEY_TOKENS:].clone()
                self.recorded_states.setdefault(layer, []).append(last)
            if layer == self.last:
                self.state = state
                if not self.head:
                    raise Enough
            return output
        hidden = hidden_of((args, kwargs))
        if index + 1 == self.first:
            hidden = self.entering
        return self.stack.forms[index].around(hidden)


def _columns(tensor: Tensor, order: Tensor) -> Tensor:
    """Return the columns `order` [B, T] of keys or values [B, H, any, D]."""
    # whole vectors at once cost what a copy does; `gather` takes four times as long
    batch, heads, length, width = tensor.shape
    starts = length * torch.arange(batch * heads, device=tensor.device)
    rows = starts.view(batch, heads, 1) + order[:, None]
    vectors = tensor.reshape(-1, width).index_select(0, rows.view(-1))
    return vectors.view(batch, heads, -1, width)


def positions_of(mask: Tensor) -> Tensor:
    """Return the position of each token of prompts that are real where `mask` [B, T] is."""
    return (mask.long().cumsum(1) - 1).clamp(min=0)


def probe_ids(module: Any, rows: int, tokens: int) -> Tensor:
    """Return ids [rows, tokens] to try a model on, the first ones of its vocabulary, each row its own."""
    size = module.config.get_text_config(decoder=True).vocab_size
    device = next(module.parameters()).device
    ids: Tensor = torch.arange(1, rows * tokens + 1, device=device) % size
    return ids.view(rows, tokens)


def refusal(module: Any, why: str) -> LayerscopeError:
    """Return the error for a model that can neither speculate on itself nor leave some tokens to early blocks."""
    name = type(module).__name__
    return LayerscopeError(
        f"self-speculation and exits for next tokens do not work with {name}, {why}: decode plainly"
    )


def _behind(cache: Any, layer: int) -> Any:
    """Return a cache as the blocks after a layer see it: as long as their own, whatever the earlier ones hold."""
    view = copy(cache)
    late = cache.layers[layer:]
    # all layers are of one kind, and models ask the first one
    view.layers = late[:1] * layer + late
    return view
