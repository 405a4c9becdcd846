"""The commands that choose a layer: evaluate, scores, select."""

import sys
from dataclasses import replace
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

import layerscope
from layerscope.cli import output
from layerscope.cli.making import Options, command, command_line
from layerscope.cli.output import Csv, Json, into
from layerscope.core.errors import LayerscopeError
from layerscope.scores.scoring import read_scores

FILES = Parameter(
    help="File of your own as KIND:PATH, repeatable; KIND is attention-probe, classification, clustering, knn-probe, "
    "linear-probe, pair-classification, retrieval, sts or token-probe. Probes read texts, images and sounds, a "
    "token-probe words, and the others texts.",
    group="Your own files",
    negative=(),
    allow_leading_hyphen=True,
)
Save = Annotated[str | None, into("Folder to save the scores in.", "FOLDER")]
Rules = Annotated[str | None, into("JSON file for the rules and their record, for select --evidence.")]
ModelKind = Annotated[str | None, into("Kind of the models whose rules are saved: causal or bidirectional.", "NAME")]


@command(layerscope.evaluate, """
Every layer of a model on mteb tasks, each text embedded once; the same command resumes a killed job:
  layerscope evaluate minilm --tasks STSBenchmark,Banking77Classification --out scores/minilm

On your own files (text,label · text_a,text_b,score · text_a,text_b,label · query,document,score):
  layerscope evaluate ./my-model --task-file classification:tickets.csv --task-file sts:pairs.jsonl

Every layer at fewer dimensions too: its first ones, and for linear-probe after PCA:
  layerscope evaluate minilm --task-file linear-probe:tickets.csv --dims 32,64,128

Mixes of layers too (means, the best pair, learned weights), with what each gains over the best single layer:
  layerscope evaluate minilm --task-file linear-probe:tickets.csv --mixes

Every layer's linear probe judged on data of another source or time too:
  layerscope evaluate minilm --task-file linear-probe:2024.csv --shift 2025.csv

Probes, with 95 % intervals, on any labelled data that profile reads, and on words (tokens and labels as two lists):
  layerscope evaluate ./my-vit --task-file linear-probe:photos/ --task-file attention-probe:photos/
  layerscope evaluate minilm --task-file token-probe:pos.jsonl

Tasks of lm-evaluation-harness that score likelihoods, by name or from a file, at every layer from one forward:
  layerscope evaluate gpt2 --tasks lm:arc_easy,lm:endings.yaml
""", argument="MODEL_OR_RUN")  # fmt: skip
def evaluate(
    options: Options, *, task_file: Annotated[list[str] | None, FILES] = None, csv: Csv = None, json: Json = False
) -> None:
    """Print the scores; a task that could not be scored makes the status 1."""
    from layerscope.scores.tables import HEADER, wide_csv

    table = output.table_file(csv, HEADER)
    names = [name.strip() for name in options.get("tasks", "").split(",") if name.strip()]
    options |= {"tasks": [*names, *map(_own, task_file or [])]}
    options["out"] = options.get("out") or str(Path("scores") / Path(options["model_or_run"]).name)
    found = layerscope.evaluate(**options)
    print(f"results: {options['out']}", file=sys.stderr)
    output.write_table(table, lambda: wide_csv(found))
    output.finish(json, found.as_dict, found.document)
    if found.failed:
        print(f"not scored: {output.printable(', '.join(found.failed))}", file=sys.stderr)  # why, was printed before
        sys.exit(1)


def _own(text: str) -> str:
    kind, _, path = text.partition(":")
    if not (kind and path):
        raise LayerscopeError(f"--task-file {text!r} is not KIND:PATH: write it as in classification:tickets.csv")
    return f"{kind.lower()}:{path}"


@command(read_scores, """
First, best and last layer of every model in a table of scores (model, revision, layer, task, main_score):
  layerscope scores mteb_scores.csv.gz

How metrics by layer correlate with the scores, and what choosing a layer by a metric gains on a held-out model:
  layerscope scores mteb_scores.csv.gz --metrics metrics.csv.gz
""", argument="SCORES")  # fmt: skip
def scores(
    options: Options, *, save: Save = None, csv: Csv = None, save_rules: Rules = None, kind: ModelKind = None,
    json: Json = False,
) -> None:  # fmt: skip
    """Print the scores, and what metrics say of them; save rules with the scores they were fitted on."""
    from layerscope.scores.tables import HEADER, wide_csv

    table = output.table_file(csv, HEADER)
    if kind is not None and save_rules is None:
        raise LayerscopeError("--kind is that of rules to save: give --save-rules too, or leave it out")
    evaluation, shown, note = read_scores(**options)
    if note:
        print(note, file=sys.stderr)
    if save_rules is not None:
        rules = shown.get("rules")
        if not rules:
            raise LayerscopeError("there is no rule to write: rules need metrics, and scores of at least two models")
        source = f"fitted on {Path(options['results']).name}"
        kinds = [tuple(replace(choice, kind=kind) for choice in rule.choices) for rule in rules]
        named = [replace(rule, source=source, choices=own) for rule, own in zip(rules, kinds, strict=True)]
        file = layerscope.scores.save_rules(named, Path(save_rules), command=command_line())
        print(f"rules: {file}", file=sys.stderr)
    if save is not None:
        print(f"saved: {evaluation.save(save)}", file=sys.stderr)
    output.write_table(table, lambda: wide_csv(evaluation, min_share=shown["min_share"]))
    output.finish(json, lambda: evaluation.as_dict(**shown), lambda: evaluation.document(**shown))


@command(layerscope.select, """
By the labels of a run, or the tasks of an evaluation:
  layerscope select runs/demo
  layerscope select scores/minilm

The fastest layer that loses at most one point:
  layerscope select runs/demo --max-loss 1.0

A run without labels, by rules tried on models of your own; then by one rule, whatever its record:
  layerscope select runs/new --evidence scores.csv --evidence runs/one --evidence runs/two
  layerscope select runs/new --rule half-text

Under a shift that was evaluated, by 100 labels of the target, judged on its others:
  layerscope select scores/minilm --rule shift

The two blocks that matter least, for truncate --drop:
  layerscope select runs/demo --drop 2
""", argument="RUN_OR_SCORES")  # fmt: skip
def select(options: Options, *, json: Json = False) -> None:
    """Print the choice, and write its page."""
    output.result(layerscope.select(**options), json, options.get("out"))
