from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from layerscope.cli import output
from layerscope.cli.making import Options, command, command_line
from layerscope.cli.output import Csv, Json
from layerscope.core.errors import LayerscopeError
from layerscope.core.shared_options import OUTPUT
from layerscope.scores.scoring import read_scores as verb

if TYPE_CHECKING:
    from layerscope.scores import Rule

EXAMPLES = """
First, best and last layer of every model in a table of scores (model, revision, layer, task, main_score):
  layerscope scores mteb_scores.csv.gz

How metrics by layer go with them, and what choosing a layer by a metric gains on a model held out:
  layerscope scores mteb_scores.csv.gz --metrics metrics.csv.gz
"""


@command(verb, EXAMPLES, argument="SCORES")
def scores(
    options: Options,
    *,
    save: Annotated[str | None, Parameter(help="Folder to save the scores in.", group=OUTPUT, metavar="FOLDER")] = None,
    csv: Csv = None,
    save_rules: Annotated[
        str | None,
        Parameter(
            help="JSON file for the rules and their record, for select --evidence.", group=OUTPUT, metavar="FILE"
        ),
    ] = None,
    kind: Annotated[
        str | None,
        Parameter(
            help="Kind of the models whose rules are saved: causal or bidirectional.", group=OUTPUT, metavar="NAME"
        ),
    ] = None,
    json: Json = False,
) -> None:
    """Print the scores, and what metrics say of them."""
    from layerscope.scores.tables import HEADER, wide_csv

    table = output.table_file(csv, HEADER)
    evaluation, shown, note = verb(**options)
    if note:
        print(note, file=sys.stderr)
    if save_rules is not None:
        _save_rules(shown.get("rules", ()), Path(save_rules), kind, str(options["results"]))
    if save is not None:
        print(f"saved: {evaluation.save(save)}", file=sys.stderr)
    output.write_table(table, lambda: wide_csv(evaluation, min_share=shown["min_share"]))
    output.finish(json, lambda: evaluation.as_dict(**shown), lambda: evaluation.document(**shown))


def _save_rules(rules: Sequence[Rule], path: Path, kind: str | None, scores: str) -> None:
    """Write rules with their record: the scores they were fitted on, and the kind of their models."""
    from layerscope.scores import save_rules

    if not rules:
        raise LayerscopeError("there is no rule to write: rules need metrics, and scores of at least two models")
    source = f"fitted on {Path(scores).name}"
    kinds = [tuple(replace(choice, kind=kind) for choice in rule.choices) for rule in rules]
    named = [replace(rule, source=source, choices=choices) for rule, choices in zip(rules, kinds, strict=True)]
    print(f"rules: {save_rules(named, path, command=command_line())}", file=sys.stderr)
