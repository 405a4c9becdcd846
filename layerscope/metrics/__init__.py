"""Metrics of states: arrays or tensors in, floats out, or tensors with the leading dimensions of what went in.

Every metric takes leading dimensions, so that all layers go through one call; logarithms are natural.

Precision. States may be bfloat16 or float16, as models make them; nothing is computed in half precision, where the
square of 15,000 is already infinite. Metrics of a data set (one value for many samples: spectra, similarities,
distances, losses) turn states to float64 before the first sum and return float64. Metrics of a sample's tokens
(`prompt_entropy`, `curvature`, `zero_differences`, `norms`), which run inside a model's forward, work and answer in
float32, for float64 input in float64. So half-precision states give what float64 of the same rounded values gives, to
1e-9 in the former and 1e-5 in the latter; what rounding the states took away, no metric gives back. Inside a pass the
same rule holds: pooled means, token norms and Grams are summed in float32 whatever the model's dtype, and all that is
computed from the stored states is float64. Orders of entropy below 1, which weigh the smallest eigenvalues, take
singular values of the states and never a Gram.
"""

from layerscope.metrics.alpha_req import alpha_req
from layerscope.metrics.angular_distance import angular_distance
from layerscope.metrics.anisotropy import anisotropy
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
from layerscope.metrics.intrinsic_dimension import intrinsic_dimension
from layerscope.metrics.label_probability import label_probability
from layerscope.metrics.layer_accuracy import layer_accuracy
from layerscope.metrics.lidar import lidar
from layerscope.metrics.matrix_entropy import matrix_entropy
from layerscope.metrics.mutual_knn import mutual_knn
from layerscope.metrics.nesum import nesum
from layerscope.metrics.neural_collapse import NeuralCollapse, neural_collapse
from layerscope.metrics.norms import Norms, norms
from layerscope.metrics.pairs.cosines import cosine_pairs, cosine_to
from layerscope.metrics.pairs.matrix import similarity_matrix
from layerscope.metrics.perplexity import perplexity
from layerscope.metrics.pnka import pnka
from layerscope.metrics.procrustes import procrustes
from layerscope.metrics.progression import line_distance, norm_ratio, straightness
from layerscope.metrics.prompt_entropy import prompt_entropy
from layerscope.metrics.pwcca import pwcca
from layerscope.metrics.rankme import rankme
from layerscope.metrics.rsa import rsa
from layerscope.metrics.saturation_layer import saturation_layer
from layerscope.metrics.svcca import kept_dimensions, svcca

__all__ = [
    "NeuralCollapse",
    "Norms",
    "alpha_req",
    "angular_distance",
    "anisotropy",
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
    "intrinsic_dimension",
    "kept_dimensions",
    "label_probability",
    "layer_accuracy",
    "lidar",
    "line_distance",
    "matrix_entropy",
    "mutual_knn",
    "nesum",
    "neural_collapse",
    "norm_ratio",
    "norms",
    "perplexity",
    "pnka",
    "procrustes",
    "prompt_entropy",
    "pwcca",
    "rankme",
    "rsa",
    "saturation_layer",
    "similarity_matrix",
    "straightness",
    "svcca",
    "zero_differences",
]
