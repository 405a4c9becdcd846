"""Rules that choose a layer without labels, each with what it gained and missed on models held out."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pandas as pd

from layerscope.core.errors import LayerscopeError, choices as choices_of

Direction = Literal["minimum", "maximum"]
FIXED_SHARE = "fixed-share"
DEPTH = "depth"
"""The metric that a fixed share reads: the share of the depth at each layer, of which no model needs to be measured."""


@dataclass(frozen=True)
class Choice:
    """The layer a rule chose for a model that took no part in fitting it, and what that layer scores.

    `direction` was fitted on the other models; `last`, `best` and `mean` are scores of the layers that could be chosen:
    of the last, of the best, and of one drawn at random; `kind` what the model is (causal, bidirectional), where known.
    `fixed` is the score at the share of depth that ranks best on the other models, None where that was not tried.

    >>> from layerscope.scores import Choice
    >>> choice = Choice("small", "", "minimum", layer=2, score=0.66, last=0.60, best=0.66, mean=0.61)
    >>> round(choice.gain, 2), choice.regret, choice.fails
    (0.06, 0.0, False)
    """

    model: str
    revision: str
    direction: Direction | None
    layer: int
    score: float
    last: float
    best: float
    mean: float
    kind: str | None = None
    fixed: float | None = None

    @property
    def gain(self) -> float:
        """Score of the chosen layer less that of the last one."""
        return self.score - self.last

    @property
    def regret(self) -> float:
        """Score of the best layer less that of the chosen one."""
        return self.best - self.score

    @property
    def chance_gain(self) -> float:
        """Gain over the last layer to be expected of a layer drawn at random."""
        return self.mean - self.last

    @property
    def fixed_gain(self) -> float:
        """Gain over the last layer of a fixed share of depth, NaN where that was not tried."""
        return math.nan if self.fixed is None else self.fixed - self.last

    @property
    def fails(self) -> bool:
        """Whether the chosen layer scores less than the last one."""
        return self.gain < 0


@dataclass(frozen=True)
class Rule:
    """Take the layer at a metric's minimum or maximum; with `parts`, that of the lowest mean rank over these rules.

    With `share` it is the layer nearest to that share of the depth, whatever the model: what a metric has to beat.

    `direction` and `correlation` (mean Spearman with the mean score, over models) are fitted on all models; `choices`
    were made for each model with the direction fitted on the **other** models, and are the evidence. `source` says
    who measured metrics and scores.

    >>> from layerscope.scores import Rule
    >>> rule = Rule("least entropy", "dataset_entropy", "minimum", correlation=-0.9, choices=())
    >>> rule.choose(pd.Series({1: 1.84, 2: 1.68, 3: 1.80}))
    2
    """

    name: str
    metric: str
    direction: Direction | None
    correlation: float
    choices: tuple[Choice, ...]
    variant: str | None = None
    corpus: str | None = None
    site: str | None = None
    pooling: str | None = None
    parts: "tuple[Rule, ...]" = ()
    source: str = ""
    share: float | None = None

    @property
    def gains(self) -> dict[str, float]:
        """Gain over the last layer by held-out model, mean over its revisions, in the scores' own units."""
        return {model: float(gain) for model, gain in self._by_model("gain").items()}

    @property
    def layers(self) -> dict[str, int]:
        """Layer chosen by held-out model; by model and revision where a model has several."""
        models = [choice.model for choice in self.choices]
        return {f"{c.model} {c.revision}" if models.count(c.model) > 1 else c.model: c.layer for c in self.choices}

    @property
    def mean_gain(self) -> float:
        """Mean gain over models, each the mean over its revisions; NaN where the rule chose for no model."""
        return self._mean("gain")

    @property
    def chance_gain(self) -> float:
        """Mean gain of a layer drawn at random for the same models: a rule that gains no more has found nothing."""
        return self._mean("chance_gain")

    @property
    def fixed_gain(self) -> float:
        """Mean gain of a fixed share of depth, chosen on the other models, for the same ones; NaN where not tried."""
        return self._mean("fixed_gain")

    @property
    def mean_regret(self) -> float:
        """Mean over models of what the chosen layer scores less than the best one."""
        return self._mean("regret")

    @property
    def fixed_regret(self) -> float:
        """Mean regret of the fixed share of depth on the same trials; NaN where it was not tried."""
        return self.mean_regret + self.mean_gain - self.fixed_gain

    @property
    def rival_gain(self) -> float:
        """The better of both: a rule that gains no more has found nothing."""
        return float(np.fmax(self.chance_gain, self.fixed_gain))

    @property
    def failure_share(self) -> float:
        """Share of choices that score less than the last layer, mean over models of that over their revisions."""
        return self._mean("fails")

    @property
    def agreeing(self) -> int:
        """Number of choices whose direction, fitted on the other models, is the one fitted on all."""
        return sum(choice.direction == self.direction for choice in self.choices)

    @property
    def failures(self) -> int:
        """Number of choices that score less than the last layer."""
        return sum(choice.fails for choice in self.choices)

    @property
    def worst_gain(self) -> float:
        """The lowest gain: how wrongly the rule failed where it is negative; NaN where it chose for no model."""
        return min((choice.gain for choice in self.choices), default=math.nan)

    def choose(self, values: pd.Series | pd.DataFrame, first_layer: int = 1) -> int:
        """Return the layer this rule takes; of layers that tie, the shallowest.

        `values` is the metric by layer (a series whose index is the layer), or a frame layer × metric: its column of
        this metric, or, for a rule with parts, all their columns. Layers below `first_layer` and without a value are no
        candidates. Raises `LayerscopeError` where a metric is not there or no candidate is left.
        """
        parts = self.parts or (self,)
        for part in () if isinstance(values, pd.Series) else parts:
            if part.metric not in values:
                hint = choices_of(part.metric, map(str, values), "there are")
                raise LayerscopeError(f"metric {part.metric!r} is not among these by layer{hint}")
        columns = [values if isinstance(values, pd.Series) else values[part.metric] for part in parts]
        directions = [part.direction for part in parts]
        if self.share is not None:
            columns, directions = [(columns[0] - self.share).abs().round(9)], ["minimum"]
        found = lowest_mean_rank(columns, directions, first_layer)
        if found is None:
            what = f"every metric of {self.name}" if self.parts else self.metric
            raise LayerscopeError(f"no layer from {first_layer} on has a value of {what}: measure it first")
        return found

    def _by_model(self, field: str) -> dict[str, Any]:
        return by_model((choice.model, float(getattr(choice, field))) for choice in self.choices)

    def _mean(self, field: str) -> float:
        return float(np.mean(list(self._by_model(field).values()))) if self.choices else math.nan


def by_model(values: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    """Return the mean over each model's revisions: checkpoints of one model are no independent trials."""
    own: dict[str, list[Any]] = {}
    for model, value in values:
        own.setdefault(model, []).append(value)
    return {model: np.mean(several, axis=0) for model, several in own.items()}


def lowest_mean_rank(
    columns: Sequence[pd.Series], directions: Sequence[Direction | None], first_layer: int = 1
) -> int | None:
    """Return the layer whose ranks among the layers, averaged over metrics, are lowest; of a tie the shallowest.

    Each of `columns` is a metric by layer, ranked from its minimum or maximum on, ties at their mean rank. A metric
    without any value takes no part, nor does a layer where one of the rest has none; None where no layer is left.
    """
    signed = [
        -column if direction == "maximum" else column for column, direction in zip(columns, directions, strict=True)
    ]
    known = pd.DataFrame(dict(enumerate(signed))).sort_index()
    known = known[known.index >= first_layer].dropna(axis=1, how="all").dropna()
    return None if known.empty else int(known.rank().mean(axis=1).idxmin())


def rules_table(rules: Iterable[Rule]) -> pd.DataFrame:
    """Return a row per rule: what it is, its mean gain and regret, how often it failed, and its gain on each model.

    >>> from layerscope.scores import fit_rules, open_evaluation, open_metrics, rules_table
    >>> rules = fit_rules(open_metrics("metrics.csv"), open_evaluation("scores.csv"))
    >>> rules_table(rules)[["metric", "models", "mean_gain", "mean_regret", "failed"]].round(2)
                metric  models  mean_gain  mean_regret  failed
    0  dataset_entropy       2       0.04          0.0       0
    1            depth       2       0.04          0.0       0
    """
    rows = [
        {
            "rule": rule.name, "corpus": rule.corpus, "metric": rule.metric, "variant": rule.variant,
            "direction": rule.direction, "share": rule.share, "correlation": rule.correlation,
            "agreeing": rule.agreeing,
            "models": len(rule.gains), "choices": len(rule.choices), "mean_gain": rule.mean_gain,
            "chance_gain": rule.chance_gain, "fixed_gain": rule.fixed_gain, "mean_regret": rule.mean_regret,
            "fixed_regret": rule.fixed_regret, "failed": rule.failures, "worst_gain": rule.worst_gain,
            **{f"gain {model}": gain for model, gain in rule.gains.items()},
            **{f"layer {model}": layer for model, layer in rule.layers.items()},
        }
        for rule in rules
    ]  # fmt: skip
    frame = pd.DataFrame(rows)
    return frame.astype({name: "Int64" for name in frame if str(name).startswith("layer ")})
