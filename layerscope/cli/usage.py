"""What a wrong command line is answered: one line in the house's words, not in those of the parser."""

from __future__ import annotations

import errno
import os
import re
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

from layerscope.core.errors import LayerscopeError, near

OF_TORCH = re.compile(r"PytorchStreamWriter|inline_container\.cc:\d+\] \. unexpected pos")
OF_RUST = re.compile(r"\(os error (\d+)\)")
RANGE = re.compile(r"(\d{1,4}) *(?:-|\.\.) *(\d{1,4})")


def whole(text: str | None) -> Any:
    """Return the whole number a text holds, or the text itself, which the options then refuse by name."""
    try:
        return None if text is None else int(text)
    except ValueError:
        return text


def fraction(text: str) -> Any:
    """Return the number a text holds, or the text itself, which the options then refuse by name."""
    try:
        return float(text)
    except ValueError:
        return text


def names(text: str | None, option: str) -> list[str] | None:
    """Return the names in a text with commas; none at all is an error."""
    found = None if text is None else [name.strip() for name in text.split(",") if name.strip()]
    if found == []:
        raise LayerscopeError(f"{option} {text!r} names none: give names with commas, or leave it out for all")
    return found


def numbers(text: str, option: str) -> list[float]:
    """Return the numbers in a text with commas."""
    try:
        return [float(part) for part in text.split(",")]
    except ValueError:
        raise LayerscopeError(
            f"{option} {text!r} is not a number: give one, or several with commas, such as 1,2"
        ) from None


def layers(text: str | None, option: str) -> list[Any] | None:
    """Return the layers in a text with commas, where 2-4 and 2..4 are three of them; what is none is an error."""
    found: list[Any] = []
    for name in names(text, option) or ():
        ends = RANGE.fullmatch(name)
        first, last = map(int, ends.groups()) if ends else (whole(name), None)
        if not isinstance(first, int):
            raise LayerscopeError(f"{option} {name!r} is not a whole number: give layers such as 3,6 or 3-6")
        if last is not None and last < first:
            raise LayerscopeError(f"{option} {name!r} ends before it begins: give {last}-{first}")
        found += [first] if last is None else range(first, last + 1)
    return None if text is None else found


def wholes(text: str | None, option: str) -> list[Any] | None:
    """Return the whole numbers in a text with commas; what is none stays text, which the options refuse by name."""
    return None if text is None else [whole(part) for part in names(text, option) or ()]


def told(error: Any) -> str:
    """Return what a usage error of the parser says, with the near name and the mend."""
    kind, context = type(error).__name__, error.ctx
    typed = next((word for word in sys.argv[1:] if not word.startswith("-")), "")
    command = getattr(context, "command_path", None) or f"layerscope {typed}".strip()
    if kind == "NoSuchOption":
        hint = near(error.option_name, _options(context))
        return f"option {error.option_name} does not exist{hint or ':'} {_listed(hint, command)}"
    if kind == "NoArgsIsHelpError":
        return "no command is given: layerscope demo is the one to start with"
    if kind == "MissingParameter":
        name = str(error.param.name).rstrip("s")
        example = {"model": "minilm", "run": "runs/demo"}.get(name, name.upper())
        return f"{command} needs a {name}, such as {command} {example}"
    text = str(error.format_message())
    commands = getattr(getattr(context, "command", None), "commands", None)
    if commands and text.startswith("No such command"):
        hint = near(typed, commands)
        return f"command {typed!r} does not exist{hint or ':'} {_listed(hint, command)}"
    if text.startswith("Got unexpected extra argument"):
        extra = (text.rpartition("(")[2].rstrip(").").split() or [""])[0]
        hint = _meant(extra, _options(context)) or ": put texts with spaces in quotes"
        return f"{extra!r} is one word too many for {command}{hint}"
    if "requires an argument" in text:
        return f"option {error.option_name} needs a value: {command} --help shows which"
    return f"{text.rstrip('.')}: {command} --help shows how"


def _meant(word: str, options: list[str]) -> str:
    """Return the option that a word too many goes with, where it is a file or a number; empty where it may be any."""
    if word.isdecimal():
        option = next((name for name in ("--layer",) if name in options), None)
    else:
        is_data = "/" in word or "." in word or word.startswith("hf:") or word in ("stdlib-docs", "digits")
        option = next((name for name in ("--data", "--train") if name in options and is_data), None)
    return f", did you mean {option} {word}?" if option and option not in sys.argv else ""


def _options(context: Any) -> list[str]:
    return [name for option in context.command.params for name in option.opts if name.startswith("--")]


def _listed(hint: str, command: str) -> str:
    return f"({command} --help lists them)" if hint else f"{command} --help lists them"


def place(option: str, folder: Path | None) -> Path | None:
    """Return a folder to be written to, `~` spelt out; one that could not be made is refused before the long job."""
    if folder is None:
        return None
    try:
        folder = folder.expanduser()
        there = next(above for above in (folder, *folder.absolute().parents) if above.exists())
    except (OSError, RuntimeError) as error:  # RuntimeError: ~ of nobody
        reason = getattr(error, "strerror", None) or error
        raise LayerscopeError(f"{option} {str(folder)!r} cannot be made ({reason}): name a folder") from error
    if not there.is_dir():
        raise LayerscopeError(f"{option} {str(folder)!r} cannot be made ({there} is a file): name a folder")
    return folder


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
