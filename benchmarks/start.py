"""How long `import layerscope` and `layerscope --help` take, median of ten processes each.

    python benchmarks/start.py [--repeats 10]

Bars: 0.3 s and 0.5 s.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import time


def seconds(code: list[str], repeats: int) -> float:
    """Return the median wall time of some runs of a Python command."""
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        subprocess.run([sys.executable, *code], check=True, capture_output=True)
        times.append(time.perf_counter() - start)
    return statistics.median(times)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=10)
    repeats = parser.parse_args().repeats
    print(
        f"import layerscope: {seconds(['-c', 'import layerscope'], repeats):.2f} s (bar 0.1)"
    )
    print(
        f"layerscope --help: {seconds(['-m', 'layerscope', '--help'], repeats):.2f} s (bar 0.25)"
    )
    print(
        f"layerscope profile --help: {seconds(['-m', 'layerscope', 'profile', '--help'], repeats):.2f} s (bar 0.4)"
    )
