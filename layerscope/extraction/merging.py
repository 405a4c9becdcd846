"""Shards joined: every chunk there once, whole, of the same options; then the folder is marked as whole."""

from pathlib import Path
from typing import Any

from layerscope.core.errors import LayerscopeError, count, spans
from layerscope.core.files import digest, existing
from layerscope.core.options import Asked
from layerscope.core.progress import Reporter, reporting
from layerscope.extraction.extraction import Extraction, of_folder
from layerscope.extraction.folder import StatesFolder


def merged(asked: Asked) -> Extraction:
    """Do what `merge` is asked for, and return the whole."""
    given = [asked.folders] if isinstance(asked.folders, (str, Path)) else list(asked.folders)
    paths = [existing(path, "folder") for path in given]
    if not paths:
        raise LayerscopeError(
            "no folder is named: give the one that the shards were written to, or several"
        )
    reporter = reporting(asked.progress)
    folder, *others = map(StatesFolder, paths)
    for each in (folder, *others):
        each.refuse_writers()
    for other in others:
        folder.refuse_another(other.manifest, f"in {str(other.path)!r}")
    _refuse_damaged([folder, *others], reporter)
    for other in others:
        _bring(folder, other, reporter)
    finish(folder)
    return of_folder(folder)


def _refuse_damaged(folders: list[StatesFolder], reporter: Reporter) -> None:
    """Raise where a file is not what was written; it is taken away, so that the same command makes it again."""
    for folder in folders:
        numbers, damaged = folder.marked(), []
        with reporter.bar("check", len(numbers), "chunks") as advance:
            for number in numbers:
                facts = folder.facts(number)
                if facts is None or digest(folder.chunk(number)) != facts["sha256"]:
                    damaged.append(number)
                advance(1)
        for number in damaged:
            folder.drop(number)
        if damaged:
            raise LayerscopeError(
                f"{spans(damaged, 'chunk')} of {str(folder.path)!r} {_is(damaged)} not what was written, and now gone: "
                f"make {_them(damaged)} again with {_command(folder)}"
            )


def _bring(folder: StatesFolder, other: StatesFolder, reporter: Reporter) -> None:
    """Bring the chunks of another folder into this one; what both hold must be the same."""
    twice = []
    for number in other.finished():
        here, there = folder.facts(number), other.facts(number)
        if here is None:
            folder.take(number, other)
        elif here == there:
            twice.append(number)
        else:
            raise LayerscopeError(
                f"chunk {number} is in {str(folder.path)!r} and in {str(other.path)!r}, with other bytes: the shards "
                "overlap, and were computed in different ways; delete one of the two"
            )
    end = other.total()
    if folder.total() is None and end is not None:
        folder.write_end(end)
    if twice:
        reporter.say(
            f"{spans(twice, 'chunk')} of {str(other.path)!r} {_is(twice)} there already, the same"
        )


def finish(folder: StatesFolder) -> None:
    """Mark a folder as whole; raise where a chunk is missing, with the command that makes it."""
    total = folder.total()
    there = {number: facts for number in folder.marked() if (facts := folder.facts(number))}
    if total is None:
        raise LayerscopeError(
            f"the data of {str(folder.path)!r} have not been read to their end yet: resume with {_command(folder)}"
        )
    if missing := sorted(set(range(total)) - there.keys()):
        raise LayerscopeError(
            f"{spans(missing, 'chunk')} of {count(total, 'chunk')} {_is(missing)} missing in {str(folder.path)!r}: "
            f"make {_them(missing)} with {_command(folder)}"
        )
    folder.finish([there[number] for number in range(total)])


def _command(folder: StatesFolder) -> str:
    return str(folder.manifest["command"])


def _is(numbers: list[Any]) -> str:
    return "is" if len(numbers) == 1 else "are"


def _them(numbers: list[Any]) -> str:
    return "it" if len(numbers) == 1 else "them"
