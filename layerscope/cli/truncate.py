from __future__ import annotations

from layerscope.cli import output
from layerscope.cli.making import Json, Options, command
from layerscope.core.errors import LayerscopeError
from layerscope.core.options import checked
from layerscope.truncation.truncator import truncate as verb

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
    from layerscope.truncation.cutting import cut

    made = cut(checked(verb, options))
    if json:
        from dataclasses import asdict

        output.as_json([asdict(entry) for entry in made])
        return
    from layerscope.core.progress import paper
    from layerscope.show.terminal import show
    from layerscope.truncation.document import document

    show(document(made), paper())
    print(f"\nwritten: {options['out']}")
