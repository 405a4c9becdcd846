from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from layerscope.cli import output, usage
from layerscope.cli.making import Options, command
from layerscope.cli.output import Csv, Json
from layerscope.core.errors import LayerscopeError
from layerscope.evaluation.evaluator import KINDS, evaluate as verb

FILES = Parameter(
    help=f"File of your own as KIND:PATH, repeatable; KIND is {', '.join(KINDS[:-1])} or {KINDS[-1]}. Probes read "
    "texts, images and sounds, a token-probe words, and the others texts.",
    group="Your own files",
    negative=(),
    allow_leading_hyphen=True,
)
EXAMPLES = """
Every layer of a model on tasks of mteb, each text embedded once; the same command resumes after a kill:
  layerscope evaluate minilm --tasks STSBenchmark,Banking77Classification --out scores/minilm

On your own files (text,label · text_a,text_b,score · text_a,text_b,label · query,document,score):
  layerscope evaluate ./my-model --task-file classification:tickets.csv --task-file sts:pairs.jsonl

Probes, with 95 % intervals, of whatever profile reads with labels, and of words (tokens and labels, lists a row):
  layerscope evaluate ./my-vit --task-file linear-probe:photos/ --task-file attention-probe:photos/
  layerscope evaluate minilm --task-file token-probe:pos.jsonl
"""


@command(verb, EXAMPLES, argument="MODEL_OR_RUN")
def evaluate(
    options: Options,
    *,
    task_file: Annotated[list[str] | None, FILES] = None,
    csv: Csv = None,
    json: Json = False,
) -> None:
    """Print the scores; a task that could not be scored makes the status 1."""
    from layerscope.scores.tables import HEADER, wide_csv

    table = output.table_file(csv, HEADER)
    names = [name.strip() for name in options.get("tasks", "").split(",") if name.strip()]
    options |= {"tasks": [*names, *map(_own, task_file or [])]}
    options["out"] = options.get("out") or str(Path("scores") / Path(options["model_or_run"]).name)
    found = verb(**options)
    print(f"results: {options['out']}", file=sys.stderr)
    output.write_table(table, lambda: wide_csv(found))
    output.finish(json, found.as_dict, found.document)
    if found.failed:
        print(f"not scored: {usage.printable(', '.join(found.failed))}", file=sys.stderr)  # why, was printed before
        sys.exit(1)


def _own(text: str) -> str:
    """Return KIND:PATH, the kind in lower case."""
    kind, _, path = text.partition(":")
    if not (kind and path):
        raise LayerscopeError(f"--task-file {text!r} is not KIND:PATH: write it as in classification:tickets.csv")
    return f"{kind.lower()}:{path}"
