"""A proxy without labels: the two halves of a text must find each other among all other halves."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import torch

from layerscope.core.errors import LayerscopeError
from layerscope.metrics.arrays import Array, as_finite64, unit_rows

if TYPE_CHECKING:
    from layerscope.evaluation.texts import TextStates
    from layerscope.inputs import Corpus

Floats = npt.NDArray[np.float64]
Counts = npt.NDArray[np.int64]
BLOCK = 1024
TIE = 1e-6
"""Cosines as near as this are taken for equal: batches of another length move them by less."""
FEWEST_WORDS = 8
MIDDLE = (0.35, 0.65)
"""A sentence that ends between these shares of a text ends its first half."""
PASSAGE_WORDS = 64
MOST = 1000
FEWEST_TEXTS = 20
CLEAR = 2.0
_SENTENCE = re.compile(r"[.!?…\u3002\uff01\uff1f][\"'”\u2019)\]]*\s+|\n\s*\n")
"""The end of a sentence, also of one in Chinese, or of a paragraph."""


def half_text_recall(states_a: Array, states_b: Array) -> Floats:
    """Return for each text whether its two halves find each other, `[N]` of 0, ½, 1 (a tie counts its share).

    `states_a` and `states_b` are `[N, D]`, row i of both a half of text i. A half's nearest neighbour by cosine among
    all 2N − 1 other halves, first and second ones alike, must be its other half; both directions are averaged. For
    uninformative states the mean is 1 / (2N − 1), also where all are equal. Raises `LayerscopeError` for shapes
    that differ, fewer than two texts and values that are not finite.

    >>> from layerscope.evaluation import half_text_recall
    >>> half_text_recall(np.eye(3), np.eye(3))
    array([1., 1., 1.])
    """
    nearer, ties = _ranks(states_a, states_b)
    return np.asarray(np.where(nearer == 0, 1 / ties, 0.0).mean(0))


def half_text_reciprocal_rank(states_a: Array, states_b: Array) -> Floats:
    """Return for each text 1 / the rank at which its halves find each other, `[N]` above 0 and up to 1.

    Arguments and errors are those of `half_text_recall`, which counts only the first rank; halves that tie count with
    the mean over their orders. It separates layers where few halves come first, as with short texts.

    >>> from layerscope.evaluation import half_text_reciprocal_rank
    >>> halves = np.random.default_rng(0).normal(size=(3, 8))
    >>> half_text_reciprocal_rank(halves, halves[[0, 2, 1]]).round(2)  # the second halves of two texts are swapped
    array([1.  , 0.42, 0.42])
    """
    nearer, ties = _ranks(states_a, states_b)
    harmonic = np.concatenate([[0.0], np.cumsum(1 / np.arange(1, 2 * nearer.shape[1] + 1))])
    return np.asarray(((harmonic[nearer + ties] - harmonic[nearer]) / ties).mean(0))


def _ranks(states_a: Array, states_b: Array) -> tuple[Counts, Counts]:
    """Return for each half, `[2, N]`, how many others are nearer than its partner, and how many as near, with it."""
    a, b = (as_finite64(states, name) for states, name in ((states_a, "states_a"), (states_b, "states_b")))
    if a.ndim != 2 or a.shape != b.shape or len(a) < 2:
        raise LayerscopeError(
            f"states_a has shape {tuple(a.shape)} and states_b {tuple(b.shape)}: give [N, D] twice, two texts or more"
        )
    halves = unit_rows(torch.cat([a, b]))
    n = len(a)
    nearer, ties = np.empty((2, 2 * n), dtype=np.int64)
    for start in range(0, 2 * n, BLOCK):
        rows = torch.arange(start, min(start + BLOCK, 2 * n), device=halves.device)
        cosines = halves[rows] @ halves.T
        here, stop = rows - start, start + len(rows)
        own = cosines[here, (rows + n) % (2 * n)].clone()[:, None]
        cosines[here, rows] = -torch.inf
        nearer[start:stop] = (cosines > own + TIE).sum(1).cpu().numpy()
        ties[start:stop] = ((cosines - own).abs() <= TIE).sum(1).cpu().numpy()
    return nearer.reshape(2, n), ties.reshape(2, n)


@dataclass(frozen=True)
class Halves:
    """First and second halves of texts, and how many texts were too short or repeated an earlier one."""

    first: tuple[str, ...]
    second: tuple[str, ...]
    short: int
    repeated: int

    def __len__(self) -> int:
        return len(self.first)


def cut_in_half(text: str) -> tuple[str, str] | None:
    """Return the two halves of a text, or None where it has fewer than 8 words.

    The cut is the end of the sentence nearest to the middle, if one ends in the middle third, else the end of a word.
    """
    text = text.strip()
    words = list(re.finditer(r"\S+", text))
    if len(words) < FEWEST_WORDS:
        return None
    low, high = (share * len(text) for share in MIDDLE)
    ends = [match.end() for match in _SENTENCE.finditer(text) if low <= match.end() <= high]
    ends = ends or [word.start() for word in words[1:]]
    at = min(ends, key=lambda end: abs(end - len(text) / 2))
    first, second = text[:at].strip(), text[at:].strip()
    return (first, second) if first and second else None


def halves_of(corpus: "Corpus", most: int = MOST, seed: int = 0) -> Halves:
    """Return the halves of at most `most` seeded texts of a corpus, each text once.

    Lines of running text are joined to passages of 64 words first. Raises `LayerscopeError` for a corpus of other than
    texts, and where fewer than 20 texts are long enough.
    """
    if corpus.modality != "text":
        raise LayerscopeError(f"{corpus.name} holds {corpus.modality} samples: only texts have halves")
    texts = [sample if isinstance(sample, str) else str(sample.text) for sample in corpus.samples]
    if corpus.running:  # what is left at the end is too short
        lines, texts = texts, []
        words = np.cumsum([0, *(len(line.split()) for line in lines)])
        start = 0
        for end in range(1, len(lines) + 1):
            if words[end] - words[start] >= PASSAGE_WORDS:
                texts.append("\n".join(lines[start:end]))
                start = end
    unique = list(dict.fromkeys(texts))
    found: dict[tuple[str, str], None] = {}
    short = 0
    for i in np.random.default_rng([seed, 5]).permutation(len(unique)):
        if len(found) == most:
            break
        if halves := cut_in_half(unique[i]):
            found[halves] = None
        else:
            short += 1
    if len(found) < FEWEST_TEXTS:
        raise LayerscopeError(
            f"{corpus.name} has {len(found)} texts of {FEWEST_WORDS} words or more, and half-text needs "
            f"{FEWEST_TEXTS}: give more or longer texts"
        )
    first, second = zip(*found, strict=True)
    return Halves(first, second, short, len(texts) - len(unique))


def half_text_ranks(states: "TextStates", halves: Halves, site: str, pooling: str, layers: Sequence[int]) -> Floats:
    """Return `half_text_reciprocal_rank` at each of these layers, `[N, layers]`; the halves are embedded once."""
    keys, n = states.keys([*halves.first, *halves.second]), len(halves)
    vectors = (states.vectors(keys, layer, site, pooling) for layer in layers)
    return np.stack([half_text_reciprocal_rank(found[:n], found[n:]) for found in vectors], 1)


def clear_maximum(values: Floats) -> int:
    """Return the column of `[N, layers]` with the highest mean, or the last where that is not clear.

    Clear is two standard errors of the difference to the last column, paired over texts: to leave the model as shipped
    takes evidence.
    """
    best = int(np.argmax(values.mean(0)))
    apart = values[:, best] - values[:, -1]
    error = float(apart.std(ddof=1)) / len(apart) ** 0.5
    return best if apart.mean() > CLEAR * error else values.shape[1] - 1
