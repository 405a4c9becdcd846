import ast
import platform
import sys
import sysconfig
import warnings
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from layerscope.core.errors import LayerscopeError
from layerscope.inputs.corpus import Corpus

BUILT_IN = ("stdlib-docs", "digits")
_SHORTEST = 41  # characters
# Tests, and what is not documentation of the library itself.
_LEFT_OUT = {"test", "tests", "idlelib", "lib2to3", "__phello__", "site-packages", "dist-packages"}
_Documented = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


def stdlib_docs() -> Corpus:
    """Return the docstrings of Python's standard library, labelled by top-level module.

    They are read from its source by `ast`, nothing is imported; those of 40 characters or fewer and
    repetitions are left out. Raises `LayerscopeError` where this Python came without its source.
    """
    found: dict[str, tuple[str, str]] = {}
    for parts, path in _stdlib_sources(Path(sysconfig.get_path("stdlib"))):
        for name, text in _docstrings(_parsed(path), ".".join(parts)):
            if len(text) >= _SHORTEST:
                found.setdefault(text, (name, parts[0]))
    if not found:
        raise LayerscopeError("stdlib-docs: this Python has no library source beside it: give other data")
    return Corpus(
        "stdlib-docs",
        "text",
        tuple(found),
        tuple(name for name, _ in found.values()),
        tuple(module for _, module in found.values()),
        (f"docstrings of Python {platform.python_version()}'s own library; label: the module",),
    )


def _stdlib_sources(root: Path) -> Iterator[tuple[tuple[str, ...], Path]]:
    """Yield each module's dotted parts and its file, in alphabetical order."""
    for top in sorted(sys.stdlib_module_names):
        for path in [root / f"{top}.py", *sorted((root / top).rglob("*.py"))]:
            parts = path.relative_to(root).with_suffix("").parts
            parts = parts[:-1] if parts[-1] == "__init__" else parts
            if not _LEFT_OUT.intersection(parts) and path.is_file():
                yield parts, path


def _parsed(path: Path) -> ast.Module:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # old escapes in the library's own source
        try:
            return ast.parse(path.read_bytes())
        except (SyntaxError, ValueError, OSError):  # templates that are no Python yet
            return ast.Module(body=[], type_ignores=[])


def _docstrings(node: _Documented, name: str) -> Iterator[tuple[str, str]]:
    text = ast.get_docstring(node)
    if text:
        yield name, text.strip()
    if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):  # no one documents a local function
        for child in _definitions(node.body):
            yield from _docstrings(child, f"{name}.{child.name}")


def _definitions(body: list[ast.stmt]) -> Iterator[ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef]:
    """Yield classes and functions, also those that stand under `if` and `try`."""
    for node in body:
        if isinstance(node, (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            yield node
        elif isinstance(node, (ast.If, ast.Try, ast.With)):
            yield from _definitions(_statements(node))


def _statements(node: ast.If | ast.Try | ast.With) -> list[ast.stmt]:
    statements = [*node.body, *getattr(node, "orelse", []), *getattr(node, "finalbody", [])]
    for handler in getattr(node, "handlers", []):
        statements += handler.body
    return statements


def digits() -> Corpus:
    """Return scikit-learn's 1,797 handwritten digits as RGB images of 8 by 8, labelled 0 to 9."""
    from PIL import Image
    from sklearn.datasets import load_digits

    data = load_digits()
    grey = np.rint(data.images * (255 / 16)).astype(np.uint8)
    images = tuple(Image.fromarray(pixels).convert("RGB") for pixels in grey)
    labels = tuple(int(label) for label in data.target)
    names = tuple(map(str, range(len(images))))
    return Corpus("digits", "image", images, names, labels, ("scikit-learn's digits; label: the digit",))
