"""`evaluate`, `select` and `exits` in two real processes by torchrun: the same as one, whichever of them dies."""

import json
import signal
import socket
from pathlib import Path

import pytest
import tiny
from commands import EARLY, Forks
from profiling.test_processes import ended, started
from tiny import one_thread

import layerscope

__all__ = ["one_thread"]
HOST = socket.gethostname()
LM_TASK = """task: endings
dataset_path: json
dataset_kwargs: {data_files: %s}
output_type: multiple_choice
test_split: train
doc_to_text: "{{begin}}"
doc_to_target: "{{right}}"
doc_to_choice: "{{ends}}"
metric_list: [{metric: acc, higher_is_better: true}]
"""


@pytest.fixture(scope="module")
def given(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a language model, a classifier, labelled texts of two sources, pairs, a task and a run."""
    folder = tmp_path_factory.mktemp("given")
    tiny.saved(tiny.llama(), folder / "llama", special=False)
    tiny.saved(tiny.classifier(2), folder / "bert", special=True)
    texts = tiny.texts(120, longest=12)
    for name, own in (("topics", texts[:80]), ("later", texts[80:])):
        rows = [f"{text},{'ab'[len(text) % 2]}" for text in own]
        (folder / f"{name}.csv").write_text("\n".join(["text,label", *rows]))
    pairs = [
        f"{a},{b},{i % 6}"
        for i, (a, b) in enumerate(zip(texts[:40], texts[40:80], strict=True))
    ]
    (folder / "pairs.csv").write_text("\n".join(["text_a,text_b,score", *pairs]))
    questions = [
        {"begin": text, "ends": ["w1 w2", "w3"], "right": len(text) % 2}
        for text in texts[:30]
    ]
    (folder / "endings.jsonl").write_text("\n".join(map(json.dumps, questions)))
    (folder / "endings.yaml").write_text(LM_TASK % (folder / "endings.jsonl"))
    layerscope.profile(
        str(folder / "llama"),
        folder / "topics.csv",
        out=folder / "run",
        views=0,
        progress=False,
        metrics="linear_probe",
    )
    return folder


def commands(given: Path, out: str) -> dict[str, list[str]]:
    """One command of each kind, each with a folder of its own."""
    topics, run, llama = (str(given / name) for name in ("topics.csv", "run", "llama"))
    kinds = ("linear-probe:topics", "knn-probe:topics", "sts:pairs")
    files = [
        part
        for task in kinds
        for part in ("--data", f"{task.replace(':', f':{given}/')}.csv")
    ]
    lm, shift = f"lm:{given / 'endings.yaml'}", str(given / "later.csv")
    found = {
        "evaluate": ["evaluate", llama, *files, "--tasks", lm, "--mixes"],
        "shift": [
            "evaluate",
            llama,
            "--data",
            f"linear-probe:{topics}",
            "--shift",
            shift,
        ],
        "select": ["select", run, "--json"],
        "drop": ["select", run, "--drop", "2", "--json"],
        "exits": [
            "exits",
            str(given / "bert"),
            "--data",
            topics,
            *map(str, EARLY),
            "--exits",
            "1,2",
        ],
        "drafts": [
            "exits",
            llama,
            "--data",
            topics,
            "--prefix",
            "3",
            "--max-new-tokens",
            "16",
            "--samples",
            "4",
            "--draft-tokens",
            "2",
        ],
    }
    return {
        name: [*command, "--out", str(given / f"{name}-{out}")]
        for name, command in found.items()
    }


def assert_same_scores(one: Path, two: Path) -> None:
    """Probes byte for byte, mteb's results but for its clock."""
    written = {path.relative_to(one) for path in one.rglob("*.json")}
    assert (
        written == {path.relative_to(two) for path in two.rglob("*.json")} and written
    )
    for path in written:
        if path.parts[0] == "results" and "model_meta" not in path.name:
            found = [json.loads((folder / path).read_text()) for folder in (one, two)]
            for result in found:
                for clock in ("evaluation_time", "evaluation_phases", "date"):
                    del result[clock]
            assert found[0] == found[1]
        elif path.parts[0] != "results":
            assert (one / path).read_bytes() == (two / path).read_bytes(), path


@pytest.fixture(scope="module")
def both(given: Path, forks: Forks) -> dict[str, list[tuple[int, str, str]]]:
    """What one process and the two of torchrun answer to each command: status, standard output and error."""
    for name, command in commands(given, "one").items():
        ended_alone = forks.run(*command)
        assert ended_alone.status == 0, (name, ended_alone.err)
    (given / "commands.json").write_text(
        json.dumps(commands(given, "two") | {"last": ["select", "none"]})
    )
    _, _, err = ended(started(str(Path(__file__).parent / "together.py"), str(given)))
    assert (given / "told-1.json").exists(), err
    told = [json.loads((given / f"told-{rank}.json").read_text()) for rank in range(2)]
    return {name: [told[0][name], told[1][name]] for name in told[0]}


def test_each_verb_is_shared_and_the_first_process_alone_prints(both):
    for name, (first, second) in both.items():
        assert first[0] == 0 and first[1], (name, first[2])
        assert second == [0, "", ""], name


def test_two_processes_evaluate_as_one(both, given: Path):
    assert_same_scores(given / "evaluate-one", given / "evaluate-two")
    assert_same_scores(given / "shift-one", given / "shift-two")
    assert not (given / "evaluate-two" / "states").exists()


def test_two_processes_select_as_one(both, given: Path):
    one, two = (
        [path.read_bytes() for path in sorted((given / f"drop-{n}").glob("*.json"))]
        for n in ("one", "two")
    )
    assert one == two and one
    one, two = (
        layerscope.open_selection(given / f"select-{n}") for n in ("one", "two")
    )
    assert (one.layer, one.why, one.chosen.score) == (
        two.layer,
        two.why,
        two.chosen.score,
    )
    assert two.chosen.milliseconds


def test_two_processes_find_the_exits_of_one(both, given: Path):
    one, two = (
        layerscope.open_exit_report(given / f"exits-{n}") for n in ("one", "two")
    )
    known = (
        "exits",
        "threshold",
        "calibration",
        "accuracy",
        "plain_accuracy",
        "disagreement",
    )
    assert [getattr(one, name) for name in known] == [
        getattr(two, name) for name in known
    ]
    one, two = (
        layerscope.open_draft_report(given / f"drafts-{n}") for n in ("one", "two")
    )
    assert one.ways["acceptance"].tolist()[1] == two.ways["acceptance"].tolist()[1] > 0


@pytest.mark.parametrize("rank", [0, 1])
def test_killed_at_some_moment_the_same_command_ends_with_the_same_scores(
    both, forks: Forks, given: Path, tmp_path: Path, rank: int
):
    command = [*commands(given, "")["evaluate"][:-1], str(tmp_path / "out")]
    running = forks.together(*command)
    running[0].until(
        lambda: len(list((tmp_path / "out").glob("*/*/*.json"))) > rank, 0.01
    )
    running[rank].kill()
    assert running[rank].wait().status == -signal.SIGKILL
    left = running[1 - rank].wait()
    assert (
        left.line
        == f"layerscope: process {rank} on {HOST} has ended: run the same command to resume"
    )
    assert [process.wait().status for process in forks.together(*command)] == [0, 0]
    assert_same_scores(given / "evaluate-one", tmp_path / "out")
