"""How long `import layerscope` and `layerscope --help` take, median of ten processes each.

    python benchmarks/start.py

Bars: 0.3 s and 0.5 s.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time


def seconds(code: list[str]) -> float:
    """Return the median wall time of ten runs of a Python command."""
    times = []
    for _ in range(10):
        start = time.perf_counter()
        subprocess.run([sys.executable, *code], check=True, capture_output=True)
        times.append(time.perf_counter() - start)
    return statistics.median(times)


if __name__ == "__main__":
    print(f"import layerscope: {seconds(['-c', 'import layerscope']):.2f} s (bar 0.3)")
    print(f"layerscope --help: {seconds(['-m', 'layerscope', '--help']):.2f} s (bar 0.5)")
