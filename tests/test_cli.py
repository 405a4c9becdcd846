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
from pathlib import Path

import pandas as pd
import pytest
import tiny
import torch
from commands import Forks
from safetensors.torch import save_file
from tiny import one_thread
from typed import Printed, cli

import layerscope
from layerscope.cli.app import COMMANDS as GROUPS, app, machine
from layerscope.core.errors import spelled
from layerscope.core.option_kinds import Several, Whole

__all__ = ["cli", "one_thread"]

COMMANDS = {
    name: summary for group in GROUPS.values() for name, summary in group.items()
}


@pytest.fixture(scope="module")
def bert(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny.saved(
        tiny.bert(), tmp_path_factory.mktemp("models") / "tiny-bert", special=True
    )


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("data") / "reviews.csv"
    frame = pd.DataFrame(
        {"text": tiny.texts(30), "team": [f"t{i % 3}" for i in range(30)]}
    )
    frame.to_csv(path, index=False)
    return path


def test_version(cli) -> None:
    printed = cli("--version")
    assert printed == Printed(0, f"layerscope {layerscope.__version__}\n", "")
    lines = cli("--version", "--verbose").out.splitlines()
    assert lines[0] == f"layerscope {layerscope.__version__}"
    assert f"torch {torch.__version__}" in lines
    assert f"Python {sys.version.split()[0]}" in lines


def test_help_does_not_wait_for_torch() -> None:
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
        [sys.executable, "-c", script, *COMMANDS], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout[-300:] + done.stderr
    assert done.stdout.count("typed:") == len(COMMANDS) + 3 and done.stdout.count(
        "layerscope"
    ) > len(COMMANDS)


def test_a_command_that_has_ended_leaves_python_its_own_spelling(cli) -> None:
    line = "try `batch_size=8`"
    assert cli("profile", "nope", "--data", "digits").status == 2
    assert spelled(line) == line


def test_every_command_has_examples() -> None:
    text = files("layerscope.cli").joinpath("examples.txt").read_text("utf-8")
    assert re.findall(r"^# (.+)$", text, re.M) == [*COMMANDS]
    shown = {
        line.split()[1]
        for line in text.splitlines()
        if line.startswith("  layerscope ")
    }
    assert shown == {*COMMANDS}


def test_help_teaches_by_example(cli) -> None:
    assert "layerscope profile minilm --data stdlib-docs" in " ".join(
        cli("profile", "--help").out.split()
    )


@pytest.mark.parametrize("name", COMMANDS)
def test_a_summary_is_the_first_sentence_of_its_verb(name: str) -> None:
    assert app[name].help == COMMANDS[name]
    (group,) = (title.lower() for title, names in GROUPS.items() if name in names)
    module = __import__(f"layerscope.cli.{group}", fromlist=[name])
    assert getattr(module, name).help == COMMANDS[name]


@pytest.mark.parametrize("name", COMMANDS)
def test_every_option_has_a_line_of_help(name: str) -> None:
    options = app[name].assemble_argument_collection()
    assert len(options) > 1
    assert [
        option.name for option in options if len(str(option.parameter.help)) < 10
    ] == []


def test_defaults_come_from_a_file(
    cli, bert: Path, data: Path, tmp_path: Path, monkeypatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "layerscope.toml").write_text(
        '[profile]\nmetrics = "curvature"\nviews = 0\nout = "mine"\n'
    )
    printed = cli("profile", bert, "--data", data)
    assert printed.status == 0
    assert printed.err.startswith(
        f"defaults from {tmp_path}/layerscope.toml: --metrics, --views, --out\n"
    )
    assert set(layerscope.open_run(tmp_path / "mine").table()["metric"]) == {
        "curvature"
    }
    (tmp_path / "layerscope.toml").write_text("[profile]\nsample = 5\n")
    line = f"{tmp_path}/layerscope.toml has 'sample', which is not an option of layerscope profile"
    assert cli("profile", bert).line == f"{line}: layerscope profile --help lists them"
    (tmp_path / "layerscope.toml").write_text("[profil]\nsamples = 5\n")
    assert cli("profile", bert).line.startswith(
        "layerscope.toml has 'profil', which is not a command, did you mean profile?"
    )
    (tmp_path / "layerscope.toml").write_text("[profile\n")
    printed = cli("profile", bert)
    assert printed.status == 2 and printed.line.startswith(
        "layerscope.toml cannot be used (TOMLDecodeError: "
    )


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (
            ("--task-file", "sts:pairs.csv"),
            "option --task-file is gone: give the same KIND:FILE to --data",
        ),
        (
            ("--data", "pairs.csv"),
            "--data 'pairs.csv' is not KIND:FILE: write it as in classification:tickets.csv",
        ),
    ],
)
def test_own_files_of_evaluate_are_data_with_their_kind(
    cli, words: tuple[str, str], line: str
) -> None:
    printed = cli("evaluate", "minilm", *words)
    assert (printed.status, printed.line) == (2, line)


@pytest.mark.parametrize(
    "key", ["trust_remote_code", "trust-remote-code", "allow_pickle"]
)
def test_a_file_in_the_folder_cannot_trust_for_the_user(
    cli, tmp_path: Path, monkeypatch, key: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "layerscope.toml").write_text(f"[inspect]\n{key} = true\n")
    printed = cli("inspect", "./model")
    name, flag = key.replace("-", "_"), f"--{key.replace('_', '-')}"
    assert printed.status == 2
    assert printed.line == (
        f"{tmp_path}/layerscope.toml sets {name}, which no file may: delete it there, and give {flag} yourself"
    )


def test_profile_prints_the_table_that_answers_and_with_long_all(
    cli, bert: Path, data: Path, tmp_path: Path
) -> None:
    words = (
        "profile",
        bert,
        "--data",
        data,
        "--out",
        tmp_path / "run",
        "--label-column",
        "team",
        "--views",
        1,
    )
    printed, long = cli(*words), cli(*words, "--long")
    assert printed.status == long.status == 0, printed.err + long.err
    for out in (printed.out, long.out):
        assert str(tmp_path / "run") in "".join(out.split("\n"))
        assert "linear probe" in out
    assert len(printed.out.splitlines()) < 30 < len(long.out.splitlines())
    assert (
        "--long also shows: What stands out, What the model's head reads" in printed.out
    )
    assert "curvature" not in printed.out and "--long" not in long.out
    assert all(word in long.out for word in ("What stands out", "curvature", "CKA"))
    run = layerscope.open_run(tmp_path / "run")
    assert run.info["command"].startswith(f"layerscope profile {bert} --data {data}")
    assert run.info["data"]["labels"]


def test_json_is_all_there_is_on_standard_output(
    forks: Forks, bert: Path, data: Path, tmp_path: Path
) -> None:
    printed = forks.run(
        "profile",
        bert,
        "--data",
        data,
        "--out",
        tmp_path / "run",
        "--metrics",
        "curvature,cka",
        "--json",
    )
    assert printed.status == 0, printed.err
    found = json.loads(printed.out)
    rows = layerscope.open_run(tmp_path / "run").table()
    assert len(found["rows"]) == len(rows)
    assert found["rows"][0]["value"] == rows["value"].iloc[0]
    assert found["depth"] == 3 and found["path"] == str(tmp_path / "run")
    assert "Loading weights" not in printed.err


def test_without_out_the_folder_is_named_for_model_and_data(
    cli, bert: Path, data: Path, tmp_path: Path, monkeypatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert cli("profile", bert, "--data", data, "--metrics", "curvature").status == 0
    assert [p.name for p in (tmp_path / "runs").iterdir()] == ["tiny-bert-reviews"]


def test_inspect(cli, bert: Path) -> None:
    printed = cli("inspect", bert)
    assert printed.status == 0 and "bert.encoder.layer" in printed.out
    (found,) = json.loads(cli("inspect", bert, "--json").out)
    assert (found["depth"], found["width"], found["model"]) == (3, 32, "tiny-bert")
    assert found["blocks"] == [f"bert.encoder.layer.{i}" for i in range(3)]


def test_no_command_shows_them_all_and_says_so(cli) -> None:
    printed = cli()
    assert printed.status == 2
    assert "profile" in printed.out and "demo" not in printed.out
    assert (
        printed.line
        == "no command is given: start with layerscope profile minilm --data stdlib-docs"
    )


def test_what_the_machine_refuses_is_a_line_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to("loop")
    told = []
    for do in (
        lambda: (tmp_path / "loop").read_text(),
        lambda: torch.empty(2**60),
        lambda: bytearray(2**60),
    ):
        with pytest.raises((OSError, RuntimeError, MemoryError)) as error:
            do()
        told.append(machine(error.value))
    full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "x/y")
    assert told[0].startswith(
        f"{str(tmp_path / 'loop')!r} cannot be used (Too many levels of symbolic links): check"
    )
    assert told[1] == told[2] and told[1].startswith(
        "out of memory: take fewer samples"
    )
    line = "'x/y' cannot be written (No space left on device): make room, then run the same command again"
    assert machine(full) == line
    assert machine(ValueError("a mistake of the program")) is None


def test_a_library_that_may_write_no_more_is_a_line_of_its_own(tmp_path: Path) -> None:
    limits, told = resource.getrlimit(resource.RLIMIT_FSIZE), []
    for save in (save_file, torch.save):
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, limits[1]))
        try:
            with pytest.raises(Exception) as error:
                save({"x": torch.zeros(10_000)}, tmp_path / "x")
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        told.append(machine(error.value))
    assert (
        told[0]
        == "a file cannot be written (File too large): make room, then run the same command again"
    )
    assert told[1].startswith(
        "a file cannot be written (torch does not say why, as on a full disk): make room"
    )


@pytest.mark.parametrize(
    ("text", "layers"),
    [
        ("1..3", [1, 2, 3]),
        ("1-3", [1, 2, 3]),
        ("0, 2-4,6", [0, 2, 3, 4, 6]),
        ("-1", [-1]),
    ],
)
def test_layers_are_numbers_and_ranges(text: str, layers: list[int]) -> None:
    assert Several(Whole()).take("layers", text) == layers


def test_a_link_to_a_missing_file_is_called_one(
    cli, bert: Path, tmp_path: Path
) -> None:
    link = tmp_path / "dangling.csv"
    link.symlink_to(tmp_path / "gone.csv")
    wanted = f"'{link}' is a link to '{tmp_path}/gone.csv', which does not exist: fix the link"
    for command in (
        ("profile", bert, "--data", link),
        ("profile", link),
        ("report", link),
        ("select", link),
    ):
        assert (
            cli(
                *command,
                *(("--out", tmp_path / "out") if command[0] == "profile" else ()),
            ).line
            == wanted
        )


def test_quiet_leaves_standard_error_to_errors(
    cli, bert: Path, data: Path, tmp_path: Path
) -> None:
    words = ("profile", bert, "--data", data, "--metrics", "rankme", "--quiet")
    printed = cli(*words, "--out", tmp_path / "run")
    assert printed.status == 0 and printed.err == "" and "run folder" in printed.out
    assert cli(*words, "--samples", "none").line.startswith("--samples is 'none'")


def test_signatures_show_types() -> None:
    verbs = [
        getattr(layerscope, name, None) for names in GROUPS.values() for name in names
    ]
    for verb in filter(inspect.isfunction, verbs):
        shown = str(inspect.signature(verb)).partition("**")[0]
        assert not re.search(r"Annotated|least=|option_kinds", shown), verb
    samples = inspect.signature(layerscope.profile).parameters["samples"]
    assert str(samples) == "samples: int | str | None = 1000"
