from layerscope.metrics.angular_distance import angular_distance
from layerscope.metrics.cca import canonical_correlations, cca
from layerscope.metrics.cka import cka, cka_minibatch
from layerscope.metrics.cosine_similarity import cosine_similarity
from layerscope.metrics.curvature import curvature, zero_differences
from layerscope.metrics.dataset_entropy import dataset_entropy
from layerscope.metrics.dime import dime
from layerscope.metrics.effective_depth import effective_depth
from layerscope.metrics.effective_rank import effective_rank
from layerscope.metrics.exits import exit_parameters, exit_speedup
from layerscope.metrics.generated_text import coherence, diversity
from layerscope.metrics.infonce import infonce, infonce_bound
from layerscope.metrics.label_probability import label_probability
from layerscope.metrics.layer_accuracy import layer_accuracy
from layerscope.metrics.lidar import lidar
from layerscope.metrics.matrix_entropy import matrix_entropy
from layerscope.metrics.mutual_knn import mutual_knn
from layerscope.metrics.neural_collapse import NeuralCollapse, neural_collapse
from layerscope.metrics.pairs.cosines import cosine_pairs, cosine_to
from layerscope.metrics.pairs.matrix import similarity_matrix
from layerscope.metrics.perplexity import perplexity
from layerscope.metrics.pnka import pnka
from layerscope.metrics.procrustes import procrustes
from layerscope.metrics.progression import line_distance, norm_ratio, straightness
from layerscope.metrics.prompt_entropy import prompt_entropy
from layerscope.metrics.pwcca import pwcca
from layerscope.metrics.rsa import rsa
from layerscope.metrics.saturation_layer import saturation_layer
from layerscope.metrics.svcca import kept_dimensions, svcca

__all__ = [
    "NeuralCollapse",
    "angular_distance",
    "canonical_correlations",
    "cca",
    "cka",
    "cka_minibatch",
    "coherence",
    "cosine_pairs",
    "cosine_similarity",
    "cosine_to",
    "curvature",
    "dataset_entropy",
    "dime",
    "diversity",
    "effective_depth",
    "effective_rank",
    "exit_parameters",
    "exit_speedup",
    "infonce",
    "infonce_bound",
    "kept_dimensions",
    "label_probability",
    "layer_accuracy",
    "lidar",
    "line_distance",
    "matrix_entropy",
    "mutual_knn",
    "neural_collapse",
    "norm_ratio",
    "perplexity",
    "pnka",
    "procrustes",
    "prompt_entropy",
    "pwcca",
    "rsa",
    "saturation_layer",
    "similarity_matrix",
    "straightness",
    "svcca",
    "zero_differences",
]
