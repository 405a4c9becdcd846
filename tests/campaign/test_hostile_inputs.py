"""Files of every kind we read, changed at random: each is read, or refused in one line and left as it was."""

import shutil

from changes import change
from trials import tried

RUN = "--views 0 --metrics effective_rank --out out"
TRAINING = "train cls --train table.csv --max-steps 6 --batch-size 8 --eval-every 3"
TASKS = ("classification", "clustering", "linear-probe", "knn-probe")
OF_TEXTS = (
    f"profile bert --data {{name}} --samples 20 {RUN}",
    *(f"evaluate bert --data {task}:{{name}} --layers 1 --out out" for task in TASKS),
    "lens gpt2 --data {name} --samples 2 --out out",
    "exits cls --data {name} --samples 60 --max-disagreement 0.2 --batch-size 8 --out out",
    "train cls --train {name} --max-steps 2 --batch-size 8 --out out",
    "select run --drop 1 --data {name}",
)
SUBJECTS = {
    "table.csv": OF_TEXTS,
    "table.jsonl": OF_TEXTS,
    "table.parquet": OF_TEXTS,
    "sts.csv": ("evaluate bert --data sts:sts.csv --layers 1,2 --out out",),
    "images": (f"profile vit --data images {RUN}",),
    "sounds": (f"profile speech --data sounds {RUN}",),
    "run": (
        "report run --out page.html",
        "select run --no-cost",
        "compare run other --out out",
        "evaluate run --data linear-probe:table.csv --out out",
        "truncate run --layer 1 --out out",
        "profile cls --data table.csv --views 1 --view-samples 20 --out run",
    ),
    "scores": (
        "report scores --out page.html",
        "select scores --no-cost",
        "evaluate bert --data linear-probe:table.csv --data sts:sts.csv --out scores",
    ),
    "compared": ("report compared --out page.html",),
    "early": ("report early --out page.html", "inspect early/model"),
    "trained": (
        "truncate trained --layer 2 --out out",
        "inspect trained",
        f"{TRAINING} --out trained",
    ),
    "cls": ("inspect cls", "truncate cls --layer 2 --out out"),
    "vit": ("inspect vit", f"profile vit --data images {RUN}"),
    "gpt2": ("inspect gpt2", "lens gpt2 --prompt w1 --generate 2"),
    "scores.csv": ("scores scores.csv --metrics metrics.csv",),
}
"""What is changed, and the commands that read it; the last of some write into it."""


def contents(path):
    """What lies in a file or folder, by path: its bytes, or what else it is."""
    found = {}
    for file in (path, *path.rglob("*")):
        if file.name not in (".lock", "log.jsonl"):
            is_plain = file.is_file() and not file.is_symlink()
            found[str(file)] = file.read_bytes() if is_plain else file.is_dir()
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


def test_hostile_inputs(forks, made, tmp_path):
    def attempt(seed, rng):
        name = rng.choice(list(SUBJECTS))
        command = rng.choice(SUBJECTS[name]).format(name=name)
        place = beside(made, name, tmp_path / str(seed))
        done = f"[{name}: {change(place / name, rng)}] {command}"
        before = contents(place / name)
        ended = forks.run(*command.split(), cwd=place)
        after = contents(place / name)
        shutil.rmtree(place)
        complaint = ended.complaint()
        assert complaint is None, f"{complaint}: {done}\n{ended.err[-1500:]}"
        changed = {path for path, _ in before.items() ^ after.items()}
        is_kept = not command.endswith(f"--out {name}")
        assert not (is_kept and changed), f"{sorted(changed)[:3]} changed: {done}"
        return "refused" if ended.status else "read"

    tried("inputs", 0.25, attempt)


def test_what_is_changed_is_good_before(forks, made, tmp_path):
    for name, commands in SUBJECTS.items():
        for number, command in enumerate(commands):
            place = beside(made, name, tmp_path / f"{name} {number}")
            ended = forks.run(*command.format(name=name).split(), cwd=place)
            assert ended.status == 0, f"{command} of {name}: {ended.err}"
