"""The demo: the embedded model on text that every Python has, and the answer in one line."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from layerscope.core.option_kinds import IN_CODE, Folder, Whole
from layerscope.core.options import checked
from layerscope.core.shared_options import OUTPUT

if TYPE_CHECKING:
    from layerscope import Run, Selection

MODEL, DATA = "minilm", "stdlib-docs"


def demo(
    *,
    out: Annotated[str | Path, Folder(), OUTPUT] = "runs/demo",
    samples: Annotated[int | str, Whole(50, words=("all",))] = 1000,
    command: Annotated[str, IN_CODE] = "",
) -> tuple[str, Run]:
    """Profile the embedded MiniLM on the docstrings of Python's library: no download, about a minute.

    Return the answer, `layer k: x % · the model as shipped: y % · z× faster · N`, and the run behind it. The layer is
    the one that `select` takes. The shares are cross-validated linear-probe accuracies of the documentation's module,
    ± one standard error; the speed is measured here, of a model that ends at layer k against the whole one.

    Args:
        out: run folder.
        samples: number of docstrings, or all; a layer can be chosen from 50 on.
        command: the command line that asks for this run, kept in the run folder.

    """
    asked = checked(demo, locals())
    from layerscope import profile, select

    run = profile(MODEL, DATA, out=asked.out, samples=asked.samples, command=command)
    return _answer(select(run, progress=False)), run


def _answer(found: Selection) -> str:
    """Return the choice in a line, its score that of docstrings which had no part in choosing."""
    shipped = _share(found.baseline.score, found.baseline.stderr)
    about = found.basis.replace("sample", "docstring", 1).replace("classes", "modules", 1)
    if found.lacking:
        return f"no layer is recommended: {found.lacking}"
    if found.as_shipped or found.apart is None:
        return f"the model as shipped: {shipped} · no layer before the last comes near it · {about}"
    faster = found.chosen.speedup
    best = f"layer {found.layer}: {_share(found.apart.score, found.apart.stderr)}"
    speed = [] if faster is None else [f"{faster:.1f}× faster"]
    return " · ".join([best, f"the model as shipped: {shipped}", *speed, about])


def _share(value: float | None, error: float | None) -> str:
    assert value is not None and error is not None
    return f"{100 * value:.1f} ±{100 * error:.1f} %"
