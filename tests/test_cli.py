"""The command line as a person types it: what is printed where, and one line for every mistake."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pandas as pd
import pytest
import tiny
import torch
from tiny import one_thread

import layerscope
from layerscope.cli import main

__all__ = ["one_thread"]


@dataclass(frozen=True)
class Printed:
    status: int
    out: str
    err: str

    @property
    def line(self) -> str:
        """The one line that tells a mistake."""
        assert "Traceback" not in self.err + self.out
        told = [line for line in self.err.splitlines() if line.startswith("layerscope: ")]
        assert len(told) == 1, self.err
        assert self.err.splitlines()[-1] == told[0], self.err
        return told[0].removeprefix("layerscope: ")


@pytest.fixture
def cli(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Callable[..., Printed]:
    def call(*arguments: object) -> Printed:
        monkeypatch.setattr(sys, "argv", ["layerscope", *map(str, arguments)])
        capfd.readouterr()
        with pytest.raises(SystemExit) as end:
            main()
        out, err = capfd.readouterr()
        return Printed(int(end.value.code or 0), out, err)

    return call


def process(*arguments: object, **environment: str) -> Printed:
    command = [sys.executable, "-m", "layerscope", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, env=os.environ | environment, timeout=120)
    return Printed(done.returncode, done.stdout, done.stderr)


@pytest.fixture(scope="module")
def bert(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny.saved(tiny.bert(), tmp_path_factory.mktemp("models") / "tiny-bert", special=True)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("data") / "reviews.csv"
    frame = pd.DataFrame({"text": tiny.texts(30), "team": [f"t{i % 3}" for i in range(30)]})
    frame.to_csv(path, index=False)
    return path


def test_version(cli) -> None:
    printed = cli("--version")
    assert printed == Printed(0, f"layerscope {layerscope.__version__}\n", "")


@pytest.mark.parametrize("arguments", [["--help"], ["profile", "--help"], ["inspect", "--help"], ["--version"], []])
def test_help_does_not_wait_for_torch(arguments: list[str]) -> None:
    script = (
        "import sys; sys.argv = ['layerscope', *sys.argv[1:]]\n"
        "from layerscope.cli import main\n"
        "try: main()\n"
        "except SystemExit as end: assert not end.code or len(sys.argv) == 1, end.code\n"
        "heavy = {'torch', 'transformers', 'pandas', 'numpy', 'sklearn'} & set(sys.modules)\n"
        "assert not heavy, heavy"
    )
    done = subprocess.run([sys.executable, "-c", script, *arguments], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "layerscope" in done.stdout + done.stderr


def test_help_teaches_by_example(cli) -> None:
    assert "layerscope profile minilm --data stdlib-docs" in " ".join(cli("profile", "--help").out.split())


def test_profile_prints_a_table_and_where_it_lies(cli, bert: Path, data: Path, tmp_path: Path) -> None:
    printed = cli("profile", bert, "--data", data, "--out", tmp_path / "run", "--label-column", "team", "--views", 1)
    assert printed.status == 0, printed.err
    assert str(tmp_path / "run") in "".join(printed.out.split("\n"))
    for word in ("layer", "curvature", "CKA", "linear"):
        assert word.lower() in printed.out.lower()
    run = layerscope.open_run(tmp_path / "run")
    assert run.info["command"].startswith(f"layerscope profile {bert} --data {data}")
    assert run.info["data"]["labels"]


def test_json_is_all_there_is_on_standard_output(bert: Path, data: Path, tmp_path: Path) -> None:
    printed = process(
        "profile", bert, "--data", data, "--out", tmp_path / "run", "--metrics", "curvature,cka", "--json"
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


WRONG_OPTIONS = [
    (["--metrics", "curvatur"], "metric 'curvatur' does not exist, did you mean curvature?: choose from default,"),
    (["--metrics", ""], "metric '' does not exist: choose from default"),
    (["--pooling", "man"], "pooling 'man' does not exist, did you mean mean?: choose auto or some of mean,"),
    (["--device", "cuda:7"], "device 'cuda:7' is not on this machine: choose auto, cpu,"),
    (["--device", "gpu"], "device 'gpu' is not on this machine: choose auto, cpu,"),
    (["--dtype", "float8"], "dtype 'float8' does not exist: choose auto, float32, float16, bfloat16, float64"),
    (["--store-dtype", "int8"], "--store-dtype 'int8' does not exist: choose float32 or float16"),
    (["--batch-size", "0"], "--batch-size 0 makes no sense: give 1 or more"),
    (["--samples", "-3"], "--samples -3 makes no sense: give 2 or more"),
    (["--samples", "abc"], "--samples 'abc' is no number: give a whole number or all"),
    (["--max-length", "0"], "--max-length 0 makes no sense: give 1 or more"),
    (["--max-length", "65"], "max length 65 is beyond the model's 64 positions: give at most that"),
    (["--alpha", "x"], "--alpha 'x' is no number: give one, or several with commas, such as 1,2"),
    (["--alpha", "0.5"], "--alpha 0.5 makes no sense: give orders of 1 or more, such as 1 or 1,2"),
    (["--alpha", "nan"], "--alpha nan makes no sense: give orders of 1 or more, such as 1 or 1,2"),
    (["--alpha", "inf"], "--alpha inf makes no sense: give orders of 1 or more, such as 1 or 1,2"),
    (["--alpha", ""], "--alpha '' is no number: give one, or several with commas, such as 1,2"),
    (["--views", "-1"], "--views -1 makes no sense: give 0 (none) or more"),
    (["--view-samples", "1"], "--view-samples 1 makes no sense: give 2 or more"),
    (["--view-share", "nan"], None),
    (["--view-share", "7"], None),
    (["--view-kinds", "swop"], None),
    (["--view-kinds", "crop"], None),
    (["--chunk", "1"], "--chunk 1 makes no sense: give 2 or more"),
    (["--chunk", "8"], "--chunk packs running text: this data has samples of its own, leave --chunk out"),
    (["--lens-tokens", "0"], "--lens-tokens 0 makes no sense: give 1 or more, all, or auto"),
    (["--lens-tokens", "few"], "--lens-tokens 'few' is no number: give a whole number or all"),
    (["--entropy-samples", "0"], "--entropy-samples 0 makes no sense: give 1 or more"),
    (["--seed", "-1"], "--seed -1 makes no sense: give 0 or more"),
    (["--text-column", "body"], None),
    (["--label-column", "tem"], None),
    (["--part", "vision"], None),
    (["--blocks", "bert.nothing"], None),
    (["--norm", "bert.nothing"], None),
    (["--batch-size", "many"], None),
    (["--sampels", "5"], None),
]  # fmt: skip


@pytest.mark.parametrize(("options", "line"), WRONG_OPTIONS, ids=["=".join(o) for o, _ in WRONG_OPTIONS])
def test_a_wrong_option_is_one_line(
    cli, bert: Path, data: Path, tmp_path: Path, options: list[str], line: str | None
) -> None:
    printed = cli("profile", bert, "--data", data, "--out", tmp_path / "run", *options)
    assert printed.status == 2, printed.err
    assert printed.out == ""
    told = printed.line
    if line is not None:
        assert told.startswith(line)
    assert len(told) < 400
    assert not (tmp_path / "run" / "run.json").exists()


def test_a_misspelt_option_or_command_is_answered_with_the_near_one(cli, bert: Path) -> None:
    assert "--samples" in cli("profile", bert, "--sampels", "5").line
    wrong = cli("profil", bert)
    assert wrong.status == 2 and "profile" in wrong.line
    assert cli("profile").status == 2


def test_wrong_data_is_one_line(cli, bert: Path, data: Path, tmp_path: Path) -> None:
    (tmp_path / "empty.csv").write_text("")
    (tmp_path / "empty.txt").write_text("\n \n")
    for name, word in (("none.csv", "does not exist"), ("empty.csv", "empty"), ("empty.txt", ""), (".", "")):
        printed = cli("profile", bert, "--data", tmp_path / name, "--out", tmp_path / "run")
        assert printed.status == 2 and word in printed.line
    nearly = cli("profile", bert, "--data", data.with_name("review.csv"), "--out", tmp_path / "run")
    assert "reviews.csv" in nearly.line
    assert not (tmp_path / "run").exists()


def without_weights(folder: Path) -> None:
    (folder / "model.safetensors").unlink()


def pickled(folder: Path) -> None:
    without_weights(folder)
    torch.save(tiny.bert().state_dict(), folder / "pytorch_model.bin")


def broken_config(folder: Path) -> None:
    (folder / "config.json").write_text('{"model_type": "bert", ')


def empty_config(folder: Path) -> None:
    (folder / "config.json").write_text("{}")


def no_config(folder: Path) -> None:
    (folder / "config.json").unlink()


def unknown_type(folder: Path) -> None:
    (folder / "config.json").write_text('{"model_type": "no-such-model"}')


def truncated(folder: Path) -> None:
    weights = folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:5000])


def empty_weights(folder: Path) -> None:
    (folder / "model.safetensors").write_bytes(b"")


def other_sizes(folder: Path) -> None:
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"hidden_size": 64}))


def remote_code(folder: Path) -> None:
    config = json.loads((folder / "config.json").read_text())
    config |= {"model_type": "mine", "architectures": ["Mine"]}
    config["auto_map"] = {
        "AutoConfig": "mine.MineConfig",
        "AutoModel": "mine.Mine",
        "AutoModelForCausalLM": "mine.Mine",
    }
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "mine.py").write_text(f"open({str(folder / 'ran')!r}, 'w')\n")


def no_tokenizer(folder: Path) -> None:
    for path in folder.glob("tokenizer*"):
        path.unlink()


BROKEN = {
    without_weights: "holds no weights (*.safetensors): save the model there again",
    pickled: "are pickles (pytorch_model.bin), which can run code when loaded: convert them to safetensors, "
    "or trust them with --allow-pickle",
    broken_config: "",
    empty_config: "",
    no_config: "holds no config.json",
    unknown_type: "",
    truncated: "",
    empty_weights: "",
    other_sizes: "",
    remote_code: "runs code of its own when loaded: read it, then allow it with --trust-remote-code",
    no_tokenizer: "",
}


@pytest.mark.parametrize(("damage", "line"), BROKEN.items(), ids=[d.__name__ for d in BROKEN])
@pytest.mark.parametrize("verb", ["profile", "inspect"])
def test_a_broken_model_folder_is_one_line(cli, bert, data, tmp_path: Path, verb: str, damage, line: str) -> None:
    folder = tmp_path / "model"
    shutil.copytree(bert, folder)
    damage(folder)
    options = ["--data", data, "--out", tmp_path / "run"] if verb == "profile" else []
    printed = cli(verb, folder, *options)
    assert printed.status == 2, printed.err
    assert printed.out == ""
    assert line in printed.line and str(folder) in printed.line
    assert not (folder / "ran").exists()
    assert not (tmp_path / "run").exists()


def test_pickles_load_when_they_are_trusted(cli, bert, tmp_path: Path) -> None:
    folder = tmp_path / "model"
    shutil.copytree(bert, folder)
    pickled(folder)
    assert cli("inspect", folder, "--allow-pickle", "--json").status == 0


def test_a_model_that_is_no_folder(cli, data: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    printed = cli("inspect", tmp_path / "file")
    assert printed.status == 2 and "is a file: give the folder" in printed.line
    printed = cli("inspect", tmp_path / "none")
    assert printed.status == 2 and printed.line == f"model folder {str(tmp_path / 'none')!r} does not exist"


@pytest.mark.parametrize(
    "environment", [{"HF_HUB_OFFLINE": "0", "HF_ENDPOINT": "http://127.0.0.1:9"}, {"HF_HUB_OFFLINE": "1"}]
)
def test_no_hub_is_told_in_seconds(environment: dict[str, str], tmp_path: Path) -> None:
    proxies = {
        name: "" for name in ("HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy")
    }
    start = time.monotonic()
    printed = process("inspect", "nobody/no-such-model", **environment, **proxies, HF_HOME=str(tmp_path))
    assert time.monotonic() - start < 45  # most of it is imports, on a busy machine
    assert printed.status == 2
    assert printed.line.startswith("'nobody/no-such-model' is no local folder, and the hub cannot be reached")


def test_a_run_folder_of_other_options_is_refused(cli, bert: Path, data: Path, tmp_path: Path) -> None:
    command = ["profile", bert, "--data", data, "--out", tmp_path / "run", "--metrics", "curvature"]
    assert cli(*command).status == 0
    other = cli(*command, "--seed", 1)
    assert other.status == 2
    assert other.line == (
        f"run folder {str(tmp_path / 'run')!r} holds another run (seed: 0 there, 1 here): "
        "choose another folder with --out, or delete it"
    )
    shutil.copytree(bert, tmp_path / "other")
    renamed = cli("profile", tmp_path / "other", *command[2:])
    assert renamed.status == 2 and "(model: tiny-bert there, other here)" in renamed.line
    assert cli(*command).status == 0


def test_a_place_that_cannot_be_written(cli, bert: Path, data: Path) -> None:
    printed = cli("profile", bert, "--data", data, "--out", data / "run")
    assert printed.status == 2
    assert printed.line.endswith("cannot be written (Not a directory): choose another with --out")


def test_ctrl_c_leaves_a_run_that_goes_on(bert: Path, tmp_path: Path) -> None:
    data, out = tmp_path / "texts.jsonl", tmp_path / "run"
    data.write_text("\n".join(json.dumps({"text": text}) for text in tiny.texts(400)))
    arguments = ["profile", bert, "--data", data, "--out", out, "--batch-size", "1", "--metrics", "curvature"]
    command = [sys.executable, "-m", "layerscope", *map(str, arguments)]
    running = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    while len(list((out / "shards").glob("*.json"))) < 3:
        assert running.poll() is None, running.stderr.read()
        time.sleep(0.01)
    running.send_signal(signal.SIGINT)
    stdout, stderr = running.communicate(timeout=60)
    stopped = Printed(running.returncode, stdout, stderr)
    assert stopped.status == 130
    assert stopped.line == "stopped: the same command goes on from here"
    finished = len(list((out / "shards").glob("*.json")))
    assert 3 <= finished < 100
    again = layerscope.profile(str(bert), data, out=out, batch_size=1, metrics="curvature", progress=False)
    assert again.folder.events("resumed")[0]["finished"] == finished
    assert sorted(e["shard"] for e in again.folder.events("shard")) == again.folder.shards
