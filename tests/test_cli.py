"""The command line as a person types it: what is printed where."""

import errno
import inspect
import json
import os
import re
import resource
import subprocess
import sys
from importlib.resources import files

import pandas as pd
import pytest
import tiny
import torch
from safetensors.torch import save_file

import layerscope
from layerscope.cli.app import COMMANDS as GROUPS, HOMES, NAMES, app, machine
from layerscope.core.errors import spelled


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    path = tmp_path_factory.mktemp("data") / "reviews.csv"
    teams = [f"t{i % 3}" for i in range(30)]
    pd.DataFrame({"text": tiny.texts(30), "team": teams}).to_csv(path, index=False)
    return path


def test_help_does_not_wait_for_torch():
    script = (
        "import sys\n"
        "from layerscope.cli import main\n"
        "for words in (['--help'], *([name, '--help'] for name in sys.argv[1:]), ['--version'], []):\n"
        "    sys.argv = ['layerscope', *words]\n"
        "    print('typed:', words)\n"
        "    try: main()\n"
        "    except SystemExit as end: assert not end.code or not words, end.code\n"
        "    heavy = {'torch', 'transformers', 'pandas', 'numpy', 'sklearn'} & set(sys.modules)\n"
        "    assert not heavy, heavy"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, *NAMES], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout[-300:] + done.stderr
    assert done.stdout.count("typed:") == len(NAMES) + 3
    assert f"layerscope {layerscope.__version__}\n" in done.stdout
    start = "layerscope profile minilm --data stdlib-docs"
    assert start in " ".join(done.stdout.split())
    assert f"layerscope: no command is given: start with {start}" in done.stderr


def test_help_shows_commands_by_rank(cli):
    text = cli("--help").out
    assert text.index("Commands") < text.index("shrink ") < text.index("profile ")
    assert text.index("report ") < text.index("Research") < text.index("lens ")
    assert NAMES[:3] == ["shrink", "profile", "evaluate"] and len(NAMES) == 15


def test_every_command_has_its_summary_its_examples_and_lines_of_help():
    text = files("layerscope.cli").joinpath("examples.txt").read_text("utf-8")
    assert re.findall(r"^# (.+)$", text, re.M) == NAMES
    for name in NAMES:
        assert f"  layerscope {name} " in text
    for names in GROUPS.values():
        for name, summary in names.items():
            module = __import__(f"layerscope.cli.{HOMES[name]}", fromlist=["cli"])
            assert app[name].help == getattr(module, name).help == summary
            for option in app[name].assemble_argument_collection():
                assert len(str(option.parameter.help)) >= 10, option.name


def test_profile_prints_the_table_that_answers_and_with_long_all(
    cli, bert, data, tmp_path
):
    words = ("profile", bert, "--data", data, "--out", tmp_path / "run")
    words = (*words, "--label-column", "team", "--views", 1)
    printed, long = cli(*words), cli(*words, "--long")
    assert printed.status == long.status == 0, printed.err + long.err
    for out in (printed.out, long.out):
        assert str(tmp_path / "run") in "".join(out.split("\n"))
        assert "linear probe" in out
    assert len(printed.out.splitlines()) < 30 < len(long.out.splitlines())
    assert "--long shows all of it" in printed.out
    assert "curvature" not in printed.out and "--long" not in long.out
    assert all(word in long.out for word in ("What stands out", "curvature", "CKA"))
    run = layerscope.open_run(tmp_path / "run")
    assert run.info["command"].startswith(f"layerscope profile {bert} --data {data}")
    assert run.info["data"]["labels"]


def test_json_is_all_there_is_on_standard_output_and_quiet_leaves_errors_alone(
    cli, bert, data, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    words = f"profile {bert} --data {data} --metrics curvature,cka --quiet".split()
    printed = cli(*words, "--json")
    assert (printed.status, printed.err) == (0, "")
    result = json.loads(printed.out)
    # without --out the folder is named for model and data
    rows = layerscope.open_run("runs/tiny-bert-reviews").table()
    assert len(result["rows"]) == len(rows)
    assert result["rows"][0]["value"] == rows["value"].iloc[0]
    assert (result["depth"], result["path"]) == (3, "runs/tiny-bert-reviews")

    # what is called from Python after a command is spelled as in Python
    assert spelled("try `batch_size=8`") == "try `batch_size=8`"


def test_inspect(cli, bert):
    printed = cli("inspect", bert)
    assert printed.status == 0 and "bert.encoder.layer" in printed.out
    (found,) = json.loads(cli("inspect", bert, "--json").out)
    assert (found["depth"], found["width"], found["model"]) == (3, 32, "tiny-bert")
    assert found["blocks"] == [f"bert.encoder.layer.{i}" for i in range(3)]


def test_what_the_machine_refuses_is_a_line_of_its_own(tmp_path):
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(OSError, match="Too many levels") as error:
        (tmp_path / "loop").read_text()
    line = str(machine(error.value))
    assert line.startswith("a file cannot be used (") and "Too many levels" in line
    for too_much in (lambda: torch.empty(2**60), lambda: bytearray(2**60)):
        with pytest.raises((RuntimeError, MemoryError)) as error:
            too_much()
        assert str(machine(error.value)).startswith("out of memory: take fewer samples")
    assert machine(ValueError("a mistake of the program")) is None
    full = [OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "x/y")]
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    for save in (save_file, torch.save):
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, limits[1]))
        try:
            with pytest.raises(Exception) as error:
                save({"x": torch.zeros(10_000)}, tmp_path / "x")
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        full.append(error.value)
    for each in full:
        line = str(machine(each))
        assert line.startswith("a file cannot be written (") and "make room" in line


def test_a_link_to_a_missing_file_is_called_one(cli, tmp_path):
    link = tmp_path / "dangling.csv"
    link.symlink_to(tmp_path / "gone.csv")
    line = f"'{link}' is a link to '{tmp_path}/gone.csv', which does not exist: fix the link"
    for words in (("profile", "minilm", "--data", link), ("report", link)):
        printed = cli(*words)
        assert printed.line == line


def test_signatures_show_types():
    for name in NAMES:
        verb = getattr(layerscope, name, None)
        if inspect.isfunction(verb):
            shown = str(inspect.signature(verb)).partition("**")[0]
            assert not re.search(r"Annotated|least=|option_kinds", shown), verb
    samples = inspect.signature(layerscope.profile).parameters["samples"]
    assert str(samples) == "samples: int | str | None = 1000"
