from .comparer import compare as compare
from .comparison import Comparison as Comparison, open_comparison as open_comparison
