"""What a layer is worth: probes, scores on tasks, their correlation with metrics, rules that choose a layer."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from layerscope.evaluation.correlation import correlate
    from layerscope.evaluation.evaluation import Evaluation
    from layerscope.evaluation.fitting import fit_rules
    from layerscope.evaluation.half_text import half_text_recall, half_text_reciprocal_rank
    from layerscope.evaluation.metric_values import corpus_averages, one_variant, open_metrics
    from layerscope.evaluation.opening import open_evaluation
    from layerscope.evaluation.own_tasks import task_from_file
    from layerscope.evaluation.probes import ProbeScore, knn_probe, linear_probe, token_probe
    from layerscope.evaluation.probing.attention import attention_probe
    from layerscope.evaluation.rules import Choice, Rule, rules_table
    from layerscope.evaluation.saved_rules import open_rules, save_rules, shipped_rules
    from layerscope.evaluation.texts import TextStates
    from layerscope.evaluation.verb import evaluate

_HOMES = {
    "Choice": "rules",
    "Evaluation": "evaluation",
    "ProbeScore": "probes",
    "Rule": "rules",
    "TextStates": "texts",
    "corpus_averages": "metric_values",
    "attention_probe": "probing.attention",
    "correlate": "correlation",
    "evaluate": "verb",
    "fit_rules": "fitting",
    "half_text_recall": "half_text",
    "half_text_reciprocal_rank": "half_text",
    "knn_probe": "probes",
    "linear_probe": "probes",
    "one_variant": "metric_values",
    "open_evaluation": "opening",
    "open_metrics": "metric_values",
    "open_rules": "saved_rules",
    "rules_table": "rules",
    "save_rules": "saved_rules",
    "shipped_rules": "saved_rules",
    "task_from_file": "own_tasks",
    "token_probe": "probes",
}

__all__ = [
    "Choice",
    "Evaluation",
    "ProbeScore",
    "Rule",
    "TextStates",
    "attention_probe",
    "corpus_averages",
    "correlate",
    "evaluate",
    "fit_rules",
    "half_text_recall",
    "half_text_reciprocal_rank",
    "knn_probe",
    "linear_probe",
    "one_variant",
    "open_evaluation",
    "open_metrics",
    "open_rules",
    "rules_table",
    "save_rules",
    "shipped_rules",
    "task_from_file",
    "token_probe",
]


def __getattr__(name: str) -> Any:
    # probes import scikit-learn and torch; reading scores needs neither
    if name not in _HOMES:
        raise AttributeError(f"module 'layerscope.evaluation' has no attribute {name!r}")
    return getattr(import_module(f"layerscope.evaluation.{_HOMES[name]}"), name)
