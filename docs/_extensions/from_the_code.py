"""What pages take from the code: a command's options, the records of metrics, names and docstrings.

Docstrings are read while the site is built. All else stands in the pages, for who reads them in the
repository, between `<!-- from the code: options profile -->` and `<!-- end -->`; `python
docs/_extensions/from_the_code.py` writes it anew.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib import import_module
from inspect import getdoc, isclass, isfunction
from itertools import groupby
from pathlib import Path
from textwrap import dedent, indent
from types import SimpleNamespace
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.util.docutils import SphinxDirective

import layerscope
from layerscope.cli.app import NAMES, app as command_line
from layerscope.core.errors import capital
from layerscope.evaluation.kinds import kind_names, kind_of
from layerscope.metrics.metric import Metric
from layerscope.runs.registry import DEFAULT, METRICS

COMPUTED_FROM = {
    "tokens": "The tokens of each sample",
    "pooled": "The pooled states of all samples",
    "views": "Samples and their augmentations",
    "path": "The path of a sample from layer to layer",
    "pairs": "Two layers",
    "lens": "What a layer predicts",
    "labels": "States and your labels",
    "forward": "A forward watched inside, or with a part left out",
}

UNIT_ROWS = SimpleNamespace(rows=("unit",))

TOP = [getattr(layerscope, name) for name in layerscope.__all__]


def options(command: str) -> str:
    """Return the usage and options of a command as Markdown."""
    own = command_line[command]
    said = f"# {command}", str(own.help)
    lines = own.generate_docs(output_format="markdown").splitlines()
    text = "\n".join(line for line in lines if line not in said)
    return text.replace(
        f"```console\n{command}", f"```console\n$ layerscope {command}", 1
    )


def metrics() -> str:
    """Return every metric that can be chosen, by what it is computed from, as Markdown."""
    return "\n\n".join(_metrics())


def _metrics() -> Iterator[str]:
    for needs, records in groupby(METRICS.values(), key=lambda metric: metric.needs):
        yield f"## {COMPUTED_FROM[needs]}"
        yield from (_metric(record) for record in records)


def _metric(metric: Metric) -> str:
    """Return what is known of a metric, by the words that its record has."""
    default = ", measured by default" if metric.name in DEFAULT else ""
    facts = [
        ("Formula", metric.formula),
        ("Reading", metric.direction),
        ("Source", metric.source),
    ]
    facts.append(("With `--keep-states none`", _streamed(metric)))
    lines = [f"- {name}: {_plain(text)}" for name, text in facts if text]
    title = f"### {_plain(capital(metric.title))}"
    return "\n".join(
        [title, "", f"`{metric.name}`{default}. {_plain(metric.meaning)}", "", *lines]
    )


def _streamed(metric: Metric) -> str:
    """Return which samples a metric is of where data are streamed."""
    return "of all samples" if metric.how.streams(UNIT_ROWS) else "of a seeded sample"


def _plain(text: str) -> str:
    """Return a text with nothing that Markdown would read as its own, but for what stands in backticks."""
    parts = text.split("`")
    parts[::2] = [re.sub(r"[\\*_<>\[\]|$]", r"\\\g<0>", part) for part in parts[::2]]
    return "`".join(parts)


def from_states() -> str:
    """Return a table of what states that another engine wrote give, and of what takes the model, by the records."""
    given = {
        "states, pooled or of tokens": ("pooled", "path", "pairs"),
        "and labels": ("labels",),
        "states of tokens": ("tokens",),
        "only a model that runs": ("lens", "views", "forward"),
    }
    lines = ["| from | metrics |", "| --- | --- |"]
    for what, kinds in given.items():
        names = [
            f"`{metric.name}`" for metric in METRICS.values() if metric.needs in kinds
        ]
        lines.append(f"| {what} | {', '.join(names)} |")
    return "\n".join(lines)


def task_kinds() -> str:
    """Return a table of the kinds of tasks on data of one's own, by their records."""
    kinds = map(kind_of, kind_names())
    rows = [f"| {kind.name} | {kind.reads} | {kind.score} |" for kind in kinds]
    return "\n".join(["| kind | reads | score |", "| --- | --- | --- |", *rows])


def names(module: str) -> str:
    """Return the functions and classes that a module hands on, each with its first sentence and example."""
    face = import_module(module)
    entries = {name: getattr(face, name) for name in face.__all__}
    lines = []
    for name, entry in entries.items():
        if isfunction(entry) or isclass(entry):
            text = str(getdoc(entry))
            lines += [
                f"- `{name}`: {_plain(' '.join(text.partition(PARAGRAPH)[0].split()))}",
                "",
            ]
            example = (
                dedent(text[text.index(start[0]) :])
                if (start := EXAMPLE.search(text))
                else ""
            )
            lines += (
                [indent(f"```pycon\n{example.partition(PARAGRAPH)[0]}\n```\n", "  ")]
                if example
                else []
            )
    return "\n".join(lines)


PARAGRAPH = "\n\n"
EXAMPLE = re.compile(r"^ *>>> ", re.M)
WRITERS = {
    "options": options,
    "metrics": metrics,
    "from-states": from_states,
    "names": names,
    "task-kinds": task_kinds,
}
BLOCK = re.compile(
    r"(<!-- from the code: ([\w-]+) ?(\S*) -->\n).*?(<!-- end -->)", re.S
)


def written(page: str) -> str:
    """Return a page with what it takes from the code as the code has it now."""

    def block(found: re.Match[str]) -> str:
        text = WRITERS[found[2]](*filter(None, [found[3]]))
        return f"{found[1]}\n{text.strip()}\n\n{found[4]}"

    return BLOCK.sub(block, page)


def public(module: str) -> str:
    """Return the names that a module hands on, and `layerscope` itself does not, for autodoc: functions first."""
    found = import_module(module)
    own = {name: getattr(found, name) for name in found.__all__}
    if module == "layerscope":
        order = [*NAMES, *own]
        own = {name: own[name] for name in sorted(own, key=order.index)}
    else:
        own = {
            name: value
            for name, value in own.items()
            if not any(value is known for known in TOP)
        }
    lines = [f".. currentmodule:: {module}"]
    for name in [name for name, value in own.items() if isfunction(value)]:
        lines += ["", f".. autofunction:: {name}"]
    for name in [name for name, value in own.items() if isclass(value)]:
        lines += ["", f".. autoclass:: {name}", "   :members:"]
    return "\n".join(["```{eval-rst}", *lines, "```"])


class Public(SphinxDirective):
    """`{public} MODULE`: its names, with their docstrings."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        """Return what stands on the page."""
        return self.parse_text_to_nodes(public(self.arguments[0]))


def escape(
    app: Sphinx, what: str, name: str, found: Any, options: Any, lines: list[str]
) -> None:
    """Keep formulas in docstrings, which are plain text, from being read as markup."""
    lines[:] = [
        line if line.lstrip().startswith((">>>", "...")) else _escaped(line)
        for line in lines
    ]


def _escaped(line: str) -> str:
    """Return a line of a docstring as reStructuredText, in which single backticks alone mean something."""
    # the name of a parameter is escaped already
    field = re.match(r"\s*:param [^:]*:", line)
    if field:
        return field[0] + _escaped(line[field.end() :])
    parts = line.replace("\\", "\\\\").split("`")
    for i in range(0, len(parts), 2):
        for mark in "*|_":
            parts[i] = parts[i].replace(mark, f"\\{mark}")
    return "`".join(parts)


def deal(app: Sphinx, env: BuildEnvironment, pages: list[str]) -> None:
    """Put the tutorials, whose code runs, evenly among the pages: each process reads pages that follow each other."""
    place: dict[str, float] = {}
    for runs in (False, True):
        own = [page for page in pages if page.startswith("tutorials/") == runs]
        place |= {page: i / len(own) for i, page in enumerate(own)}
    pages.sort(key=place.__getitem__)


def setup(app: Sphinx) -> dict[str, Any]:
    """Tell Sphinx of the directives, of docstrings in plain text, and of the order in which it reads pages."""
    app.add_directive("public", Public)
    app.connect("autodoc-process-docstring", escape, priority=900)
    app.connect("env-before-read-docs", deal)
    return {"parallel_read_safe": True}


if __name__ == "__main__":
    for file in Path(__file__).parents[1].rglob("*.md"):
        text = file.read_text(encoding="utf-8")
        file.write_text(written(text), encoding="utf-8", newline="\n")
