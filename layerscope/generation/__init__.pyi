from .generator import Generated as Generated, generate as generate
from .scoring import Scores as Scores, score as score
