from __future__ import annotations

from layerscope import profile as verb
from layerscope.cli import output
from layerscope.cli.making import Options, command, command_line
from layerscope.cli.output import Figures, Json
from layerscope.core import processes

EXAMPLES = """
Every layer of a sentence encoder on the documentation of Python's library, without a download:
  layerscope profile minilm --data stdlib-docs

A language model on running text, with perplexity and saturation by layer:
  layerscope profile gpt2 --data novel.txt --out runs/novel

Your classifier's layers on your labels, 5,000 rows, CLS vectors:
  layerscope profile ./my-model --data tickets.csv --text-column body --label-column team --samples 5000 --pooling cls

Images and sounds, a folder each, sub-folder = label:
  layerscope profile google/vit-base-patch16-224 --data photos/
  layerscope profile openai/whisper-tiny --part encoder --data calls/
"""


@command(verb, EXAMPLES)
def profile(options: Options, *, figures: Figures = None, json: Json = False) -> None:
    """Print the run, and draw its figures."""
    run = verb(**options, command=command_line())
    if processes.team().leads:
        output.draw(run, figures)
        output.finish(json, run.as_dict, run.document, f"\nrun folder: {run.path}", saved=run.path)
