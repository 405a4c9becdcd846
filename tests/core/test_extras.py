"""What an extra brings is missed before the work begins, and no line proposes a command that lacks it."""

import re
import sys
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest
from typed import refused

import layerscope
from layerscope.core.extras import PACKAGES

LINES = {
    "report none": ("vl_convert", "report needs vl_convert", "charts"),
    "train none --train none --out none": ("accelerate", "train needs accelerate", "accelerate"),
    "truncate none --layer 1 --format onnx --out none": ("onnxscript", "--format onnx needs onnxscript", "onnx"),
    "truncate none --layer 1 --format sentence-transformers --out none": (
        "sentence_transformers", "--format sentence-transformers needs sentence_transformers", "sentence-transformers",
    ),
    "reproduce T-tab1": ("vl_convert", "reproduce needs vl_convert", "charts"),
}  # fmt: skip
"""A command line, a package that it lacks, and how the line on it begins; none of the inputs exists."""


def without(package, monkeypatch):
    monkeypatch.setitem(sys.modules, package, None)


@pytest.mark.parametrize("line", LINES)
def test_a_command_names_the_extra_that_it_lacks_before_it_reads_anything(
    line, cli, monkeypatch
):
    package, what, extra = LINES[line]
    without(package, monkeypatch)
    printed = cli(*line.split())
    assert (printed.status, printed.out) == (2, "")
    assert printed.line == f'{what}: pip install "layerscope[{extra}]"'
    assert printed.err.count("\n") == 1


def test_in_python_a_verb_names_it_too(monkeypatch):

    without("onnx", monkeypatch)
    with refused("^`format='onnx'` needs onnx: "):
        layerscope.truncate("none", 1, "none", format="onnx")


def test_a_model_that_was_in_memory_is_not_what_a_command_opens(labelled):
    choice = layerscope.select(labelled, max_loss=100)
    assert choice.layer == 1 and not choice.document().commands
    assert (
        "nothing to truncate: the run was made without a model that a command can open"
        in choice.document().notes
    )
    with refused("^the selection does not say where Sequential is: give the"):
        layerscope.truncate(choice, out="none")


def test_a_folder_is_written_without_the_package_of_its_page(
    labelled, cli, tmp_path, monkeypatch
):
    without("vl_convert", monkeypatch)
    printed = cli(
        "select",
        labelled.path,
        "--max-loss",
        "100",
        "--out",
        tmp_path / "choice",
    )
    assert printed.status == 0 and printed.err.endswith(
        'no page: it needs vl_convert (pip install "layerscope[charts]")\n'
    )
    assert f"written: {tmp_path / 'choice'}" in printed.out
    assert layerscope.open_selection(tmp_path / "choice").layer == 1
    assert not list(tmp_path.rglob("*.html"))


def test_the_packages_of_an_extra_are_those_that_it_installs():
    project = tomllib.loads(
        (Path(layerscope.__file__).parents[1] / "pyproject.toml").read_text("utf-8")
    )["project"]
    extras = project["optional-dependencies"]

    def installed_by(extra):
        brought = set[str]()
        for requirement in extras[extra]:
            name, _, others = re.split(r"[<>=]", requirement)[0].partition("[")
            if name == "layerscope":
                brought.update(*map(installed_by, others.rstrip("]").split(",")))
            else:
                brought.add(name.replace("_", "-").lower())
        return brought

    distributions = packages_distributions()
    for extra, packages in PACKAGES.items():
        named = {
            distributions[package][0].replace("_", "-").lower() for package in packages
        }
        assert named == installed_by(extra), extra
