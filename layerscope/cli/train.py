from __future__ import annotations

from layerscope.cli import output
from layerscope.cli.making import Options, command
from layerscope.cli.output import Json
from layerscope.training.training import train as verb, trained

EXAMPLES = """
A sentence encoder becomes a classifier whose every layer can be the last:
  layerscope train minilm --train reviews.csv --eval held.csv --out trained

The same data, the rival: the last layer alone; and separate models of 3 and 6 layers:
  layerscope train minilm --train reviews.csv --objective standard --baseline-depths 3,6 --out standard

A vision model from random weights, the paper's settings but for fewer epochs:
  layerscope train vit/config.json --from-config --train photos/ --preset tracing-deit --epochs 50 --out vit

A language model on running text:
  layerscope train gpt2 --train novel.txt --task causal-lm --max-length 256 --out novelist
"""


@command(verb, EXAMPLES)
def train(options: Options, *, json: Json = False) -> None:
    """Print what each depth scores and costs."""
    done = trained(options)
    if done.lines:  # of several processes, only the first one has some
        output.finish(json, done.as_dict, done.document, f"written: {done.path}")
