"""Entropies of a spectrum, and the products, eigenvalues and factors that spectra come from.

A matrix Z [N, D] is known here by its singular values s. Those of a Gram Z Zᵀ are s², as are those
of Zᵀ Z: the smaller of the two is cheaper. Squares lose what is below 1e-8 of the largest; where
that counts, s is taken of Z itself, or of a triangular factor R of it, which has the same.
"""

import math
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import torch
from torch import Tensor

from layerscope.core import LayerscopeError
from layerscope.metrics.arrays import check_choice

_WORTH_THREADS = 4e6
"""Multiplications below which an eigenvalue call is over before a thread has started."""
_WIDE = 512
"""Width from which on half of a symmetric product is worth leaving out."""
_MATRIX_PER_TASK = 256
"""Size from which on a matrix is a task of its own for a worker; smaller ones travel in batches."""


def check_alpha(alpha: float) -> None:
    """Raise `LayerscopeError` unless the Rényi order is above 0 (infinity is allowed)."""
    if not alpha > 0:
        raise LayerscopeError(
            f"alpha={alpha} is not a Rényi order: give a number above 0, such as 1.0"
        )


def entropy_of_spectrum(
    weights: Tensor, alpha: float = 1.0, eps: float = 0.0
) -> Tensor:
    """Return the Rényi entropy of order alpha of non-negative weights `[..., K]`, scaled to sum 1 and then plus `eps`.

    Nats, 0 ... log K; NaN where a weight is NaN, 0 where all weights are zero. alpha = 1 is
    Shannon's entropy, alpha = inf the min-entropy (Giraldo, Rao and Principe 2014). With `eps` the
    weights no longer sum to 1.

    >>> weights = torch.tensor([2.0, 1.0, 1.0])
    >>> [round(entropy_of_spectrum(weights, alpha).item(), 4) for alpha in (1.0, 2.0, math.inf)]
    [1.0397, 0.9808, 0.6931]
    """
    check_alpha(alpha)
    weights = weights.clamp(min=0.0)
    total = weights.sum(-1, keepdim=True)
    p = weights / total.masked_fill(total == 0, 1.0) + eps
    if math.isclose(alpha, 1.0, abs_tol=1e-6):
        shannon: Tensor = torch.special.entr(p).sum(-1)
        return shannon
    # log(0) of an all-zero spectrum is replaced by the entropy of a single atom.
    empty = total.squeeze(-1) == 0
    if math.isinf(alpha):
        return -p.amax(-1).masked_fill(empty, 1.0).log()
    powers = p.pow(alpha).sum(-1).masked_fill(empty, 1.0)
    return powers.log() / (1.0 - alpha)


def collision_entropy(gram: Tensor) -> Tensor:
    """Return S_2 = -log ||K / tr K||_F^2 of Grams `[..., n, n]` without eigenvalues, for any diagonal.

    Nats, 0 ... log n; 0 for a zero matrix.

    >>> round(collision_entropy(torch.eye(4)).item(), 4)  # ln 4
    1.3863
    """
    trace = torch.linalg.diagonal(gram).sum(-1)
    empty = trace == 0
    scaled: Tensor = torch.linalg.matrix_norm(gram) / trace.masked_fill(empty, 1.0)
    return scaled.masked_fill(empty, 1.0).log() * -2.0


def entropy_limit(normalization: str | None, rows: int, columns: int) -> float:
    """Return what an entropy is divided by, never 0.

    That is 1, log N ("logN"), log D ("logD") or log min(N, D) ("max").

    >>> entropy_limit(None, 8, 2), round(entropy_limit("logN", 8, 2), 4), round(entropy_limit("max", 8, 2), 4)
    (1.0, 2.0794, 0.6931)
    """
    sizes = {None: 1, "logN": rows, "logD": columns, "max": min(rows, columns)}
    check_choice(normalization, "normalization", tuple(sizes))
    size = sizes[normalization]
    return math.log(size) if size > 1 else 1.0


def symmetric_product(rows: Tensor) -> Tensor:
    """Return `rows.T @ rows` `[..., D, D]` of `[..., N, D]`, by upper blocks and mirror images where wide.

    BLAS has a rank-k update that torch does not expose; eight strips save 7/16 of the
    multiplications.
    """
    width = rows.shape[-1]
    if width < _WIDE:
        return rows.mT @ rows
    product = rows.new_empty(*rows.shape[:-2], width, width)
    size = -(-width // 8)
    for low in range(0, width, size):
        strip = slice(low, low + size)
        product[..., strip, low:] = rows[..., strip].mT @ rows[..., low:]
        product[..., low + size :, strip] = product[..., strip, low + size :].mT
    return product


def small_gram(rows: Tensor) -> Tensor:
    """Return the smaller of Z Z^T and Z^T Z, which share their non-zero eigenvalues, of Z `[..., N, D]`.

    >>> small_gram(torch.ones(3, 100)).shape
    torch.Size([3, 3])
    """
    is_tall = rows.shape[-1] <= rows.shape[-2]
    return symmetric_product(rows if is_tall else rows.mT)


def eigenvalues(batches: Sequence[Tensor]) -> list[Tensor]:
    """Return the eigenvalues, ascending and never below 0, of each batch of symmetric matrices `[..., n, n]`.

    Eigenvalues are clamped at 0, matrix entries never. On a CPU the matrices are shared among
    `torch.get_num_threads()` threads, each matrix worked by one thread, so results repeat bit by
    bit.
    """
    work = sum(b.numel() * b.shape[-1] for b in batches)
    matrices = sum(math.prod(b.shape[:-2]) for b in batches)
    workers = min(torch.get_num_threads(), matrices)
    if workers < 2 or work < _WORTH_THREADS or batches[0].device.type != "cpu":
        return [torch.linalg.eigvalsh(b).clamp(min=0.0) for b in batches]
    pairs = zip(_in_threads(batches, workers), batches, strict=True)
    return [part.reshape(batch.shape[:-1]).clamp(min=0.0) for part, batch in pairs]


def _in_threads(batches: Sequence[Tensor], workers: int) -> list[Tensor]:
    """Return the eigenvalues of all matrices of each batch, one below the other."""
    threads = torch.get_num_threads()
    tasks = []
    for batch in batches:
        matrices = batch.reshape(-1, *batch.shape[-2:])
        chunks = workers
        if batch.shape[-1] >= _MATRIX_PER_TASK:
            chunks = len(matrices)
        tasks.append(matrices.chunk(chunks))
    try:
        # LAPACK would start its own threads in every worker and slow all of them down.
        with ThreadPoolExecutor(
            workers, initializer=torch.set_num_threads, initargs=(1,)
        ) as pool:
            running = [pool.map(torch.linalg.eigvalsh, parts) for parts in tasks]
            return [torch.cat([*parts]) for parts in running]
    finally:
        # The limit is per thread, but threads born later take the last one set anywhere.
        torch.set_num_threads(threads)


def entropies(grams: Sequence[Tensor], alpha: float) -> list[Tensor]:
    """Return S_alpha of each of some Grams `[..., n, n]`; alpha = 2 needs no eigenvalues."""
    if alpha == 2.0:
        return [collision_entropy(gram) for gram in grams]
    return [entropy_of_spectrum(values, alpha) for values in eigenvalues(grams)]


def singular_values(rows: Tensor) -> Tensor:
    """Return the singular values, descending, of `[..., N, D]`, through R of a QR where one side is long.

    Unlike the root of a Gram's eigenvalues they keep the small end of the spectrum, which matters
    below alpha 1.
    """
    shorter, longer = sorted(rows.shape[-2:])
    if longer > 2 * shorter:
        tall = rows if rows.shape[-2] == longer else rows.mT
        rows = torch.linalg.qr(tall, mode="r").R
    values: Tensor = torch.linalg.svdvals(rows)
    return values


def row_factor(*parts: Tensor) -> Tensor:
    """Return one factor R `[..., r, D]`, r <= D, whose R^T R is the sum of P^T P over the parts P `[..., n, D]`.

    It has the singular values of all their rows together, so that a long matrix can be read part
    after part.

    Source: Golub and Van Loan, Matrix Computations, section 5.2.

    >>> rows = torch.arange(12.0).view(6, 2).sin()
    >>> factor = row_factor(row_factor(rows[:3]), rows[3:])
    >>> torch.allclose(singular_values(factor), singular_values(rows))
    True
    """
    stacked = torch.cat(parts, -2)
    if stacked.shape[-2] <= stacked.shape[-1]:
        return stacked
    factor: Tensor = torch.linalg.qr(stacked, mode="r").R
    return factor
