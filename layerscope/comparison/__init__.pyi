from .comparison import Comparison as Comparison, open_comparison as open_comparison
from .verb import compare as compare
