from .correlation import correlate as correlate
from .evaluation import Evaluation as Evaluation
from .metric_values import (
    corpus_averages as corpus_averages,
    line_on_impossible as line_on_impossible,
    one_variant as one_variant,
    open_metrics as open_metrics,
)
from .opening import merged as merged, open_evaluation as open_evaluation
from .rules import rules_table as rules_table
from .statistics import (
    distance_correlation as distance_correlation,
    kendall as kendall,
    spearman as spearman,
)
