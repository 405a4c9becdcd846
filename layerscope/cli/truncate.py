from __future__ import annotations

from layerscope import truncate as verb
from layerscope.cli import output
from layerscope.cli.making import Options, command
from layerscope.cli.output import Json
from layerscope.core.errors import LayerscopeError
from layerscope.core.options import checked

EXAMPLES = """
The first four layers of a sentence encoder, with its pooling, for `SentenceTransformer("small")`:
  layerscope truncate minilm --layer 4 --out small

Three depths of the model of a run, with what each costs and scores:
  layerscope truncate runs/demo --layers 2,4,6 --out depths

One ONNX file with a tokenizer:
  layerscope truncate ./my-classifier --layer 6 --format onnx --out served
"""


@command(verb, EXAMPLES, argument="MODEL_OR_RUN")
def truncate(options: Options, *, json: Json = False) -> None:
    """Print what each depth costs and scores."""
    if "layer" not in options and "layers" not in options:
        raise LayerscopeError(
            "truncate needs a layer: give --layer K, or several with --layers, such as --layers 3,6,9"
        )
    from layerscope.core.saved import jsonable
    from layerscope.truncation.cutting import cut
    from layerscope.truncation.figures import document

    made = cut(checked(verb, options))
    output.finish(json, lambda: jsonable(made), lambda: document(made), f"\nwritten: {options['out']}")
