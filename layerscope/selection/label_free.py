"""Rules without labels, followed on a run: the metric's values at the run's layers, and the layer they say."""

import math
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pandas as pd

from layerscope.core import processes
from layerscope.core.errors import LayerscopeError, choices
from layerscope.core.files import existing, json_object
from layerscope.core.progress import Reporter
from layerscope.evaluation.half_text import Halves, clear_maximum, half_text_ranks, halves_of
from layerscope.evaluation.texts import TextStates
from layerscope.inputs import Corpus, open_corpus
from layerscope.inputs.opening import BUILT_IN
from layerscope.models.encode import TextEncoder
from layerscope.runs.run import Run
from layerscope.scores.files import is_csv
from layerscope.scores.fitting import fit_rules
from layerscope.scores.metric_values import PUBLISHED as METRICS, open_metrics
from layerscope.scores.opening import PUBLISHED as SCORES, holds_scores, merged, open_evaluation
from layerscope.scores.rules import DEPTH, Rule
from layerscope.scores.saved_rules import KIND, open_rules, shipped_rules
from layerscope.scores.trust import distrust, more_evidence
from layerscope.selection.by_score import BY_SCORE
from layerscope.selection.selection import Refused
from layerscope.truncation.source import Source

HALF_TEXT = "half-text"
RANK = "half_text_reciprocal_rank"


@dataclass(frozen=True)
class Followed:
    """A rule that was followed, the layer it takes, its metric by layer (None for several), and what to say of it."""

    rule: Rule
    layer: int
    values: pd.Series | None
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Reader:
    """Reads metrics of one run; half-text ranks are measured with the model that `open` opens."""

    run: Run
    pooling: str
    allowed: tuple[int, ...]
    halves: Callable[[], Halves]
    open: Callable[[], Source]
    reporter: Reporter

    def follow(self, rule: Rule, alike: bool) -> Followed:
        """Return the layer a rule takes; `alike` refuses values that were not measured as the rule's own were.

        Raises `LayerscopeError` where the run has no such values.
        """
        if rule.metric == RANK:
            return self._half_text(rule)
        if rule.metric == DEPTH:
            depths = pd.Series({layer: layer / self.run.depth for layer in self.allowed})
            return Followed(rule, rule.choose(depths, self.allowed[0]), depths)
        parts = rule.parts or (rule,)
        read = [self._read(part, alike) for part in parts]
        frame = pd.DataFrame({part.metric: values for part, (values, _) in zip(parts, read, strict=True)})
        notes = tuple(dict.fromkeys(note for _, note in read if note))
        return Followed(rule, rule.choose(frame, self.allowed[0]), None if rule.parts else frame.iloc[:, 0], notes)

    def _read(self, rule: Rule, alike: bool) -> tuple[pd.Series, str]:
        table, corpus = self.run.table(), str(self.run.info["data"]["name"])
        rows = table[(table["metric"] == rule.metric) & table["layer"].notna() & table["layer_b"].isna()]
        if rows.empty:
            raise LayerscopeError(f"the run has no {rule.metric}")
        other = [] if rule.corpus in (None, corpus) else [f"on {rule.corpus}"]
        for name, default in (("variant", None), ("site", "raw"), ("pooling", self.pooling)):
            wanted = getattr(rule, name)
            there = [None if pd.isna(value) else value for value in rows[name].unique()]
            chosen = next((value for value in (wanted, default) if value in there), there[0])
            if chosen != wanted:
                other.append(f"{name} {wanted}" if wanted else f"{name} unknown")
            rows = rows[rows[name].isna() if chosen is None else rows[name] == chosen]
        differs = f"measured differently from the run's ({', '.join(other)})" if other else ""
        if differs and alike:
            raise LayerscopeError(f"its {rule.metric} was {differs}")
        values = rows.set_index(rows["layer"].astype("int64"))["value"].astype("float64")
        note = f"{rule.metric} of the rule's record was {differs}" if differs else ""
        return values[values.index.isin(self.allowed)], note

    def _half_text(self, rule: Rule) -> Followed:
        """Run the model once over all halves, and take the layer at which they find each other clearly best."""
        halves = self.halves()
        model, options = self.open().model, self.run.info["options"]
        if not isinstance(model.encoder, TextEncoder) or model.rank != 3:
            raise LayerscopeError(f"{model.loaded.name} gives no states of tokens: half-text takes models of texts")
        length = options.get("max_length") or model.encoder.max_length
        encoder = replace(model.encoder, max_length=length, prompt=options.get("prompt") or model.encoder.prompt)
        self.reporter.say(f"half-text: the halves of {len(halves):,} texts through {model.loaded.name}")
        with tempfile.TemporaryDirectory() as folder:
            columns = [(layer, model.final, self.pooling) for layer in self.allowed]
            shared: dict[str, Any] = {"team": processes.team(), "alone": True}
            states = TextStates(replace(model, encoder=encoder), columns, Path(folder), self.reporter, **shared)
            ranks = half_text_ranks(states, halves, model.final, self.pooling, self.allowed)
        short = f" ({halves.short:,} were too short)" if halves.short else ""
        note = f"value: mean of 1 / rank at which the halves of {len(halves):,} texts find each other{short}"
        values = pd.Series(ranks.mean(0), index=pd.Index(self.allowed, name="layer"))
        return Followed(rule, self.allowed[clear_maximum(ranks)], values, (note,))


def halves_for(run: Run, data: Any, seed: int) -> Halves:
    """Return the halves of the texts of a run, or of other data; raises where these are not there or have none."""
    return halves_of(corpus_of(run, data), seed=seed)


def corpus_of(run: Run, data: Any) -> Corpus:
    """Return the data of a run, or others where they are given; raises where these are not there."""
    if data is not None:
        return open_corpus(data)
    about = run.info["data"]
    source = about.get("source")
    if not source or not (source in BUILT_IN or source.startswith("hf:") or Path(source).expanduser().exists()):
        raise LayerscopeError(f"the run's data ({source or about['name']}) cannot be found: name them with `data`")
    columns = {name: about.get(name) for name in ("text_column", "label_column")}
    return open_corpus(source, **columns)


def rules_from(evidence: Any) -> list[Rule]:
    """Return rules with their record: shipped ones, a list, those of a file, or fitted on (scores, metrics, …)."""
    if evidence is None:
        return shipped_rules()
    given: list[Any] = [evidence] if isinstance(evidence, (str, Path)) else list(evidence)
    if not given:
        raise LayerscopeError("evidence is empty: give a rules file, or scores and then metrics")
    if all(isinstance(rule, Rule) for rule in given):
        return given
    if len(given) == 1 and isinstance(given[0], (str, Path)):
        path = existing(given[0], "evidence")
        if path.is_dir():  # a data set of the hub may hold the file
            path = next((file for file in path.glob("*.json") if (json_object(file) or {}).get("kind") == KIND), path)
        if path.is_dir() and not (holds_scores(path) or (path / "run.json").is_file()):
            raise LayerscopeError(f"{str(path)!r} is not a file of rules: give one that `save_rules` wrote")
        if not is_csv(path) and not path.is_dir():
            return open_rules(path)
    scores = [entry for entry in given if _is_evaluation(entry, entry is given[0])]
    metrics = [entry for entry in given if not any(entry is other for other in scores)]
    if not scores or not metrics:
        there, lacking = ("scores", f"metrics: a run, or a CSV ({', '.join(METRICS)})")
        if not scores:
            there, lacking = ("metrics", f"scores: what evaluate wrote, or a CSV ({', '.join(SCORES)}), first")
        named = ", ".join(str(entry) for entry in given if isinstance(entry, (str, Path)))
        raise LayerscopeError(
            f"`evidence` has only {there}{f' ({named})' if named else ''}, and rules are fitted on scores and metrics "
            f"of the same models: give, as another `evidence`, {lacking}; or give a file of rules"
        )
    evaluation = merged([entry if hasattr(entry, "grids") else open_evaluation(entry) for entry in scores])
    frames = [metric if isinstance(metric, pd.DataFrame) else open_metrics(metric) for metric in metrics]
    return fit_rules(pd.concat(frames, ignore_index=True), evaluation)


def _is_evaluation(entry: Any, first: bool) -> bool:
    """Return whether this is an evaluation or holds one; a CSV may be of metrics too, unless it is the first."""
    path = existing(entry, "evidence") if isinstance(entry, (str, Path)) else None
    return hasattr(entry, "grids") if path is None else (first or path.is_dir()) and holds_scores(path)


def named_rule(rules: Sequence[Rule], name: str) -> Rule:
    """Return the rule of this name or metric, of several the one that gains most; half-text is always there."""
    found = [rule for rule in rules if name in (rule.name, rule.metric)]
    if found:
        return max(found, key=lambda rule: rule.mean_gain if rule.choices else -math.inf)
    if name in (HALF_TEXT, RANK):
        return Rule(HALF_TEXT, RANK, "maximum", math.nan, ())
    known = dict.fromkeys([*BY_SCORE, HALF_TEXT, *(rule.name for rule in rules)])
    raise LayerscopeError(f"rule {name!r} does not exist{choices(name, known, 'there are')}")


def trusted(rules: Sequence[Rule], reader: Reader) -> tuple[Followed | None, tuple[Refused, ...], str]:
    """Return the trusted rule of the highest mean gain that the run can follow, those refused, and what would help."""
    kind = kind_of(reader.run)
    refused: list[Refused] = []
    for rule in sorted(rules, key=lambda rule: -rule.mean_gain if rule.choices else math.inf):
        reason = distrust(rule, kind, len(rules))
        if reason is None:
            try:
                return reader.follow(rule, alike=True), tuple(refused), ""
            except LayerscopeError as error:
                reason = str(error)
        refused.append(Refused(rule, reason))
    return None, tuple(refused), more_evidence(rules, kind)


def kind_of(run: Run) -> str | None:
    """Return what kind of model a run is of: causal, bidirectional, another modality's name, or None if unknown."""
    model = run.info["model"]
    if run.info["data"]["modality"] != "text":
        return str(run.info["data"]["modality"])
    pairs = run.info.get("pair_pooling") or (["position"] if run.info.get("position") else [])
    if model.get("language_model") or "position" in pairs:
        return "causal"
    # only where layers were compared do its pairs show whether a model is causal
    compared = "cosine_similarity" in run.info["options"]["metrics"]
    return "bidirectional" if compared and model.get("lens") != "pooled" else None
