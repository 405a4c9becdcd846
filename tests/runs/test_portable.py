"""What runs where Python has none of POSIX's own modules, as on Windows."""

import tiny

ABSENT = """
import sys  # libraries have what they need, layerscope is imported again
for name in [name for name in sys.modules if name.split(".")[0] == "layerscope"]:
    del sys.modules[name]
sys.modules.update(dict.fromkeys(("fcntl", "resource", "pwd", "grp"), None))
import layerscope.training.verb  # too slow to run here
from layerscope.cli import main
from layerscope.early_exit import timing
timing.SECONDS = timing.RACE = 0.1
for line in sys.argv[1:]:
    sys.argv = ["layerscope", *line.split("|")]
    try:
        main()
    except SystemExit as end:
        assert not end.code, (line, end.code)
"""


def test_every_verb_that_writes_runs_without_posix_modules(forks, tmp_path):
    model = tiny.saved(tiny.classifier(), tmp_path / "model")
    rows = [f"{text},{i % 3}" for i, text in enumerate(tiny.texts(32))]
    data = tmp_path / "data.csv"
    data.write_text("\n".join(["text,label", *rows]), encoding="utf-8")
    lines = [
        f"profile|{model}|--data|{data}|--metrics|curvature,prompt_entropy|--out|{tmp_path / 'run'}",
        f"evaluate|{model}|--data|linear-probe:{data}|--layers|1|--out|{tmp_path / 'scores'}",
        f"truncate|{model}|--layer|2|--out|{tmp_path / 'small'}",
        f"exits|{model}|--data|{data}|--max-disagreement|0.5|--out|{tmp_path / 'exits'}",
    ]
    ended = forks.run(*lines, script=ABSENT)
    assert ended.status == 0, ended.out[-2000:] + ended.err[-4000:]
    for name in ("run/run.json", "scores", "small/config.json", "exits"):
        assert (tmp_path / name).exists(), name
