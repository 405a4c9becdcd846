from .generation import Generation as Generation, open_generation as open_generation
from .generator import generate as generate
from .scoring import Scores as Scores, score as score
from .speculation import SelfSpeculation as SelfSpeculation, Speculated as Speculated
