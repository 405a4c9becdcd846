"""The commands that look at a model: demo, profile, inspect, lens, compare."""

import sys
from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated, Any, cast

from cyclopts import Parameter

import layerscope
from layerscope.cli import output
from layerscope.cli.making import Options, command, command_line
from layerscope.cli.output import Figures, Json, into
from layerscope.core import processes
from layerscope.core.option_kinds import IN_CODE, Folder, Whole
from layerscope.core.options import MODEL, OUTPUT, checked
from layerscope.profiling import profile_checkpoints

Revisions = Annotated[
    str | None,
    Parameter(
        help="Checkpoints to profile and compare, separated by commas: revisions of a hub model, or folders in a local "
        "one.",
        group=MODEL, metavar="NAMES", negative=(),
    ),
]  # fmt: skip
Page = Annotated[str | None, into("HTML file for the grid; it opens offline.")]
Table = Annotated[str | None, into("CSV file for all numbers, one per row.")]


def run_demo(
    *,
    out: Annotated[str | Path, Folder(), OUTPUT] = "runs/demo",
    samples: Annotated[int | str, Whole(50, words=("all",))] = 1000,
    command: Annotated[str, IN_CODE] = "",
) -> tuple[str, Any]:
    """Profile the embedded MiniLM on the docstrings of Python's library: no download, a few minutes.

    Return the answer, `layer k: x % · the model as shipped: y % · z× faster · N`, and the run behind it: the layer that
    `select` takes, cross-validated linear-probe accuracies ± one standard error, and the speed measured here.

    Args:
        out: run folder.
        samples: number of docstrings, or all; choosing a layer takes at least 50.
        command: the command line that asks for this run, kept in the run folder.

    """
    asked = checked(run_demo, locals())
    run = layerscope.profile("minilm", "stdlib-docs", **vars(asked))
    return _answer(cast(layerscope.Selection, layerscope.select(run, progress=False))), run


def _answer(found: "layerscope.Selection") -> str:
    """Return the choice in a line, its score that of docstrings which had no part in choosing."""
    shipped = _share(found.baseline)
    about = found.basis.replace("sample", "docstring", 1).replace("classes", "modules", 1)
    if found.lacking:
        return f"no layer is recommended: {found.lacking}"
    if found.as_shipped or found.apart is None:
        return f"the model as shipped: {shipped} · no layer before the last comes near it · {about}"
    best = f"layer {found.layer}: {_share(found.apart)}"
    speed = [] if found.chosen.speedup is None else [f"{found.chosen.speedup:.1f}× faster"]
    return " · ".join([best, f"the model as shipped: {shipped}", *speed, about])


def _share(scored: Any) -> str:
    return f"{100 * scored.score:.1f} ±{100 * scored.stderr:.1f} %"


@command(run_demo, """
The run and its page in a folder of your choice:
  layerscope demo --out demo
""")  # fmt: skip
def demo(options: Options, *, json: Json = False) -> None:
    """Print the answer and the run."""
    answer, run = run_demo(**options, command=command_line())
    page = run.report()
    print(answer, file=sys.stderr if json else sys.stdout)  # in one line, however narrow the terminal
    output.finish(
        json,
        lambda: run.as_dict() | {"page": str(page)},
        lambda: replace(run.document(), answer=""),
        f"\nrun folder: {run.path}\npage: {page}",
        saved=run.path,
    )


@command(layerscope.profile, """
Every layer of a sentence encoder on the documentation of Python's library, without a download:
  layerscope profile minilm --data stdlib-docs

A language model on running text, with perplexity and saturation by layer:
  layerscope profile gpt2 --data novel.txt --out runs/novel

Your classifier's layers on your labels, 5,000 rows, CLS vectors:
  layerscope profile ./my-model --data tickets.csv --text-column body --label-column team --samples 5000 --pooling cls

Folders of images and of sounds, each sub-folder a label:
  layerscope profile google/vit-base-patch16-224 --data photos/
  layerscope profile openai/whisper-tiny --part encoder --data calls/

States that vLLM wrote, without the model:
  layerscope profile --states states/ --layers 0,9,18,27,36 --data texts.csv

Checkpoints of one training, each metric by layer and step on one page:
  layerscope profile EleutherAI/pythia-410m --revisions step1000,step16000,step143000 --data novel.txt --out runs/pythia
""")  # fmt: skip
def profile(options: Options, *, revisions: Revisions = None, figures: Figures = None, json: Json = False) -> None:
    """Print the run, or the comparison of all checkpoints, and draw its figures."""
    if revisions is not None:
        runs = profile_checkpoints(options.pop("model", None), revisions, **options, command=command_line())
        if processes.team().leads:
            out = str(runs[0].path.parent / "comparison")
            found = layerscope.compare(runs, out=out)
            output.finish(
                json, found.as_dict, found.document, f"\nruns: {', '.join(str(run.path) for run in runs)}",
                write=lambda: output.page_and_figures(found, out, figures),
            )  # fmt: skip
        return
    run = layerscope.profile(**options, command=command_line())
    if processes.team().leads:
        output.draw(run, figures)
        output.finish(json, run.as_dict, run.document, f"\nrun folder: {run.path}", saved=run.path)


@command(layerscope.inspect, """
The encoder of an encoder-decoder model:
  layerscope inspect google-t5/t5-small --part encoder
""")  # fmt: skip
def inspect(options: Options, *, json: Json = False) -> None:
    """Print what is found."""
    found = layerscope.inspect(**options)
    if json:
        output.as_json([asdict(entry) for entry in found])
        return
    for entry in found:
        output.show(entry.document())


@command(layerscope.lens, """
What every layer says comes next, over 24 tokens that the model writes itself:
  layerscope lens gpt2 --prompt "Simply put, the theory of relativity states" --tokens 24

What a masked language model puts into the gap, layer by layer, as a page:
  layerscope lens bert-base-uncased --prompt "Paris is the [MASK] of France." --page gap.html

The class each layer would give your samples, with tables, a page and paper figures:
  layerscope lens ./my-classifier --data tickets.csv --samples 100 --out lens --figures figures

Translators trained on one text, and how much nearer they come than the plain lens on another:
  layerscope lens gpt2 --data held-out.txt --samples 200 --tuned translators --train novel.txt
""")  # fmt: skip
def lens(options: Options, *, page: Page = None, figures: Figures = None, json: Json = False) -> None:
    """Print the reading, and write its pages and figures."""
    from layerscope.show.written import PAGE_MARK, PAGES, ending

    pages = [] if page is None else [ending(Path(page), "page", "--page", PAGES, PAGE_MARK)]
    reading, out = layerscope.lens(**options), options.get("out")
    pages += [] if out is None else [Path(out).expanduser() / "lens.html"]

    def write() -> list[Path]:
        output.draw(reading, figures)
        return [layerscope.report(reading, path) for path in pages]

    output.finish(json, reading.as_dict, reading.document, *output.written(out), write=write)


@command(layerscope.compare, """
Two models on the same samples; the folder gets the numbers and a page:
  layerscope compare runs/minilm runs/e5 --out both

Checkpoints of one training, by their steps:
  layerscope compare runs/step1000 runs/step2000 runs/step4000 --metrics prompt_entropy,curvature
""", argument="RUNS")  # fmt: skip
def compare(options: Options, *, csv: Table = None, figures: Figures = None, json: Json = False) -> None:
    """Print the comparison, and write its table, page and figures."""
    file = output.table_file(csv, layerscope.Comparison.HEADER)
    found = layerscope.compare(**options)
    output.write_table(file, lambda: found.table().to_csv(index=False))
    output.result(found, json, options.get("out"), figures)
