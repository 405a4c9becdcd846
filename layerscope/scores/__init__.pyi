from .correlation import correlate as correlate
from .evaluation import Evaluation as Evaluation
from .fitting import fit_rules as fit_rules
from .metric_values import (
    corpus_averages as corpus_averages,
    impossible as impossible,
    one_variant as one_variant,
    open_metrics as open_metrics,
)
from .opening import open_evaluation as open_evaluation
from .rules import Choice as Choice, Rule as Rule, rules_table as rules_table
from .saved_rules import open_rules as open_rules, save_rules as save_rules, shipped_rules as shipped_rules
