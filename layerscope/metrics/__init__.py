from layerscope.metrics.cka import cka, cka_minibatch
from layerscope.metrics.cosine_similarity import cosine_similarity
from layerscope.metrics.curvature import curvature, zero_differences
from layerscope.metrics.dataset_entropy import dataset_entropy
from layerscope.metrics.dime import dime
from layerscope.metrics.effective_rank import effective_rank
from layerscope.metrics.infonce import infonce, infonce_bound
from layerscope.metrics.layer_accuracy import layer_accuracy
from layerscope.metrics.lidar import lidar
from layerscope.metrics.matrix_entropy import matrix_entropy
from layerscope.metrics.perplexity import perplexity
from layerscope.metrics.prompt_entropy import prompt_entropy
from layerscope.metrics.saturation_layer import saturation_layer
from layerscope.metrics.similarity import cosine_pairs, cosine_to, similarity_matrix

__all__ = [
    "cka",
    "cka_minibatch",
    "cosine_pairs",
    "cosine_similarity",
    "cosine_to",
    "curvature",
    "dataset_entropy",
    "dime",
    "effective_rank",
    "infonce",
    "infonce_bound",
    "layer_accuracy",
    "lidar",
    "matrix_entropy",
    "perplexity",
    "prompt_entropy",
    "saturation_layer",
    "similarity_matrix",
    "zero_differences",
]
