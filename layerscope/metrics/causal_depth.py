"""Causal depth: what later blocks, and the prediction, lose when a block is skipped."""

from typing import NamedTuple

from torch import Tensor

from layerscope.metrics.arrays import Array, as_tensor, real_mask
from layerscope.metrics.metric import FromForward, Metric


def causal_depth(changes: Array) -> Tensor:
    """Return how many blocks share the change of the prediction, `[...]`, 1 ... L, float64.

    `changes` `[..., L]` are what skipping each block changes, from 0: the value is the
    participation ratio (Σ e)² / Σ e², L where all blocks matter alike and 1 where one does; NaN
    where none does.

    Source: Csordás et al. 2025, Do Language Models Use Their Depth Efficiently?, for the changes.

    >>> round(causal_depth(np.array([0.4, 0.4, 0.0, 0.4])).item(), 6)  # the third of four blocks is idle
    3.0
    """
    changes = as_tensor(changes, "changes", 1).double()
    return changes.sum(-1).square() / changes.square().sum(-1)


def contribution_change(
    contributions: Array, changed: Array, mask: Array | None = None
) -> Tensor:
    """Return by how much what a block adds to each token changes, of its own length, the mean over tokens `[...]`.

    Both are `[..., T, D]`, `mask` `[..., T]` marks the tokens that count (None: all). Tokens to
    which the block adds nothing are left out; NaN where none is left.

    Source: Csordás et al. 2025, section 3, where the largest token counts and not the mean.

    >>> contribution_change(np.array([[3.0, 4.0]]), np.array([[3.0, 3.0]])).item()
    0.2
    """
    before = as_tensor(contributions, "contributions", 2).double()
    after = as_tensor(changed, "changed", 2).double()
    size = before.norm(dim=-1)
    moved = (before - after).norm(dim=-1)
    counted = real_mask(before, mask) & (size > 0)
    return _mean_where(moved / size, counted)


def prediction_change(logits: Array, changed: Array) -> Tensor:
    """Return the Euclidean distance of two predictions' probabilities, `[...]` of logits `[..., K]`, 0 ... √2.

    Source: Csordás et al. 2025, section 3.

    >>> round(prediction_change(np.array([50.0, 0.0]), np.array([0.0, 50.0])).item(), 3)
    1.414
    """
    before = as_tensor(logits, "logits", 1)
    after = as_tensor(changed, "changed", 1)
    moved = before.softmax(-1) - after.softmax(-1)
    distance: Tensor = moved.norm(dim=-1)
    return distance


class Branch(NamedTuple):
    """How a branch stands to the stream that it is added to, each `[...]`: cosine, and norm over the stream's norm.

    >>> added = branch_contribution(np.array([[3.0, 0.0]]), np.array([[3.0, 0.0]]))
    >>> added.cosine.item(), added.norm.item()
    (1.0, 1.0)
    """

    cosine: Tensor
    norm: Tensor


def branch_contribution(
    branch: Array, stream: Array, mask: Array | None = None
) -> Branch:
    """Return cosine and norm ratio of what a branch adds to the stream, each the mean over tokens `[...]`.

    Both are `[..., T, D]`, `mask` `[..., T]` marks real tokens (None: all). Tokens at which one of
    the two is zero are left out of the cosine, where the stream is zero also of the ratio.

    Source: Csordás et al. 2025, section 2; Sun et al. 2025, The Curse of Depth in Large Language
    Models.

    >>> branch_contribution(np.array([[0.0, 1.0]]), np.array([[2.0, 0.0]]))
    Branch(cosine=tensor(0., dtype=torch.float64), norm=tensor(0.5000, dtype=torch.float64))
    """
    added = as_tensor(branch, "branch", 2).double()
    base = as_tensor(stream, "stream", 2).double()
    real = real_mask(base, mask)
    sizes = added.norm(dim=-1)
    lengths = base.norm(dim=-1)
    has_stream = real & (lengths > 0)
    cosine = (added * base).sum(-1) / (sizes * lengths)
    return Branch(
        _mean_where(cosine, has_stream & (sizes > 0)),
        _mean_where(sizes / lengths, has_stream),
    )


def _mean_where(values: Tensor, counted: Tensor) -> Tensor:
    """Return the mean `[...]` of the values `[..., T]` that count; NaN where none does."""
    return values.where(counted, 0.0).sum(-1) / counted.sum(-1)


BOTH = (
    "at the same token, and at future tokens, of which only earlier ones were skipped"
)
CAUSAL_DEPTH = Metric(
    causal_depth,
    FromForward(),
    unit="blocks",
    reading="blocks that share the change of the prediction",
    formula="(Σ eᵢ)² / Σ eᵢ², eᵢ the change of the prediction without block i",
    meaning="Number of blocks over which the change of a text's prediction is spread when each is skipped in turn; "
    "from 1 to L. Averaged over samples.",
    direction="Far below the number of blocks: some of them hardly matter to what the model predicts.",
    curve=False,
)
SKIP_PREDICTION = Metric(
    prediction_change,
    FromForward(),
    name="skip_prediction",
    title="change of the prediction",
    reading="distance of the predicted probabilities without the block; 0: it is idle",
    formula="‖y − y′‖, y the probabilities with and y′ without the block; without a head y is the last layer's state, "
    "and the distance is over its norm",
    meaning=f"Change of the final prediction when a block is skipped, {BOTH}. From 0 to √2. Averaged over samples.",
    direction="0: the block is idle. Only at the same token: it writes late, for its own token's prediction alone.",
    beside=("causal_depth",),
)
SKIP_LATER = Metric(
    contribution_change,
    FromForward(),
    name="skip_later",
    title="change of later blocks",
    reading="change of what later blocks add without the block, of its length",
    formula="mean over j > i of ‖cⱼ − cⱼ′‖ / ‖cⱼ‖, cⱼ what block j adds with and cⱼ′ without block i",
    meaning=f"Relative change of what later blocks add to the stream when a block is skipped, {BOTH}. From 0. Averaged "
    "over tokens, later blocks and samples.",
    direction="0: no later block builds on it.",
    beside=("causal_depth",),
)
BRANCH_COSINE = Metric(
    branch_contribution,
    FromForward(),
    name="branch_cosine",
    title="cosine with the stream",
    reading="-1: the branch erases what is there, 0: it adds something new, 1: it amplifies",
    meaning="Cosine of what a block, its attention or its MLP adds with the stream that it is added to; from −1 to 1. "
    "Averaged over tokens and samples.",
    direction="Negative: features are erased; about 0: new ones are added; positive: what is there is amplified.",
    beside=("causal_depth",),
)
BRANCH_NORM = Metric(
    branch_contribution,
    FromForward(),
    name="branch_norm",
    title="norm over the stream's",
    reading="length of what is added over that of the stream",
    meaning="Norm of what a block, its attention or its MLP adds over the norm of the stream that it is added to; from "
    "0. Averaged over tokens and samples.",
    direction="Low in deep blocks: they hardly change what they read (the curse of depth).",
    log=True,
    beside=("causal_depth",),
)
