"""Pairs of texts as a model itself scores them: a reranker by its head, a SparseEncoder by its vectors."""

from layerscope.evaluation.pair_scores import PairScores, pair_score
from layerscope.evaluation.probe_tasks import ProbeKind

KIND = ProbeKind(
    "pairs",
    "pairs",
    PairScores,
    pair_score,
    takes_target=True,
    reads="text_a, text_b and score, or for classifiers label",
    score="Spearman of the model's own scores at each layer, or the accuracy of its classes",
)
