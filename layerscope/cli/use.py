"""The commands that make something of a model and its results: truncate, train, exits, generate, extract, report."""

import shlex
import sys
from itertools import chain
from pathlib import Path

import layerscope
from layerscope.cli import output
from layerscope.cli.making import Options, command
from layerscope.cli.output import Figures, Json
from layerscope.core import processes
from layerscope.core.errors import LayerscopeError
from layerscope.core.options import checked


@command(layerscope.truncate, """
The layer that `layerscope select scores/minilm --out choice` chose:
  layerscope truncate choice --out small

The first four layers of a sentence encoder, with its pooling, for `SentenceTransformer("small")`:
  layerscope truncate minilm --layer 4 --out small

Three depths of the model of a run, with what each costs and scores:
  layerscope truncate runs/demo --layers 2,4,6 --out depths

A mix of two layers, with the weights that select names:
  layerscope truncate minilm --mix 4=0.47,5=0.53 --out mixed

Without four blocks in the middle, and trained again to heal:
  layerscope truncate ./my-lm --drop 4-7 --out shorter
  layerscope train shorter --train novel.txt --task causal-lm --out healed

One ONNX file with a tokenizer:
  layerscope truncate ./my-classifier --layer 6 --format onnx --out served
""", argument="MODEL_OR_RUN")  # fmt: skip
def truncate(options: Options, *, json: Json = False) -> None:
    """Print what each depth costs and scores."""
    options = _chosen(options)
    if not {"layer", "layers", "drop", "mix", "dim"} & options.keys() and isinstance(options["given"], str):
        raise LayerscopeError(
            "truncate needs a layer: give --layer K, or several with --layers, such as --layers 3,6,9; or blocks to "
            "leave out with --drop, such as --drop 4-7,9"
        )
    from layerscope.core.saved import jsonable
    from layerscope.truncation.cutting import cut
    from layerscope.truncation.figures import document

    made = cut(checked(layerscope.truncate, options))
    output.finish(json, lambda: jsonable(made), lambda: document(made), f"\nwritten: {options['out']}")


def _chosen(options: Options) -> Options:
    """Return the options with the choice that a folder of `select` holds: a layer with its model, or blocks to drop."""
    from layerscope.selection import open_removal, open_selection, removal, selection

    folder = Path(options["given"])
    if selection.STORE.is_in(folder):
        return {**options, "given": open_selection(folder)}
    if not removal.STORE.is_in(folder):
        return options
    found = open_removal(folder)
    return {"drop": found.blocks, **options, "given": found.source}


@command(layerscope.train, """
A sentence encoder becomes a classifier whose every layer can be the last:
  layerscope train minilm --train reviews.csv --eval held.csv --out trained

The same data with the loss of the last layer alone, and separate models of 3 and 6 layers:
  layerscope train minilm --train reviews.csv --objective standard --baseline-depths 3,6 --out standard

A vision model from random weights, the paper's settings but for fewer epochs:
  layerscope train vit/config.json --from-config --train photos/ --preset tracing-deit --epochs 50 --out vit

A language model on running text:
  layerscope train gpt2 --train novel.txt --task causal-lm --max-length 256 --out novelist
""")  # fmt: skip
def train(options: Options, *, json: Json = False) -> None:
    """Print what each depth scores and costs."""
    from layerscope.training.training import trained

    done = trained(options)
    if done.lines:  # of several processes, only the first one has some
        output.finish(json, done.as_dict, done.document, f"written: {done.path}")


@command(layerscope.exits, """
At most one prediction in a hundred may change, with 95 % confidence; labels are not needed:
  layerscope exits ./my-classifier --data held-out.csv --out early

At least 90 % accuracy, in the batches of your server, with paper figures:
  layerscope exits ./my-classifier --data held-out.csv --batch-size 8 --min-accuracy 0.9 --figures figures/

Exits of your own choice, by the margin between the two likeliest classes:
  layerscope exits ./my-vit --data photos/ --exits 4,8 --criterion margin --json

A language model: which layer should draft text like this, and does that pay on this machine?
  layerscope exits gpt2 --data novel.txt --max-new-tokens 128 --out drafts
""")  # fmt: skip
def exits(options: Options, *, figures: Figures = None, json: Json = False) -> None:
    """Print the report, and write its page and figures."""
    output.result(layerscope.exits(**options), json, options.get("out"), figures)


@command(layerscope.generate, """
A story as each depth would tell it, by nucleus sampling:
  layerscope generate gpt2 --prompt "Once upon a time" --layers all --top-p 0.95

Accuracy, perplexity, coherence and diversity by layer, over the beginnings of 32 passages of a novel:
  layerscope generate gpt2 --data novel.txt --layers all --measure --max-new-tokens 128 --top-p 0.95 --out depths

The same text as the whole model's, sooner, with the drafts that `exits` chose:
  layerscope generate gpt2 --prompt "Once upon a time" --drafts drafts
""")  # fmt: skip
def generate(options: Options, *, figures: Figures = None, json: Json = False) -> None:
    """Print the texts and how good they are, and write their page and figures."""
    if figures is not None and not options.get("measure"):
        raise LayerscopeError("--figures draws what --measure measures: give both")
    output.result(layerscope.generate(**options), json, options.get("out"), figures)


@command(layerscope.extract, """
Two layers of a sentence encoder for every row of a Parquet file, as Parquet:
  layerscope extract minilm --data tickets.parquet --layers 3,6 --format parquet --out states

The last layer's state of every token, in half precision:
  layerscope extract gpt2 --data novel.txt --layers -1 --tokens --store-dtype bfloat16 --out tokens

One of eight workers, each started by itself, and what joins them in the end:
  layerscope extract ./my-encoder --data corpus/ --layers 8,12 --shard 0/8 --out states
  layerscope merge states
""")  # fmt: skip
def extract(options: Options, *, json: Json = False) -> None:
    """Print what was written."""
    words = [word for word in sys.argv[1:] if not word.startswith("--shard=")]
    at = words.index("--shard") if "--shard" in words else len(words)
    again = shlex.join(["layerscope", *words[:at], *words[at + 2 :]])  # makes whatever is missing, of any shard
    found = layerscope.extract(**options, command=again)
    if processes.team().leads:
        output.finish(json, found.as_dict, found.document, saved=found.path)


@command(layerscope.merge, """
The folder that all workers wrote to:
  layerscope merge states

Folders of machines that share no disk; the chunks of the others are brought into the first:
  layerscope merge states /mnt/second/states /mnt/third/states
""", argument="FOLDERS")  # fmt: skip
def merge(options: Options, *, json: Json = False) -> None:
    """Print what is there."""
    found = layerscope.merge(**options)
    output.finish(json, found.as_dict, found.document, saved=found.path)


@command(layerscope.report, """
A run and the scores of the same model, with paper figures:
  layerscope report runs/a scores/a --out both.html --figures figures/
""", argument="RUNS")  # fmt: skip
def report(options: Options, *, figures: Figures = None, json: Json = False) -> None:
    """Write the page and the figures."""
    from layerscope.reports.results import opened

    shown = list(chain(*opened(options.pop("shown"))))
    page = layerscope.report(shown, **options)
    drawn = output.draw(shown, figures)
    if json:
        output.as_json({"page": str(page), "figures": drawn})
        return
    print(f"page: {page}")
