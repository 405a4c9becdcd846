"""What an option may be, declared once in a verb's signature, for calls and the command line alike.

`Annotated[int, Whole(1), "The pass"]` is a whole number of at least 1, in the group "The pass" of the command's help.
"""

from __future__ import annotations

import builtins
import inspect
import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields, is_dataclass
from fractions import Fraction
from functools import cache
from numbers import Integral, Real
from pathlib import Path
from types import SimpleNamespace
from typing import Annotated, Any, ClassVar, TypeVar, get_args, get_origin, get_type_hints

from layerscope.core.errors import LayerscopeError, choices

T = TypeVar("T")
SHARE = re.compile(r"\d{1,9}/\d{1,9}")
RANGE = re.compile(r"(\d{1,4}) *(?:-|\.\.) *(\d{1,4})")


class Kind:
    """What values an option takes, and how a command line writes them."""

    metavar: ClassVar[str] = "TEXT"

    def read(self, name: str, text: str) -> Any:
        """Return the value that a text says, or the text itself, which `take` then refuses."""
        return text

    def take(self, name: str, value: Any) -> Any:
        """Return a value in its normal form; raise `LayerscopeError` for one out of range."""
        return value


@dataclass(frozen=True)
class Number(Kind):
    """A finite number within bounds, or one of some words; `such_as` is an example for the error."""

    least: float | None = None
    most: float | None = None
    above: float | None = None
    below: float | None = None
    words: tuple[str, ...] = ()
    such_as: str = ""

    metavar: ClassVar[str] = "NUMBER"
    title: ClassVar[str] = "a number"

    def read(self, name: str, text: str) -> Any:
        """Return the number in a text."""
        try:
            return text if text in self.words else float(Fraction(text) if SHARE.fullmatch(text) else text)
        except (ValueError, ZeroDivisionError):
            return text

    def take(self, name: str, value: Any) -> Any:
        """Return the number or word itself."""
        if not (self.fits(value) or (isinstance(value, str) and value in self.words)):
            raise LayerscopeError(f"{name} is {shown(value)}: give {self.title}{self.bounds}{self._others()}")
        return value

    def fits(self, value: Any) -> bool:
        """Return whether a value is such a number."""
        number: Any = value
        return (
            isinstance(value, Real)
            and not isinstance(value, bool)
            and math.isfinite(value)
            and (self.least is None or number >= self.least)
            and (self.most is None or number <= self.most)
            and (self.above is None or number > self.above)
            and (self.below is None or number < self.below)
        )

    @property
    def bounds(self) -> str:
        """The bounds in words, with a space before them."""
        if self.least is not None and self.most is not None:
            return f" from {self.least} to {self.most}"
        if self.above is not None and self.below is not None:
            return f" between {self.above} and {self.below}"
        given = (("of at least", self.least), ("above", self.above), ("at most", self.most), ("below", self.below))
        return "".join([" " + " and ".join(f"{word} {bound}" for word, bound in given if bound is not None)]).rstrip()

    def _others(self) -> str:
        words = "".join(f", or {word}" for word in self.words)
        return words + (f", such as {self.such_as}" if self.such_as else "")


@dataclass(frozen=True)
class Whole(Number):
    """A whole number within bounds, or one of some words."""

    metavar: ClassVar[str] = "INTEGER"
    title: ClassVar[str] = "a whole number"

    def read(self, name: str, text: str) -> Any:
        """Return the whole number in a text."""
        try:
            return text if text in self.words else int(text)
        except ValueError:
            return text

    def fits(self, value: Any) -> bool:
        """Return whether a value is such a number."""
        return isinstance(value, Integral) and super().fits(value)


@dataclass(frozen=True)
class Several(Kind):
    """One number or several; a command line writes them with commas, and whole ones also as 3-6."""

    each: Number
    words: tuple[str, ...] = ()
    such_as: str = ""
    metavar: ClassVar[str] = "NUMBERS"

    def read(self, name: str, text: str) -> Any:
        """Return the numbers in a text."""
        if text in self.words:
            return text
        parts = [part.strip() for part in text.split(",")]
        return [number for part in parts for number in self._range(name, part)]

    def _range(self, name: str, text: str) -> Iterable[Any]:
        ends = RANGE.fullmatch(text) if isinstance(self.each, Whole) else None
        if ends is None:
            return [self.each.read(name, text)]
        first, last = map(int, ends.groups())
        if last < first:
            raise LayerscopeError(f"{name} is {text!r}, which ends before it begins: give {last}-{first}")
        return range(first, last + 1)

    def take(self, name: str, value: Any) -> Any:
        """Return a list of numbers, or the word itself."""
        if isinstance(value, str):
            value = self.read(name, value)
        if isinstance(value, str):
            return value
        numbers = list(value) if isinstance(value, Iterable) else [value]
        wrong = [number for number in numbers if not self.each.fits(number)]
        if wrong or not numbers:
            held = shown(wrong[0]) if wrong else "empty"
            title = self.each.title.removeprefix("a ") + "s"
            example = f", such as {self.such_as}" if self.such_as else ""
            words = "".join(f", or {word}" for word in self.words)
            raise LayerscopeError(f"{name} is {held}: give {title}{self.each.bounds}{example}{words}")
        return numbers


@dataclass(frozen=True)
class OneOf(Kind):
    """One of some names."""

    names: tuple[str, ...]

    metavar: ClassVar[str] = "NAME"

    def take(self, name: str, value: Any) -> Any:
        """Return the name itself."""
        if value not in self.names:
            raise LayerscopeError(f"{name} {value!r} does not exist{choices(str(value), self.names)}")
        return value


@dataclass(frozen=True)
class Names(Kind):
    """Names in a list; a text holds them with commas."""

    metavar: ClassVar[str] = "NAMES"

    def take(self, name: str, value: Any) -> Any:
        """Return a list of names."""
        found = [str(name).strip() for name in (value.split(",") if isinstance(value, str) else value)]
        if not any(found):
            raise LayerscopeError(f"{name} is {shown(value)}: give one name or several, or leave it out")
        return [name for name in found if name]


@dataclass(frozen=True)
class Weights(Kind):
    """Names with a weight each, 1 where none is given; a text holds them as STS12=2,trec."""

    metavar: ClassVar[str] = "NAMES"

    def take(self, name: str, value: Any) -> Any:
        """Return the weight of each name."""
        if isinstance(value, Mapping):
            return value
        return dict(self._one(name, part) for part in Names().take(name, value))

    def _one(self, name: str, text: str) -> tuple[str, float]:
        own, sign, weight = text.rpartition("=")
        if not sign:
            return text, 1.0
        try:
            return own.strip(), float(weight)
        except ValueError:
            raise LayerscopeError(f"{name}: the weight of {own!r} is {weight!r}: give a number above 0") from None


@dataclass(frozen=True)
class Repeated(Kind):
    """Values in a list; a command line repeats the option."""


@dataclass(frozen=True)
class Folder(Kind):
    """A folder to write to."""

    metavar: ClassVar[str] = "FOLDER"

    def take(self, name: str, value: Any) -> Any:
        """Return the folder, `~` spelt out; one that could not be made is refused before the long job."""
        try:
            folder = Path(value).expanduser()
            there = next(above for above in (folder, *folder.absolute().parents) if above.exists())
        except (OSError, RuntimeError) as error:  # RuntimeError: ~ of nobody
            reason = getattr(error, "strerror", None) or error
            raise LayerscopeError(f"{name} {str(value)!r} cannot be made ({reason}): name a folder") from error
        if not there.is_dir():
            raise LayerscopeError(f"{name} {str(folder)!r} cannot be made ({there} is a file): name a folder")
        return folder


class InCode(Kind):
    """Something that no command line can write."""


@dataclass(frozen=True)
class Line:
    """The line of help on an option that a `TypedDict` declares, and its default."""

    text: str
    default: Any = None


IN_CODE = InCode()
SEED = Whole(0, 2**32 - 1)  # what scikit-learn takes


def shown(value: Any) -> str:
    """Return a value as an error quotes it."""
    return f"{value:g}" if isinstance(value, float) else repr(value)


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


class Asked(SimpleNamespace):
    """The options of a call, each checked and in its normal form."""

    def of(self, kind: Callable[..., T], **others: Any) -> T:
        """Return a dataclass made of the options that its fields name; fields that no option names keep defaults."""
        named = {field.name: vars(self)[field.name] for field in fields(kind) if field.name in vars(self)}  # type: ignore[arg-type]
        return kind(**named | others)


@cache
def declared(verb: Callable[..., Any]) -> Mapping[str, Option]:
    """Return the options of a verb by name, in order; those of `**shared: Unpack[…]` among them."""
    found: dict[str, Option] = {}
    said = _said(verb)
    for name, parameter in inspect.signature(verb).parameters.items():
        annotation = _evaluated(parameter.annotation, verb)
        if parameter.kind is not inspect.Parameter.VAR_KEYWORD:
            found[name] = _option(name, annotation, parameter.default, said.get(name, ""))
            continue
        for shared in get_args(annotation):
            found |= _shared(shared)
    return found


def checked(verb: Callable[..., Any], given: Mapping[str, Any]) -> Asked:
    """Return a call's options (its `locals()`), each in its normal form.

    Raises:
        LayerscopeError: for an option out of range or one that does not exist.

    """
    found = {}
    for name, value in every(verb, given).items():
        option = declared(verb)[name]
        found[name] = value if value is None and option.optional else option.kind.take(name, value)
    return Asked(**found)


def every(verb: Callable[..., Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the value of every option of a verb; one that is not given has its default."""
    options = declared(verb)
    rest = next(
        (name for name, place in inspect.signature(verb).parameters.items() if place.kind is place.VAR_KEYWORD), ""
    )
    flat = {name: value for name, value in given.items() if name != rest} | given.get(rest, {})
    for name in flat:
        if name not in options:
            raise LayerscopeError(f"{verb.__name__} has no option {name!r}{choices(name, options)}")
    return {name: flat.get(name, option.default) for name, option in options.items()}


def _shared(shared: Any) -> dict[str, Option]:
    """Return the options that a `TypedDict` declares, or a dataclass whose docstring has a line on each."""
    if shared is Any:
        return {}
    defaults = {field.name: field.default for field in fields(shared)} if is_dataclass(shared) else {}
    said, found = _said(shared), {}
    for name, annotation in get_type_hints(shared, include_extras=True).items():
        line = next((entry for entry in get_args(annotation) if isinstance(entry, Line)), Line(said.get(name, "")))
        found[name] = _option(name, annotation, defaults.get(name, line.default), line.text)
    return found


def _option(name: str, annotation: Any, default: Any, text: str) -> Option:
    annotated = get_origin(annotation) is Annotated
    bare, *about = get_args(annotation) if annotated else (annotation,)
    kind = next((entry for entry in about if isinstance(entry, Kind)), Kind())
    group = next((entry for entry in about if isinstance(entry, str)), None)
    optional = default is None or type(None) in get_args(bare) or bare is Any
    return Option(name, kind, group, default, optional, bare, text)


def _evaluated(annotation: Any, verb: Callable[..., Any]) -> Any:
    if not isinstance(annotation, str):
        return annotation
    return eval(annotation, {}, _Names(vars(builtins) | inspect.unwrap(verb).__globals__))  # our own signatures


class _Names(dict[str, Any]):
    """The names of a module; one that only a type checker knows stands for anything."""

    def __missing__(self, name: str) -> Any:
        return Any


def _said(where: Any) -> dict[str, str]:
    """Return the line on each option in a docstring's Args or Attributes."""
    said: dict[str, str] = {}
    name = ""
    for line in inspect.cleandoc(where.__doc__ or "").splitlines():
        start = re.match(r"    (\w+): (.*)", line)
        if start is not None:
            name = start[1]
            said[name] = start[2]
        elif name and line.startswith("        "):
            said[name] += f" {line.strip()}"
        else:
            name = ""
    return said
