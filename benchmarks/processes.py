"""Two processes of one thread each by torchrun, against one: `profile` and `evaluate` of MiniLM on real texts.

    python benchmarks/processes.py [--data ../shared/data] [--samples 1000] [--repeats 3] [--verb
    profile]

Both sides take turns. Each has imported everything, and run once in small, before its time is
taken. On the wall it takes two cores that nothing else uses; the processor time of one process over
the larger of the two is what the shares allow, whatever else runs. The results must be equal. Bar:
1.85 x.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

BAR = 1.85
TASKS = (
    "linear-probe:trec/train.csv",
    "knn-probe:trec/train.csv",
    "classification:banking77",
    "sts:stsbenchmark",
)


def call(verb: str, data: Path, samples: int, out: Path) -> None:
    """Run the verb."""
    import layerscope

    if verb == "profile":
        layerscope.profile(
            "minilm",
            data / "trec" / "train.csv",
            samples=samples,
            out=out,
            progress=False,
            device="cpu",
        )
    else:
        tasks = [
            f"{kind}:{data / name}"
            for kind, _, name in (task.partition(":") for task in TASKS)
        ]
        layerscope.evaluate(
            "minilm", tasks, out, samples=samples, jobs=1, progress=False, device="cpu"
        )


def child(verb: str, data: Path, samples: int, folder: Path) -> None:
    """Run the verb in small and then in full, and write down what the latter took in this process."""
    call(verb, data, min(samples, 120), folder / "small")
    wall, processor = time.perf_counter(), time.process_time()
    call(verb, data, samples, folder / "full")
    took = {
        "wall": time.perf_counter() - wall,
        "processor": time.process_time() - processor,
    }
    (folder / f"took-{os.environ.get('RANK', '0')}.json").write_text(json.dumps(took))
    print(
        f"{verb}: {took['wall']:.1f} s on the wall, {took['processor']:.1f} s of a processor"
    )


def timed(
    given: argparse.Namespace, verb: str, processes: int
) -> tuple[float, float, Any]:
    """Return the seconds on the wall and the most of one processor, and the scores."""
    import layerscope

    words = [
        __file__,
        "--child",
        "--data",
        str(given.data),
        "--samples",
        str(given.samples),
        "--verb",
        verb,
    ]
    launcher = [
        "-m",
        "torch.distributed.run",
        "--standalone",
        "--nproc-per-node",
        str(processes),
    ]
    with tempfile.TemporaryDirectory() as folder:
        command = [
            sys.executable,
            *(launcher if processes > 1 else []),
            *words,
            "--folder",
            folder,
        ]
        one_thread = os.environ | {"OMP_NUM_THREADS": "1"}
        subprocess.run(command, check=True, env=one_thread, stdout=subprocess.DEVNULL)
        took = [
            json.loads(path.read_text()) for path in Path(folder).glob("took-*.json")
        ]
        full = Path(folder) / "full"
        found: Any = (
            layerscope.open_run(full).table()
            if verb == "profile"
            else layerscope.open_evaluation(full).table()
        )
    return (
        max(one["wall"] for one in took),
        max(one["processor"] for one in took),
        found,
    )


def main() -> int:
    """Run the benchmark; exit status 1 where the bar is not met."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--data", type=Path, default=Path(__file__).parents[2] / "shared" / "data"
    )
    parser.add_argument("--samples", type=int, default=1000)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--verb", choices=("profile", "evaluate"))
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if not given.data.is_dir():
        print(
            f"the benchmark needs data sets in a folder: {given.data} is none, name one with --data"
        )
        return 2
    if given.child:
        child(given.verb, given.data, given.samples, given.folder)
        return 0
    met = True
    for verb in [given.verb] if given.verb else ["profile", "evaluate"]:
        ratios = []
        for repeat in range(given.repeats):
            one, two = (
                timed(given, verb, processes)
                for processes in ((1, 2) if repeat % 2 == 0 else (2, 1))
            )
            one, two = (one, two) if repeat % 2 == 0 else (two, one)
            if not one[2].equals(two[2]):
                raise SystemExit(f"{verb}: two processes do not find what one does")
            ratios.append((one[0] / two[0], one[1] / two[1]))
            print(
                f"{verb}: one process {one[0]:.1f} s (processor {one[1]:.1f}), two {two[0]:.1f} s ({two[1]:.1f})"
            )
        wall, processor = (
            statistics.median(column) for column in zip(*ratios, strict=True)
        )
        print(
            f"{verb}: {wall:.2f} x on the wall, {processor:.2f} x by processor time (bar {BAR})"
        )
        met &= wall >= BAR
    return 0 if met else 1


if __name__ == "__main__":
    raise SystemExit(main())
