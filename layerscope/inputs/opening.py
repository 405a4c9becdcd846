import ast
import lzma
import platform
import sys
import sysconfig
import tarfile
import warnings
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import Any, get_args

import numpy as np

from layerscope.core.errors import LayerscopeError, choices, folder_name, listed
from layerscope.core.files import existing
from layerscope.inputs.arrays import memory_corpus
from layerscope.inputs.columns import Columns, frame_corpus
from layerscope.inputs.corpus import Corpus
from layerscope.inputs.hub import hub_corpus, is_dataset
from layerscope.inputs.media import SPLITS, SUFFIXES, is_hidden, media_kind, of_one_kind
from layerscope.inputs.samples import Lines, Modality
from layerscope.inputs.tables import PARQUET, TABLES, read_frame, read_text

ARCHIVES = (".tar.gz", ".tar.xz", ".tar.bz2", ".tar", ".tgz", ".txz", ".zip")
PLAIN_TEXT = "plain text: one sample per non-empty line, named by line number"
MEMORY_LIMIT = 2 * 2**30  # bytes, uncompressed
LOOKED_FOR = f"images ({', '.join(SUFFIXES['image'])}) or sounds ({', '.join(SUFFIXES['audio'])})"
_DESCRIPTIONS = ("readme", "source", "license", "licence")
_DAMAGE = (
    tarfile.TarError,
    zipfile.BadZipFile,
    EOFError,
    lzma.LZMAError,
    zlib.error,
    OSError,
    RuntimeError,
)
_SHORTEST = 41  # characters
# Tests, and what is not documentation of the library itself.
_LEFT_OUT = {"test", "tests", "idlelib", "lib2to3", "__phello__", "site-packages", "dist-packages"}
_Definitions = (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
_Documented = (ast.Module, *_Definitions)
_PLAIN_NAMES = SPLITS | {"all", "data", "input"}


def open_corpus(
    data: Any,
    *,
    labels: Iterable[Any] | None = None,
    text_column: str | None = None,
    label_column: str | None = None,
    modality: Modality | None = None,
) -> Corpus:
    """Return data of any kind as a `Corpus`, with every guess listed in its `notes`.

    `data` is a corpus, texts, images, sounds or array rows in memory (also `(samples, labels)`), a
    pandas frame, a `datasets.Dataset`, token ids, the path of a table, text file, folder or
    archive, `stdlib-docs`, `digits` or `hf:name/config:split`. Raises `LayerscopeError` for data
    that cannot be read.

    >>> from layerscope.inputs import open_corpus
    >>> corpus = open_corpus("reviews.csv")
    >>> len(corpus), corpus.modality, corpus.samples[0], corpus.labels[0]
    (24, 'text', 'the food was good', 'praise')
    >>> corpus.notes
    ("text column: 'text' (guessed)", "label column: 'label' (guessed)")
    """
    if modality is not None and modality not in (known := get_args(Modality)):
        raise LayerscopeError(
            f"modality {modality!r} does not exist{choices(str(modality), known)}"
        )
    columns = Columns(text_column, label_column)
    if labels is not None and isinstance(data, (str, Path, Corpus)):
        raise LayerscopeError(
            "`labels` goes with samples in memory: name a table's column with `label_column`"
        )
    if isinstance(data, Corpus):
        corpus = data
    elif isinstance(data, str):
        corpus = _named(data, modality, columns)
    elif isinstance(data, Path):
        corpus = _open_path(data, modality, columns)
    else:
        corpus = memory_corpus(data, modality, columns, None if labels is None else list(labels))
    if modality is not None and corpus.modality != modality:
        raise LayerscopeError(
            f"{corpus.name} holds {corpus.modality} samples, not {modality}: leave `modality` out"
        )
    return corpus


def _named(data: str, modality: Modality | None, columns: Columns) -> Corpus:
    if data in BUILT_IN:
        columns.refuse(data)
        return BUILT_IN[data]()
    if not data.strip():
        raise LayerscopeError(
            "no data is given: give a file, a folder, hf:NAME, stdlib-docs or digits"
        )
    if "://" in data:
        raise LayerscopeError(
            f"data {data!r} is a URL: download it and give the file, or give hf:NAME for one on the hub"
        )
    if data.startswith("hf:"):
        return hub_corpus(data, columns)
    return _open_path(Path(data), modality, columns)


def _open_path(path: Path, modality: Modality | None, columns: Columns) -> Corpus:
    path = existing(path, "data", (*BUILT_IN, "hf:NAME"))
    if path.is_char_device():  # it may never end
        raise LayerscopeError(f"{path} is a device: give a file")
    if path.is_dir():
        return _folder(path, modality, columns)
    name, suffix = data_name(path)
    if suffix in TABLES:
        notes: list[str] = []
        frame = read_frame(path, suffix, notes)
        return frame_corpus(frame, name, columns, str(path), notes)
    columns.refuse(str(path))
    if is_archive(path.name):
        return _archive(path, modality, ())
    if (kind := media_kind(path.name)) is not None:
        raise LayerscopeError(
            f"{path} is a single {kind} file: give the folder it lies in, or a list of paths"
        )
    if suffix == ".npy":
        try:
            array = np.load(path, allow_pickle=False)
        except (OSError, ValueError) as error:
            raise LayerscopeError(
                f"{path} is not a complete .npy file: save it again with numpy.save"
            ) from error
        return replace(memory_corpus(array, modality, columns), name=folder_name(name))
    lines, note = Lines.of(read_text(path)), PLAIN_TEXT
    names = tuple(map(str, lines.numbers))
    return Corpus(folder_name(name), "text", lines, names, notes=(note,), running=True)


def data_name(path: Path) -> tuple[str, str]:
    """Return what the data in a file are called, and the file's suffix, without `.gz`."""
    *rest, suffix = ["", *(suffix.lower() for suffix in path.suffixes)]
    if suffix == ".gz" and not is_archive(path.name):
        suffix = rest[-1]
        if suffix in PARQUET:
            raise LayerscopeError(f"{path} is Parquet inside gzip: unpack it first")
    name = path.name.removesuffix(".gz").removesuffix(suffix)
    return f"{path.resolve().parent.name}-{name}" if name.lower() in _PLAIN_NAMES else name, suffix


def _folder(path: Path, modality: Modality | None, columns: Columns) -> Corpus:
    """Return the images or sounds in a folder and its sub-folders, or what its only archive holds.

    A folder that `datasets` saved is opened as such. Raises `LayerscopeError` where it holds none
    of these.
    """
    if is_dataset(path):
        return hub_corpus(path, columns)
    columns.refuse(str(path))
    inside = sorted(
        (file.relative_to(path).as_posix(), file) for file in path.rglob("*") if file.is_file()
    )
    files = [(name, file) for name, file in inside if not is_hidden(name)]
    if any(media_kind(name) for name, _ in files):
        return of_one_kind(files, modality, path.resolve().name, str(path), ())
    rest = [file for _, file in files if not file.stem.lower().startswith(_DESCRIPTIONS)]
    if len(rest) == 1 and is_archive(rest[0].name):
        return _archive(rest[0], modality, (f"opened the archive {rest[0].name}",))
    if not files:
        raise LayerscopeError(f"{path} is an empty folder: it should hold {LOOKED_FOR}")
    names = listed([name for name, _ in files], 3)
    raise LayerscopeError(f"{path} holds no {LOOKED_FOR}: give one of its files instead ({names})")


def is_archive(name: str) -> bool:
    """Return whether a file is an archive, by its name."""
    return name.lower().endswith(ARCHIVES)


def _archive(path: Path, modality: Modality | None, notes: tuple[str, ...]) -> Corpus:
    """Return the images or sounds in an archive, read into memory.

    Raises `LayerscopeError` where it is damaged, holds neither, or is larger than 2 GiB unpacked.
    """
    if path.stat().st_size == 0:
        raise LayerscopeError(f"{path} is empty: give an archive of {LOOKED_FOR}")
    found: list[tuple[str, bytes]] = []
    others: list[str] = []
    total = 0
    try:
        for name, size, read in _members(path):
            total += size
            if total > MEMORY_LIMIT:
                raise LayerscopeError(
                    f"{path} holds more than {MEMORY_LIMIT / 2**30:.3g} GiB: unpack it first"
                )
            if media_kind(name) is None or is_hidden(name):
                others.append(name)
            else:
                found.append((name, read()))
    except _DAMAGE as error:
        raise LayerscopeError(
            f"{path} is not a complete archive ({error}): download or pack it again"
        ) from error
    if not found:
        held = f"; it holds {listed(others, 3)}: unpack it and give that" if others else ""
        raise LayerscopeError(f"{path} holds no {LOOKED_FOR}{held}")
    suffix = next(end for end in ARCHIVES if path.name.lower().endswith(end))
    return of_one_kind(found, modality, path.name[: -len(suffix)], str(path), notes)


def _members(path: Path) -> Iterator[tuple[str, int, Callable[[], bytes]]]:
    """Yield the name of each file in an archive, its size and how to read it."""
    if path.suffix.lower() == ".zip":
        with zipfile.ZipFile(path) as archive:
            for entry in archive.infolist():
                if not entry.is_dir():
                    yield entry.filename, entry.file_size, partial(archive.read, entry)
        return
    with tarfile.open(path, "r:*") as rolled:
        for member in rolled:
            stream = rolled.extractfile(member) if member.isfile() else None
            if stream is not None:
                yield member.name, member.size, stream.read


@cache  # parsing the library takes seconds
def _stdlib_docs() -> Corpus:
    """Return the docstrings of Python's standard library, labelled by top-level module.

    They are read from its source by `ast`, nothing is imported; those of 40 characters or fewer and
    repetitions are left out. Raises `LayerscopeError` where this Python came without its source.
    """
    found: dict[str, tuple[str, str]] = {}
    root = Path(sysconfig.get_path("stdlib"))
    for top in sorted(sys.stdlib_module_names):
        for path in [root / f"{top}.py", *sorted((root / top).rglob("*.py"))]:
            parts = path.relative_to(root).with_suffix("").parts
            parts = parts[:-1] if parts[-1] == "__init__" else parts
            if _LEFT_OUT.intersection(parts) or not path.is_file():
                continue
            # templates are no Python yet, and the library's own source has old escapes
            with suppress(SyntaxError, ValueError, OSError), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                for name, text in _docstrings(ast.parse(path.read_bytes()), ".".join(parts)):
                    if len(text) >= _SHORTEST:
                        found.setdefault(text, (name, parts[0]))
    if not found:
        raise LayerscopeError(
            "stdlib-docs: this Python comes without its library's source: give other data"
        )
    return Corpus(
        "stdlib-docs",
        "text",
        tuple(found),
        tuple(name for name, _ in found.values()),
        tuple(module for _, module in found.values()),
        (f"docstrings of Python {platform.python_version()}'s own library; label: the module",),
    )


def _docstrings(node: ast.AST, name: str) -> Iterator[tuple[str, str]]:
    """Yield the docstrings of a module and what it defines, also under `if` and `try`, by their dotted names."""
    if isinstance(node, _Documented) and (text := ast.get_docstring(node)):
        yield name, text.strip()
    if isinstance(
        node, (ast.FunctionDef, ast.AsyncFunctionDef)
    ):  # no one documents a local function
        return
    # the handlers of a `try` come last
    fields = sorted(ast.iter_fields(node), key=lambda field: field[0] == "handlers")
    for child in (child for _, value in fields if isinstance(value, list) for child in value):
        if isinstance(child, _Definitions):
            yield from _docstrings(child, f"{name}.{child.name}")
        elif isinstance(child, (ast.If, ast.Try, ast.With, ast.ExceptHandler)):
            yield from _docstrings(child, name)


def _digits() -> Corpus:
    """Return scikit-learn's 1,797 handwritten digits as RGB images of 8 by 8, labelled 0 to 9."""
    from PIL import Image
    from sklearn.datasets import load_digits

    data = load_digits()
    grey = np.rint(data.images * (255 / 16)).astype(np.uint8)
    images = tuple(Image.fromarray(pixels).convert("RGB") for pixels in grey)
    labels = tuple(int(label) for label in data.target)
    names = tuple(map(str, range(len(images))))
    return Corpus(
        "digits", "image", images, names, labels, ("scikit-learn's digits; label: the digit",)
    )


BUILT_IN: dict[str, Callable[[], Corpus]] = {"stdlib-docs": _stdlib_docs, "digits": _digits}
