from .knn import knn_probe as knn_probe
from .linear import linear_probe as linear_probe
from .ridge import ridge_probe as ridge_probe
from .scores import ProbeScore as ProbeScore
from .tokens import token_probe as token_probe
