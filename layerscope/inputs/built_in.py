"""Data that need no file: the docstrings of Python's own library, and scikit-learn's digits."""

import ast
import platform
import sys
import sysconfig
import warnings
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path

from layerscope.core import LayerscopeError
from layerscope.inputs.corpus import Corpus, row_numbers
from layerscope.inputs.media import array_image

_SHORTEST = 41  # characters
# Tests, and what is not documentation of the library itself.
_LEFT_OUT = {
    "test",
    "tests",
    "idlelib",
    "lib2to3",
    "__phello__",
    "site-packages",
    "dist-packages",
}
_Definitions = (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
_Documented = (ast.Module, *_Definitions)


@cache  # parsing the library takes seconds
def _stdlib_docs() -> Corpus:
    """Return the docstrings of Python's standard library, labelled by top-level module.

    They are read from its source by `ast`, nothing is imported; those of 40 characters or fewer and
    repetitions are left out. Raises `LayerscopeError` where this Python came without its source.
    """
    docstrings: dict[str, tuple[str, str]] = {}
    root = Path(sysconfig.get_path("stdlib"))
    for top in sorted(sys.stdlib_module_names):
        for path in [root / f"{top}.py", *sorted((root / top).rglob("*.py"))]:
            parts = path.relative_to(root).with_suffix("").parts
            if parts[-1] == "__init__":
                parts = parts[:-1]
            if _LEFT_OUT.intersection(parts) or not path.is_file():
                continue
            # templates are no Python yet, and the library's own source has old escapes
            with suppress(SyntaxError, ValueError, OSError), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                module = ast.parse(path.read_bytes())
                for name, text in _docstrings(module, ".".join(parts)):
                    if len(text) >= _SHORTEST:
                        docstrings.setdefault(text, (name, parts[0]))
    if not docstrings:
        raise LayerscopeError(
            "stdlib-docs: this Python comes without its library's source: give other data"
        )
    names, modules = zip(*docstrings.values(), strict=True)
    note = f"docstrings of Python {platform.python_version()}'s own library; label: the module"
    return Corpus("stdlib-docs", "text", tuple(docstrings), names, modules, (note,))


def _docstrings(node: ast.AST, name: str) -> Iterator[tuple[str, str]]:
    """Yield the docstrings of a module and what it defines, also under `if` and `try`, by their dotted names."""
    if isinstance(node, _Documented) and (text := ast.get_docstring(node)):
        yield name, text.strip()
    # no one documents a local function
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
        return
    # the handlers of a `try` come last
    fields = sorted(ast.iter_fields(node), key=lambda field: field[0] == "handlers")
    for _, value in fields:
        for child in value if isinstance(value, list) else ():
            if isinstance(child, _Definitions):
                yield from _docstrings(child, f"{name}.{child.name}")
            elif isinstance(child, (ast.If, ast.Try, ast.With, ast.ExceptHandler)):
                yield from _docstrings(child, name)


@cache  # decoding the images takes a fifth of a second
def _digits() -> Corpus:
    """Return scikit-learn's 1,797 handwritten digits as RGB images of 8 by 8, labelled 0 to 9."""
    from sklearn.datasets import load_digits

    data = load_digits()
    images = tuple(map(array_image, data.images / 16))
    labels = tuple(map(int, data.target))
    names = row_numbers(len(images))
    notes = ("scikit-learn's digits; label: the digit",)
    return Corpus("digits", "image", images, names, labels, notes)


BUILT_IN: dict[str, Callable[[], Corpus]] = {
    "stdlib-docs": _stdlib_docs,
    "digits": _digits,
}
