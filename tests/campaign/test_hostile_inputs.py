"""Files of every kind we read, changed at random: each is read, or refused in one line and left as it was."""

from __future__ import annotations

import hashlib
import shutil
from dataclasses import dataclass

from changes import change
from trials import Part

RUN = ("--views", "0", "--metrics", "effective_rank", "--out", "out")
TASKS = ("classification", "clustering", "linear-probe", "knn-probe")


def texts(name):
    """The commands that read texts with labels."""
    return [
        f"profile bert --data {name} --samples 20 {' '.join(RUN)}",
        f"evaluate bert --data {{task}}:{name} --layers 1 --out out",
        f"lens gpt2 --data {name} --samples 2 --out out",
        f"exits cls --data {name} --samples 60 --max-disagreement 0.2 --batch-size 8 --out out",
        f"train cls --train {name} --max-steps 2 --batch-size 8 --out out",
        f"select run --drop 1 --data {name}",
    ]


@dataclass(frozen=True)
class Subject:
    """What is changed, and the commands that read it; `kept` says that they do not write into it."""

    name: str
    commands: list[str]
    kept: bool = True


SUBJECTS = [
    *(
        Subject(name, texts(name))
        for name in ("table.csv", "table.jsonl", "table.parquet")
    ),
    Subject("sts.csv", ["evaluate bert --data sts:sts.csv --layers 1,2 --out out"]),
    *(
        Subject(name, [f"profile {model} --data {name} {' '.join(RUN)}"])
        for model, name in (("vit", "images"), ("speech", "sounds"))
    ),
    Subject(
        "run",
        [
            "report run --out page.html",
            "select run --no-cost",
            "compare run other --out out",
            "evaluate run --data linear-probe:table.csv --out out",
            "truncate run --layer 1 --out out",
        ],
    ),
    Subject(
        "run",
        ["profile cls --data table.csv --out run --views 1 --view-samples 20"],
        kept=False,
    ),
    Subject("scores", ["report scores --out page.html", "select scores --no-cost"]),
    Subject(
        "scores",
        ["evaluate bert --data linear-probe:table.csv --data sts:sts.csv --out scores"],
        kept=False,
    ),
    Subject("compared", ["report compared --out page.html"]),
    Subject("early", ["report early --out page.html", "inspect early/model"]),
    Subject("trained", ["truncate trained --layer 2 --out out", "inspect trained"]),
    Subject(
        "trained",
        [
            "train cls --train table.csv --max-steps 6 --batch-size 8 --eval-every 3 --out trained"
        ],
        kept=False,
    ),
    Subject("cls", ["inspect cls", "truncate cls --layer 2 --out out"]),
    Subject("vit", ["inspect vit", f"profile vit --data images {' '.join(RUN)}"]),
    Subject("gpt2", ["inspect gpt2", "lens gpt2 --prompt w1 --generate 2"]),
    Subject("scores.csv", ["scores scores.csv --metrics metrics.csv"]),
]


def state(path):
    """What lies in a file or folder, by path: content, or what else it is."""
    found = {}
    for file in (path, *path.rglob("*")):
        if file.name in (".lock", "log.jsonl"):
            continue
        found[str(file)] = str(file.is_dir())
        if file.is_file() and not file.is_symlink():
            found[str(file)] = hashlib.sha256(file.read_bytes()).hexdigest()
    return found


def beside(made, name, place):
    """Return a folder that holds a copy of one thing, and links to all others."""
    place.mkdir()
    for other in made.iterdir():
        if other.name != name:
            (place / other.name).symlink_to(other)
    copy = shutil.copytree if (made / name).is_dir() else shutil.copyfile
    copy(made / name, place / name)
    return place


def check(ended, told, before, after, kept):
    """Return how a trial came out; raises where a rule is broken."""
    complaint = ended.complaint()
    assert complaint is None, f"{complaint}: {told}\n{ended.err[-1500:]}"
    if kept:
        changed = {
            name
            for name in before.keys() | after.keys()
            if before.get(name) != after.get(name)
        }
        assert not changed, (
            f"changed {sorted(changed)[:3]} with status {ended.status}: {told}\n{ended.err[-500:]}"
        )
    return "refused" if ended.status else "read"


def test_hostile_inputs(forks, made, tmp_path):
    for trial in Part("inputs", share=0.25).trials():
        with trial:
            rng = trial.random
            subject = rng.choice(SUBJECTS)
            place = beside(made, subject.name, tmp_path / "trial")
            command = rng.choice(subject.commands).format(task=rng.choice(TASKS))
            told = f"[{subject.name}: {change(place / subject.name, rng)}] {command}"
            before = state(place / subject.name)
            ended = forks.run(*command.split(), cwd=place)
            trial.outcome = check(
                ended, told, before, state(place / subject.name), subject.kept
            )
        shutil.rmtree(tmp_path / "trial", ignore_errors=True)


def test_what_is_changed_is_good_before(forks, made, tmp_path):
    for number, subject in enumerate(SUBJECTS):
        for line, command in enumerate(subject.commands):
            for task in TASKS if "{task}" in command else ("",):
                place = beside(made, subject.name, tmp_path / f"{number} {line} {task}")
                ended = forks.run(*command.format(task=task).split(), cwd=place)
                assert ended.status == 0, f"{command} {task}: {ended.err}"
