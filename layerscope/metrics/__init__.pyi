from .alpha_req import alpha_req as alpha_req
from .angular_distance import angular_distance as angular_distance
from .anisotropy import anisotropy as anisotropy
from .causal_depth import (
    Branch as Branch,
    branch_contribution as branch_contribution,
    causal_depth as causal_depth,
    contribution_change as contribution_change,
    prediction_change as prediction_change,
)
from .cca import cca as cca
from .cka import (
    cka as cka,
    cka_minibatch as cka_minibatch,
)
from .cosine_similarity import (
    cosine_pairs as cosine_pairs,
    cosine_similarity as cosine_similarity,
    cosine_to as cosine_to,
)
from .curvature import (
    curvature as curvature,
    zero_differences as zero_differences,
)
from .dataset_entropy import dataset_entropy as dataset_entropy
from .dime import dime as dime
from .effective_depth import effective_depth as effective_depth
from .effective_rank import effective_rank as effective_rank
from .exits import (
    exit_parameters as exit_parameters,
    exit_speedup as exit_speedup,
)
from .generated_text import (
    coherence as coherence,
    diversity as diversity,
)
from .infonce import (
    infonce as infonce,
    infonce_bound as infonce_bound,
)
from .intrinsic_dimension import intrinsic_dimension as intrinsic_dimension
from .isotropy import isotropy as isotropy
from .label_probability import label_probability as label_probability
from .layer_accuracy import layer_accuracy as layer_accuracy
from .lidar import lidar as lidar
from .linear_map import linear_map as linear_map
from .matrix_entropy import matrix_entropy as matrix_entropy
from .modality_gap import modality_gap as modality_gap
from .mutual_knn import mutual_knn as mutual_knn
from .nesum import nesum as nesum
from .neural_collapse import (
    NeuralCollapse as NeuralCollapse,
    neural_collapse as neural_collapse,
)
from .norms import (
    Norms as Norms,
    norms as norms,
)
from .pairs import similarity_matrix as similarity_matrix
from .perplexity import perplexity as perplexity
from .pnka import pnka as pnka
from .procrustes import procrustes as procrustes
from .progression import (
    monotone_triples as monotone_triples,
    straightness as straightness,
)
from .prompt_entropy import prompt_entropy as prompt_entropy
from .pwcca import pwcca as pwcca
from .rankme import rankme as rankme
from .rsa import rsa as rsa
from .saturation_layer import saturation_layer as saturation_layer
from .svcca import svcca as svcca
from .valley import (
    Valley as Valley,
    first_token_attention as first_token_attention,
    valley as valley,
)
