"""A command made of a verb: its options are those of the verb's signature, its help the verb's docstring."""

import inspect
import os
import re
import shlex
import sys
from collections.abc import Callable, Iterable, Sequence
from contextlib import nullcontext, redirect_stderr
from functools import cache
from inspect import Parameter as Declared
from pathlib import Path
from typing import Annotated, Any

from cyclopts import App, Group, Parameter

from layerscope.cli.output import Printing
from layerscope.core import processes
from layerscope.core.errors import LayerscopeError, listed, use_flags
from layerscope.core.extras import require_for
from layerscope.core.option_kinds import Folder, InCode, OneOf, Repeated
from layerscope.core.options import OUTPUT, Option, declared

SHARED = ("evaluate", "exits", "extract", "profile", "select", "train")
"""The commands whose work several processes share."""
OPTIONS = "Options"
PRINTING = {
    "long": "Print every table and sentence, not only those that answer.",
    "json": "Print the result as JSON on standard output.",
}
QUIET = "Print nothing on standard error but errors."
HINTS = {Folder: Path, Repeated: list[str]}
"""The types that completion knows more of than of a text."""
Options = dict[str, Any]
"""What the command line says of a verb's options: those that are given, by name."""


def command(
    verb: Callable[..., Any], *, argument: str = "", prints: bool = True
) -> Callable[[Callable[..., None]], App]:
    """Return a decorator that makes an app of a function of the verb's options, how to print, and options of its own.

    `argument` is what the help calls the verb's first option, which is given on the command line
    without a name; `prints` is whether a document is printed.
    """

    def make(do: Callable[..., None]) -> App:
        options = {
            name: option
            for name, option in declared(verb).items()
            if not isinstance(option.kind, InCode)
        }
        groups = _groups(options.values())
        parameters = [_named(option, groups) for option in options.values()]
        first = next(iter(inspect.signature(verb).parameters.values()))
        if first.kind is Declared.POSITIONAL_OR_KEYWORD:
            parameters[0] = _positional(options[first.name], argument)
        # after the verb's options and how to print come those of the command itself
        extra = list(inspect.signature(do, eval_str=True).parameters.values())[2:]
        switches = PRINTING if prints else {"json": PRINTING["json"]}
        extra += [
            _switch(name, text) for name, text in {**switches, "quiet": QUIET}.items()
        ]
        flags = [
            _flag(name) for name in [*options, *(parameter.name for parameter in extra)]
        ]

        def run(*positional: Any, **named: Any) -> None:
            _check_alone(do.__name__)
            use_flags(flags)
            values = dict(zip(options, positional, strict=False)) | named
            of_verb = {
                name: _read(options[name], values[name])
                for name in options
                if name in values
            }
            rest = {
                name: _taken(name, values[name])
                for name in values
                if name not in options
            }
            printing = Printing(**{name: rest.pop(name, False) for name in PRINTING})
            quiet = rest.pop("quiet", False)
            require_for(do.__name__, of_verb | rest)
            with (
                open(os.devnull, "w") as nowhere,
                redirect_stderr(nowhere) if quiet else nullcontext(),
            ):
                do(of_verb, printing, **rest)

        run.__signature__ = inspect.Signature([*parameters, *extra])  # type: ignore[attr-defined]  # what cyclopts reads
        run.__annotations__ = {}  # cyclopts would take these for those of the signature
        summary = str(inspect.getdoc(verb)).partition("\n\n")[0].replace("\n", " ")
        example = _examples()[do.__name__]
        return App(
            name=do.__name__, default_command=run, help=summary, help_epilogue=example
        )

    return make


def _read(option: Option, value: Any) -> Any:
    """Return what was typed as the value of a verb's option."""
    return option.kind.read(value) if isinstance(value, str) else value


def _taken(name: str, value: Any) -> Any:
    """Return the value of an option that the command itself has."""
    return Folder().take(name, value) if isinstance(value, Path) else value


def _check_alone(name: str) -> None:
    """Raise where several processes were started for a command that works in one."""
    started = processes.launched()
    if started > 1 and name not in SHARED:
        raise LayerscopeError(
            f"{started} processes were started, and layerscope {name} works in one: start it without torchrun or "
            f"accelerate ({listed(SHARED)} work in several)"
        )


def _groups(options: Iterable[Option]) -> dict[str, Group]:
    """Return the groups of options in the order in which the help shows them, where the output goes last."""
    titles = dict.fromkeys(option.group or OPTIONS for option in options)
    titles.pop(OUTPUT, None)
    return {
        title: Group(title, sort_key=i) for i, title in enumerate([*titles, OUTPUT])
    }


@cache
def _examples() -> dict[str, str]:
    """Return what the help of each command ends with, from `examples.txt`."""
    text = Path(__file__).with_name("examples.txt").read_text("utf-8")
    parts = (part.partition("\n") for part in re.split(r"^# ", text, flags=re.M))
    return {name: example.strip("\n") for name, _, example in parts}


def command_line() -> str:
    """Return the command as it was typed."""
    return shlex.join(["layerscope", *sys.argv[1:]])


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def _positional(option: Option, argument: str) -> Declared:
    hint: Any = list[str] if isinstance(option.kind, Repeated) else str
    about = Parameter(
        name=argument or None, help=_sentence(option.help), converter=_typed
    )
    # None must fit, too: where pydantic happens to be loaded, cyclopts has it check the default
    kind = hint if option.default is Declared.empty else hint | None
    return Declared(
        option.name,
        Declared.POSITIONAL_ONLY,
        default=option.default,
        annotation=Annotated[kind, about],
    )


def _named(option: Option, groups: dict[str, Group]) -> Declared:
    """Return a verb's option as a parameter that cyclopts reads; a value stays the text that was typed."""
    group, help = groups[option.group or OPTIONS], _sentence(option.help)
    if option.type in (bool, bool | None):
        can_be_off = option.type == bool | None or option.default is True
        off = _flag(f"no_{option.name}") if can_be_off else ()
        about = Parameter(help=help, group=group, show_default=False, negative=off)
        return _keyword(option.name, option.default, option.type, about)
    hint: Any = next(
        (hint for kind, hint in HINTS.items() if isinstance(option.kind, kind)), str
    )
    # not a Literal, of which cyclopts refuses other names in words of its own where pydantic
    # happens to be loaded
    names = option.kind.names if isinstance(option.kind, OneOf) else ()
    about = Parameter(
        help=help + (f" [choices: {', '.join(names)}]" if names else ""),
        group=group,
        converter=_typed,
        completer=(lambda _: list(names)) if names else None,
        metavar=_metavar(option),
        negative=(),
        show_default=False if option.default in (None, "", ()) else str(option.default),
        allow_leading_hyphen=True,
        allow_repeating=True,
    )
    # The verb has its own defaults: only what is typed is given.
    default = Declared.empty if option.default is Declared.empty else None
    return _keyword(option.name, default, hint | None, about)


def _keyword(name: str, default: Any, kind: Any, about: Parameter) -> Declared:
    return Declared(
        name, Declared.KEYWORD_ONLY, default=default, annotation=Annotated[kind, about]
    )


def _metavar(option: Option) -> str:
    """Return what stands for a value in the help; several words are in the line on the option."""
    words = getattr(option.kind, "words", ())
    return "|".join((option.kind.metavar, *(words if len(words) < 3 else ["NAME"])))


def _switch(name: str, text: str) -> Declared:
    about = Parameter(help=text, group=OUTPUT, show_default=False, negative=())
    return _keyword(name, False, bool, about)


def _sentence(text: str) -> str:
    """Return a docstring's line on an option as help: what only Python takes is left out."""
    text = re.split(r"[;.] [Ii]n Python ", text)[0].removesuffix(".")
    return f"{text[:1].upper()}{text[1:]}."


def _typed(hint: Any, tokens: Sequence[Any]) -> Any:
    words = [token.value for token in tokens]
    return words if hint == list[str] else words[0]
