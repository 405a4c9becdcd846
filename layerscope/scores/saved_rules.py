"""Rules in files: saved with their record, opened again, and those that come with the package."""

import math
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

from layerscope.core.errors import LayerscopeError
from layerscope.core.files import existing
from layerscope.core.saved import jsonable, read_facts, write_facts
from layerscope.scores.rules import Choice, Rule

KIND = "file of rules"
AGAIN = "write it again with layerscope scores … --metrics … --save-rules FILE"
SHIPPED = "shipped_rules.json"
_PLAIN = ("name", "metric", "direction", "correlation", "variant", "corpus", "site", "pooling", "share", "source")


def as_record(rule: Rule) -> dict[str, Any]:
    """Return a rule as JSON can hold it, with what its record comes to; what is not a number is null."""
    totals = ("mean_gain", "chance_gain", "fixed_gain", "mean_regret", "fixed_regret", "failures", "worst_gain")
    record: dict[str, Any] = jsonable({name: getattr(rule, name) for name in (*_PLAIN, *totals, "choices")})
    return record | {"parts": [as_record(part) for part in rule.parts]}


def from_record(record: dict[str, Any]) -> Rule:
    """Return the rule that a record holds."""
    known = {field.name for field in fields(Choice)}
    choices = [Choice(**{key: value for key, value in row.items() if key in known}) for row in record["choices"]]
    about: dict[str, Any] = {name: record.get(name) for name in _PLAIN} | {"source": record.get("source") or ""}
    about["correlation"] = math.nan if about["correlation"] is None else about["correlation"]
    return Rule(**about, choices=tuple(choices), parts=tuple(map(from_record, record.get("parts", ()))))


def save_rules(rules: Sequence[Rule], path: str | Path, *, command: str = "") -> Path:
    """Write rules with their record into a JSON file that `open_rules` reads.

    A file that is there is replaced only if it holds rules.

    >>> from layerscope.scores import save_rules, shipped_rules
    >>> save_rules(shipped_rules(), "rules.json").name
    'rules.json'
    """
    file = Path(path).expanduser()
    if file.exists():
        try:
            open_rules(file)
        except LayerscopeError as error:
            raise LayerscopeError(f"{str(file)!r} exists and holds no rules: name a new file") from error
    write_facts(file, KIND, {"command": command, "rules": [as_record(rule) for rule in rules]})
    return file


def open_rules(path: str | Path) -> list[Rule]:
    """Return the rules in a file that `save_rules` wrote; raises `LayerscopeError` for any other file.

    >>> from layerscope.scores import open_rules, save_rules, shipped_rules
    >>> open_rules(save_rules(shipped_rules(), "rules.json")) == shipped_rules()
    True
    """
    facts = read_facts(existing(path, "rules file"), KIND, AGAIN)
    return [from_record(record) for record in facts["rules"]]


def shipped_rules() -> list[Rule]:
    """Return the rules that come with the package, each with its source and its record.

    >>> from layerscope.scores import shipped_rules
    >>> sorted({rule.metric for rule in shipped_rules()})[:3]
    ['curvature', 'dataset_entropy', 'depth']
    """
    return open_rules(Path(__file__).with_name(SHIPPED))
