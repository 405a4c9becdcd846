"""The site and the README: every command, option and public name is there, and every command line shown is one."""

import re
import shlex
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from test_examples import FACES

from layerscope.cli.app import NAMES, app

HERE = Path(__file__).parent.parent
PAGES = [HERE / "README.md", *sorted((HERE / "docs").rglob("*.md"))]
FENCE = re.compile(
    r"^```(?:console|bash|\{code-cell\} ipython3)\n(.*?)^```", re.M | re.S
)


def shown():
    """Return the page and the text of every command line of ours that a page shows."""
    return [
        (page.name, line.removeprefix("$ "))
        for page in PAGES
        for block in FENCE.findall(page.read_text(encoding="utf-8"))
        for line in block.splitlines()
        if line.removeprefix("$ ").startswith("layerscope ")
    ]


def names_of(command):
    own = app[command]
    return {
        name
        for argument in own.assemble_argument_collection()
        for name in argument.names
    } | {*own.help_flags}


LINK = re.compile(r"\]\(([^)#\s]+)[^)]*\)")


@pytest.mark.parametrize("page", HERE.glob("*.md"), ids=lambda page: page.name)
def test_links_of_a_page_beside_the_readme_lead_to_files(page):
    targets = LINK.findall(page.read_text(encoding="utf-8"))
    files = [target for target in targets if "://" not in target]
    assert [name for name in files if not (page.parent / name).exists()] == []


@pytest.mark.parametrize("command", NAMES)
def test_every_command_has_a_page_with_every_option(command):
    page = (HERE / "docs" / "commands" / f"{command}.md").read_text(encoding="utf-8")
    text = page.partition(f"<!-- from the code: options {command} -->")[2]
    assert f"$ layerscope {command}" in text
    assert [
        name for name in names_of(command) - {"--help", "-h"} if name not in text
    ] == []


def test_what_pages_take_from_the_code_is_as_the_code_has_it():
    pytest.importorskip("sphinx")
    sys.path.insert(0, str(HERE / "docs" / "_extensions"))
    from from_the_code import written

    pages = [
        page
        for page in PAGES
        if "<!-- from the code: " in page.read_text(encoding="utf-8")
    ]
    stale = [
        page.name
        for page in pages
        if written(text := page.read_text(encoding="utf-8")) != text
    ]
    assert len(pages) >= 28 and stale == [], (
        "write them anew: python docs/_extensions/from_the_code.py"
    )


def test_every_command_line_on_a_page_is_one():
    lines = shown()
    assert len(lines) > 60
    for page, line in lines:
        words = shlex.split(line, comments=True)
        command = next((word for word in words[1:] if not word.startswith("-")), None)
        # layerscope --help, layerscope COMMAND
        if command is None or command.isupper():
            continue
        assert command in NAMES, (page, line)
        options = {word.partition("=")[0] for word in words if word.startswith("--")}
        assert options <= names_of(command), (page, line)


def test_every_public_name_is_in_the_reference():
    pages = [
        page.read_text(encoding="utf-8")
        for page in (HERE / "docs" / "api").glob("*.md")
    ]
    assert [
        face
        for face in FACES
        if not any(f"```{{public}} {face}\n" in page for page in pages)
    ] == []


def test_every_page_is_in_a_table_of_contents():
    entries = [
        line for page in PAGES for line in page.read_text(encoding="utf-8").splitlines()
    ]
    assert [
        page.stem
        for page in PAGES[1:]
        if page.stem != "index"
        and not any(line.rpartition("/")[2] == page.stem for line in entries)
    ] == []


def test_the_metric_of_the_guide_works():
    guide = (HERE / "docs" / "guides" / "add-a-metric.md").read_text(encoding="utf-8")
    made = {"__name__": "participation"}
    exec(re.findall(r"^```python\n(.*?)^```", guide, re.M | re.S)[0], made)
    rows = np.random.default_rng(0).normal(size=(50, 4)) * np.array(
        [3.0, 1.0, 1.0, 0.1]
    )
    values = np.linalg.eigvalsh(np.cov(rows.T))
    found = made["participation"](torch.from_numpy(rows))
    assert float(found) == pytest.approx(
        values.sum() ** 2 / np.square(values).sum(), rel=1e-9
    )
    record = made["PARTICIPATION"]
    assert record.name == "participation"
    assert record.source.startswith("Gao et al. 2017")
