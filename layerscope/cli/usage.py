"""What a wrong command line is answered: one line in the house's words, not in those of the parser."""

from __future__ import annotations

import errno
import os
import re
import sys
from collections.abc import Sequence
from contextlib import suppress

from cyclopts import (
    CoercionError,
    CycloptsError,
    MissingArgumentError,
    UnknownCommandError,
    UnknownOptionError,
    UnusedCliTokensError,
)

from layerscope.cli.app import COMMANDS, SETTINGS, app
from layerscope.core.errors import near

OF_TORCH = re.compile(r"PytorchStreamWriter|inline_container\.cc:\d+\] \. unexpected pos")
OF_RUST = re.compile(r"\(os error (\d+)\)")


def explained(error: CycloptsError) -> str:
    """Return the line on an error of the parser, with the near name and the mend."""
    chain = error.command_chain or ()
    command = " ".join(("layerscope", *chain))
    options = _options(chain)
    where = f"{command} --help lists them"
    word = (error.unused_tokens or [""])[0]
    if isinstance(error, UnknownOptionError):
        word = str(error.token.keyword or error.token.value)
    if isinstance(error, UnknownOptionError) and error.token.source not in ("", "cli"):
        return f"{error.token.source} has {word.strip('-[]')!r}, which is no option of {command}: {where}"
    if isinstance(error, (UnknownOptionError, UnknownCommandError)):
        kind, known = ("option", options) if word.startswith("-") else ("command", _commands())
        hint = near(word, known)
        name = word if kind == "option" else repr(word)
        return f"{kind} {name} does not exist{f'{hint} ({where})' if hint else f': {where}'}"
    if isinstance(error, MissingArgumentError) and error.argument is not None:
        name = error.argument.name
        if name in sys.argv or not name.startswith("-"):
            return _needed(name, command)
        extra = next(iter(sys.argv[3:4]), "")  # data without the option's name, as in `train MODEL FILE`
        if extra.startswith("-") or not (hint := _meant(extra, options)):
            return f"{command} needs {name}: {command} --help shows an example"
        return f"{extra!r} is one word too many for {command}{hint}"
    if isinstance(error, UnusedCliTokensError):
        hint = _meant(word, options) or ": put texts with spaces in quotes"
        return f"{word!r} is one word too many for {command}{hint}"
    if isinstance(error, CoercionError) and error.token is not None and error.token.keyword:
        return f"option {error.token.keyword} takes no value: {command} --help shows how"
    if type(error) is CycloptsError:  # of the file of defaults
        return f"{SETTINGS} cannot be used ({str(error).strip().rstrip('.')}): mend it, or delete it"
    return f"{str(error).strip().rstrip('.')}: {command} --help shows how"


def _needed(name: str, command: str) -> str:
    """Return the line on an option without a value, or on an argument that is not there."""
    if name.startswith("-"):
        return f"option {name} needs a value: {command} --help shows which"
    noun = name.lower().partition("_or_")[0].removesuffix("s")
    example = {"model": "minilm", "run": "runs/demo", "score": "scores.csv"}.get(noun, name)
    what = "scores" if noun == "score" else f"a {noun}"
    return f"{command} needs {what}, such as {command} {example}"


def _commands() -> list[str]:
    return [name for names in COMMANDS.values() for name in names]


def _options(chain: Sequence[str]) -> list[str]:
    """Return the options of a command, or those of layerscope itself."""
    own = app if not chain else app[chain[0]]
    flags = [*own.help_flags, *own.version_flags]
    if not chain:
        return flags
    return [*(name for argument in own.assemble_argument_collection() for name in argument.names), *flags]


def _meant(word: str, options: list[str]) -> str:
    """Return the option that a word too many goes with, where it is a file or a number; empty where it may be any."""
    if word.isdecimal():
        option = next((name for name in ("--layer",) if name in options), None)
    else:
        is_data = "/" in word or "." in word or word.startswith("hf:") or word in ("stdlib-docs", "digits")
        option = next((name for name in ("--data", "--train") if name in options and is_data), None)
    return f", did you mean {option} {word}?" if option and option not in sys.argv else ""


def machine(error: Exception) -> str | None:
    """Return the line on an error that is not the program's but the machine's: of its files or its memory."""
    if isinstance(error, MemoryError) or "can't allocate memory" in str(error):
        return "out of memory: take fewer samples, a smaller --batch-size or a smaller model, then run it again"
    if OF_TORCH.search(str(error)):
        return "a file cannot be written (torch does not say why, as on a full disk): make room, then run it again"
    if "No space left on device" in str(error) and not isinstance(error, OSError):  # of another library
        return "no space left on the disk: make room, then run the same command again"
    if not isinstance(error, OSError) and (found := OF_RUST.search(str(error))):
        error = OSError(int(found[1]), os.strerror(int(found[1])))
    if not isinstance(error, OSError) or error.strerror is None:
        return None
    what = repr(os.fsdecode(error.filename)) if isinstance(error.filename, (str, bytes)) else "a file"
    if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        return f"{what} cannot be written ({error.strerror}): make room, then run the same command again"
    return f"{what} cannot be used ({error.strerror}): check what is there, then run the same command again"


def printable(line: str) -> str:
    """Return a line with what would steer a terminal spelt out."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in " ".join(line.split()))


def ready_output() -> None:
    """Let standard output and error replace what their encoding cannot show: a run must not die of a `±`."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:  # closed by the caller (>&-)
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115
        elif hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")


def drop_output() -> None:
    """Send what is still to be written to a broken standard output nowhere, so that the end of Python is silent."""
    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
