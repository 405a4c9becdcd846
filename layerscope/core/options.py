"""The options of a verb: declared once, in its signature, for calls and the command line alike.

`Annotated[int, Whole(1), "The pass"]` is a whole number of at least 1, in the group "The pass" of
the command's help.
"""

import builtins
import inspect
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields, is_dataclass
from functools import cache
from pathlib import Path
from typing import (
    Annotated,
    Any,
    TypedDict,
    TypeVar,
    get_args,
    get_origin,
    get_type_hints,
    is_typeddict,
)

from layerscope.core.errors import LayerscopeError, choices
from layerscope.core.extras import require_for
from layerscope.core.option_kinds import Kind, Names, OneOf, Whole
from layerscope.core.removed_options import refuse_gone

T = TypeVar("T")
MODEL = "Model and weights"
DATA = "Data"
OUTPUT = "Output"
PLAIN = (bool, int, float)
LONGEST = 20
"""A longer sequence is written as its length."""
DTYPES = ("auto", "float32", "float16", "bfloat16", "float64")
Estimators = Annotated[str | Iterable[str], Names(("debiased", "biased"))]
Centrings = Annotated[str | Iterable[str], Names(("centered", "uncentered"))]
"""Forms of similarities that `profile` and `compare` take."""


@dataclass(frozen=True, kw_only=True)
class Options:
    """The options of one call, each checked and in its normal form; every verb has a subclass.

    The fields of the subclass are the verb's options by name, with the types of their normal form.
    A field that is itself a dataclass or a `TypedDict` is made of the options that its own fields
    name, such as `load: LoadOptions`.
    """

    changed: frozenset[str] = frozenset()
    """Names of the options that are not at their defaults."""

    def refuse(self, names: Iterable[str], reason: str) -> None:
        """Raise `LayerscopeError` for the first of some options that is not at its default.

        `reason` completes the sentence that the option's name begins, such as "is for classifiers".
        """
        for name in names:
            if name in self.changed:
                raise LayerscopeError(f"`{name}` {reason}: leave it out")


@dataclass(frozen=True)
class Option:
    """One option of a verb, as its signature declares it."""

    name: str
    kind: Kind
    group: str | None
    default: Any
    optional: bool
    """Whether None may be given."""
    type: Any
    help: str


@cache
def declared(verb: Callable[..., Any]) -> Mapping[str, Option]:
    """Return the options of a verb by name, in order; those of `**shared: Unpack[…]` among them."""
    options: dict[str, Option] = {}
    lines = _lines(verb)
    # a name that only a type checker knows stands for anything
    names = defaultdict(lambda: Any, vars(builtins) | inspect.unwrap(verb).__globals__)
    # our own annotations
    signature = inspect.signature(verb, globals={}, locals=names, eval_str=True)
    for name, parameter in signature.parameters.items():
        annotation = parameter.annotation
        if parameter.kind is not inspect.Parameter.VAR_KEYWORD:
            options[name] = _option(name, annotation, parameter.default, lines)
            continue
        for shared in get_args(annotation):
            options |= _shared(shared)
    return options


def show_plain_types(verb: Any) -> None:
    """Let editors and notebooks show the types of a verb's options, without what only its own checks read."""
    signature = inspect.signature(verb)
    parameters = signature.parameters.values()
    if not any(
        get_origin(parameter.annotation) is Annotated for parameter in parameters
    ):
        return
    options = declared(verb)
    plain = [
        parameter.replace(annotation=options[parameter.name].type)
        if parameter.name in options
        else parameter
        for parameter in parameters
    ]
    verb.__signature__ = signature.replace(parameters=plain)


def checked(verb: Callable[..., Any], call: Mapping[str, Any], kind: type[T]) -> T:
    """Return a call's options (its `locals()`) as a subclass of `Options`, each in its normal form.

    Raises:
        LayerscopeError: for an option out of range or one that does not exist, and for an extra
            that is not installed.

    """
    values: dict[str, Any] = {}
    changed: set[str] = set()
    for name, value in every(verb, call).items():
        option = declared(verb)[name]
        if not (value is None and option.optional):
            value = option.kind.take(name, value)
        values[name] = value
        if not is_same(value, option.default):
            changed.add(name)
    require_for(verb.__name__, values)
    return _filled(kind, {**values, "changed": frozenset(changed)})


def is_same(value: Any, default: Any) -> bool:
    """Return whether a value is an option's default; arrays and models are compared by identity."""
    if value is default:
        return True
    return isinstance(value, (*PLAIN, str, tuple)) and value == default


def _filled(kind: type[T], values: Mapping[str, Any]) -> T:
    """Return a dataclass of the values that its fields name; fields without a value keep defaults."""
    arguments: dict[str, Any] = {}
    for name, hint in get_type_hints(kind).items():
        if isinstance(hint, type) and is_dataclass(hint):
            arguments[name] = _filled(hint, values)
        elif is_typeddict(hint):
            keys = get_type_hints(hint).keys() & values.keys()
            arguments[name] = {key: values[key] for key in keys}
        elif name in values:
            arguments[name] = values[name]
    return kind(**arguments)


def every(verb: Callable[..., Any], arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return the value of every option of a verb; one that is not given has its default."""
    options = declared(verb)
    flat = dict(arguments)
    for name, parameter in inspect.signature(verb).parameters.items():
        if parameter.kind is parameter.VAR_KEYWORD:
            flat |= flat.pop(name, {})
    refuse_gone(verb.__name__, flat)
    for name in flat:
        if name not in options:
            raise LayerscopeError(
                f"{verb.__name__} has no option {name!r}{choices(name, options)}"
            )
    return {name: flat.get(name, option.default) for name, option in options.items()}


def spoken(
    verb: Callable[..., Any], arguments: Mapping[str, Any], *without: str
) -> str:
    """Return a call of a verb as Python code, without the arguments left at their defaults and some others."""
    parts = []
    for name, value in every(verb, arguments).items():
        default = declared(verb)[name].default
        if name in ("progress", "command", *without) or is_same(value, default):
            continue
        text = _literal(value)
        if name not in ("model", "data"):
            text = f"{name}={text}"
        parts.append(text)
    return f"layerscope.{verb.__name__}({', '.join(parts)})"


def _literal(value: Any) -> str:
    """Return a value as Python code; what is no literal (a model, a frame) is its kind in angle brackets."""
    if isinstance(value, Path):
        return repr(str(value))
    if isinstance(value, (*PLAIN, str, type(None))):
        return repr(value)
    is_short = isinstance(value, (list, tuple)) and len(value) <= LONGEST
    if is_short and all(isinstance(entry, PLAIN) for entry in value):
        return repr(value)
    try:
        return f"<{type(value).__name__} of {len(value):,}>"
    except TypeError:  # some models have a length in name only
        return f"<{type(value).__name__}>"


def _shared(shared: Any) -> dict[str, Option]:
    """Return the options that a `TypedDict` or a dataclass declares, whose docstring has a line on each."""
    if shared is Any:
        return {}
    defaults = DEFAULTS
    if is_dataclass(shared):
        defaults = {field.name: field.default for field in fields(shared)}
    # a `TypedDict` does not know which others it was made of
    lines = _lines(Loading) | _lines(Reading) | _lines(Chat) | _lines(shared)
    options: dict[str, Option] = {}
    for name, annotation in get_type_hints(shared, include_extras=True).items():
        options[name] = _option(name, annotation, defaults.get(name), lines)
    return options


def _option(
    name: str, annotation: Any, default: Any, lines: Mapping[str, str]
) -> Option:
    annotated = get_origin(annotation) is Annotated
    bare, *about = get_args(annotation) if annotated else (annotation,)
    kind = next((entry for entry in about if isinstance(entry, Kind)), Kind())
    group = next((entry for entry in about if isinstance(entry, str)), None)
    optional = default is None or type(None) in get_args(bare) or bare is Any
    return Option(name, kind, group, default, optional, bare, lines.get(name, ""))


def _lines(where: Any) -> dict[str, str]:
    """Return the line on each option in a docstring's Args or Attributes."""
    lines: dict[str, str] = {}
    name = ""
    for line in inspect.cleandoc(where.__doc__ or "").splitlines():
        if start := re.match(r"    (\w+): (.*)", line):
            name = start[1]
            lines[name] = start[2]
        elif name and line.startswith("        "):
            lines[name] += f" {line.strip()}"
        else:
            name = ""
    return lines


DEFAULTS: dict[str, Any] = {
    "dtype": "auto",
    "device": "auto",
    "trust_remote_code": False,
    "allow_pickle": False,
    "chat": False,
}
"""Of the options below; the others are None."""


class Loading(TypedDict, total=False):
    """How a model is loaded, and where its layers are.

    Attributes:
        revision: Branch, tag or commit of a hub model.
        part: Stack of blocks, if the model has several: encoder, decoder, text, vision, or a module
            path.
        blocks: Path of the module that holds the blocks; by default it is found automatically.
        norm: Path of the final norm, or none; by default it is found automatically.
        dtype: Data type of the weights; auto is float32 on a CPU, else the checkpoint's own.
        device: Device to run on: auto, cpu, cuda:0, or map to spread the model over all.
        trust_remote_code: Let the checkpoint's own code run.
        allow_pickle: Load pickled weights, which can run code.

    """

    revision: Annotated[str | None, MODEL]
    part: Annotated[str | None, MODEL]
    blocks: Annotated[str | None, MODEL]
    norm: Annotated[str | None, MODEL]
    dtype: Annotated[str, OneOf(DTYPES), MODEL]
    device: Annotated[str, MODEL]
    trust_remote_code: Annotated[bool, MODEL]
    allow_pickle: Annotated[bool, MODEL]


class Reading(TypedDict, total=False):
    """How a table of samples is read.

    Attributes:
        text_column: Column of the texts; by default the one with a usual name, such as text.
        label_column: Column of the labels; by default the one with a usual name, such as label.
        max_length: Maximum number of tokens per text; by default the model's own limit, up to 512.

    """

    text_column: Annotated[str | None, DATA]
    label_column: Annotated[str | None, DATA]
    max_length: Annotated[int | None, Whole(1), DATA]


class Chat(TypedDict, total=False):
    """Whether texts are wrapped.

    Attributes:
        chat: Wrap each text, or the messages in the column messages, in the tokenizer's chat
            template.

    """

    chat: Annotated[bool, DATA]


class LoadingAndReading(Loading, Reading, total=False):
    """How a model is loaded and its samples are read."""


class LoadingAndChat(Loading, Chat, total=False):
    """How a model is loaded, and whether texts are wrapped in its chat template."""


class LoadingReadingAndChat(Loading, Reading, Chat, total=False):
    """How a model is loaded and its samples are read, and whether texts are wrapped in its chat template."""
