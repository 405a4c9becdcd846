"""A command made of a verb: its options are those of the verb's signature, its help the verb's docstring."""

import inspect
import os
import re
import shlex
import sys
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack, redirect_stderr
from functools import cache
from inspect import Parameter as Declared
from pathlib import Path
from typing import Annotated, Any

from cyclopts import App, Group, Parameter

from layerscope.cli.output import Printing
from layerscope.core import OUTPUT, LayerscopeError, OneOf, Repeated, listed, processes
from layerscope.core.errors import use_flags
from layerscope.core.extras import require_for
from layerscope.core.option_kinds import InCode
from layerscope.core.options import Option, declared

SHARED = ("evaluate", "exits", "extract", "profile", "select", "train")
"""The commands whose work several processes share."""
OPTIONS = "Options"
SWITCHES = {
    "long": "Print every table and sentence, not only those that answer.",
    "json": "Print the result as JSON on standard output.",
    "quiet": "Print nothing on standard error but errors.",
}
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
        first, *others = options.values()
        parameters = [_positional(first, argument)]
        parameters += [_named(option, groups) for option in others]
        # after the verb's options and how to print come those of the command itself
        parameters += list(inspect.signature(do, eval_str=True).parameters.values())[2:]
        for name, text in SWITCHES.items():
            if prints or name != "long":
                switch = _keyword(name, False, bool, on_or_off(text, OUTPUT))
                parameters.append(switch)
        flags = [_flag(parameter.name) for parameter in parameters]

        def run(
            *positional: Any,
            json: bool = False,
            long: bool = False,
            quiet: bool = False,
            **named: Any,
        ) -> None:
            _check_alone(do.__name__)
            use_flags(flags)
            values = dict(zip(options, positional, strict=False)) | named
            of_verb: Options = {}
            for name, option in options.items():
                if name in values:
                    value = values.pop(name)
                    is_text = isinstance(value, str)
                    of_verb[name] = option.kind.read(value) if is_text else value
            require_for(do.__name__, of_verb | values)
            with ExitStack() as stack:
                if quiet:
                    nowhere = stack.enter_context(open(os.devnull, "w"))
                    stack.enter_context(redirect_stderr(nowhere))
                do(of_verb, Printing(json, long), **values)

        run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]  # what cyclopts reads
        run.__annotations__ = {}  # cyclopts would take these for those of the signature
        summary, _, _ = str(inspect.getdoc(verb)).partition("\n\n")
        summary = summary.replace("\n", " ")
        example = _examples()[do.__name__]
        return App(
            name=do.__name__, default_command=run, help=summary, help_epilogue=example
        )

    return make


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
    groups: dict[str, Group] = {}
    for option in options:
        title = option.group or OPTIONS
        groups.setdefault(title, Group(title, sort_key=len(groups)))
    groups[OUTPUT] = Group(OUTPUT, sort_key=len(groups))
    return groups


@cache
def _examples() -> dict[str, str]:
    """Return what the help of each command ends with, from `examples.txt`."""
    text = Path(__file__).with_name("examples.txt").read_text("utf-8")
    examples: dict[str, str] = {}
    for part in re.split(r"^# ", text, flags=re.M):
        name, _, example = part.partition("\n")
        examples[name] = example.strip("\n")
    return examples


def command_line() -> str:
    """Return the command as it was typed."""
    return shlex.join(["layerscope", *sys.argv[1:]])


def _flag(name: str) -> str:
    """Return an option as it is typed."""
    return f"--{name.replace('_', '-')}"


def _hint(option: Option) -> Any:
    """Return the type that the parser makes of what is typed."""
    if isinstance(option.kind, Repeated):
        return list[str]
    return str


def _positional(option: Option, argument: str) -> Declared:
    """Return a verb's first option as an argument without a name."""
    about = Parameter(
        name=argument or None, help=_sentence(option.help), converter=_typed
    )
    kind = _hint(option)
    if option.default is not Declared.empty:
        # None must fit, too: where pydantic happens to be loaded, cyclopts has it check the default
        kind |= None
    return Declared(
        option.name,
        Declared.POSITIONAL_ONLY,
        default=option.default,
        annotation=Annotated[kind, about],
    )


def _named(option: Option, groups: dict[str, Group]) -> Declared:
    """Return a verb's option as a parameter that cyclopts reads; a value stays the text that was typed."""
    group = groups[option.group or OPTIONS]
    help = _sentence(option.help)
    if option.type in (bool, bool | None):
        off: tuple[str, ...] = ()
        if option.default is not False:
            off = (_flag(f"no_{option.name}"),)
        about = Parameter(help=help, group=group, show_default=False, negative=off)
        return _keyword(option.name, option.default, option.type, about)
    # not a Literal, of which cyclopts refuses other names in words of its own where pydantic
    # happens to be loaded
    if isinstance(option.kind, OneOf):
        help += f" [choices: {', '.join(option.kind.names)}]"
    shown: Any = str(option.default)
    if option.default in (None, "", ()):
        shown = False
    about = Parameter(
        help=help,
        group=group,
        converter=_typed,
        metavar=_metavar(option),
        negative=(),
        show_default=shown,
        allow_leading_hyphen=True,
        allow_repeating=True,
    )
    # The verb has its own defaults: only what is typed is given.
    default = None
    if option.default is Declared.empty:
        default = Declared.empty
    return _keyword(option.name, default, _hint(option) | None, about)


def _keyword(name: str, default: Any, kind: Any, about: Parameter) -> Declared:
    """Return an option as a parameter that cyclopts reads."""
    return Declared(
        name, Declared.KEYWORD_ONLY, default=default, annotation=Annotated[kind, about]
    )


def _metavar(option: Option) -> str:
    """Return what stands for a value in the help; several words are in the line on the option."""
    words = getattr(option.kind, "words", ())
    if len(words) > 2:
        words = ("NAME",)
    return "|".join((option.kind.metavar, *words))


def on_or_off(text: str, group: str) -> Parameter:
    """Return how the help shows an option that is on or off."""
    return Parameter(help=text, group=group, show_default=False, negative=())


def _sentence(text: str) -> str:
    """Return a docstring's line on an option as help: what only Python takes is left out."""
    text = re.split(r"[;.] [Ii]n Python ", text)[0].removesuffix(".")
    return f"{text[:1].upper()}{text[1:]}."


def _typed(hint: Any, tokens: Sequence[Any]) -> Any:
    """Return what was typed for an option as text, or texts where it may be repeated."""
    words = [token.value for token in tokens]
    if hint == list[str]:
        return words
    return words[0]
