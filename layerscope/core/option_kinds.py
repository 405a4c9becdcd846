"""What values an option takes: read from a command line's text, and refused with one line where they are wrong."""

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from numbers import Integral, Real
from pathlib import Path
from typing import Any, ClassVar

from layerscope.core.errors import LayerscopeError, choices

SHARE = re.compile(r"\d{1,9}/\d{1,9}")
RANGE = re.compile(r"(\d{1,4}) *(?:-|\.\.) *(\d{1,4})")


class Kind:
    """What values an option takes, and how a command line writes them."""

    metavar: ClassVar[str] = "TEXT"

    def read(self, text: str) -> Any:
        """Return the value that a typed text stands for, or the text itself, which `take` then judges."""
        return text

    def take(self, name: str, value: Any) -> Any:
        """Return a value in its normal form; raise `LayerscopeError` for one out of range."""
        return value


@dataclass(frozen=True)
class Number(Kind):
    """A finite number within bounds, or one of some words; `such_as` is an example for the error."""

    least: float = -math.inf
    most: float = math.inf
    above: float = -math.inf
    below: float = math.inf
    words: tuple[str, ...] = ()
    such_as: str = ""

    metavar = "NUMBER"
    title: ClassVar[str] = "a number"

    def read(self, text: str) -> Any:
        """Return the number in a text, a fraction too."""
        try:
            return float(Fraction(text) if SHARE.fullmatch(text) else text)
        except (ValueError, ZeroDivisionError):
            return text

    def take(self, name: str, value: Any) -> Any:
        """Return the number or word itself."""
        if not (self.fits(value) or (isinstance(value, str) and value in self.words)):
            wanted = f"{self.title}{self.bounds}{_ending(self.words, self.such_as)}"
            raise LayerscopeError(f"{name} is {shown(value)}: give {wanted}")
        return value

    def fits(self, value: Any) -> bool:
        """Return whether a value is such a number."""
        is_number = isinstance(value, Real) and not isinstance(value, bool)
        return (
            is_number
            and self.least <= value <= self.most
            and self.above < value < self.below
        )

    @property
    def bounds(self) -> str:
        """The bounds in words, with a space before them."""
        if math.isfinite(self.most - self.least):
            return f" from {self.least} to {self.most}"
        if math.isfinite(self.below - self.above):
            return f" between {self.above} and {self.below}"
        ends = (
            ("of at least", self.least),
            ("above", self.above),
            ("at most", self.most),
            ("below", self.below),
        )
        words = " and ".join(
            f"{word} {bound}" for word, bound in ends if math.isfinite(bound)
        )
        return words and f" {words}"


@dataclass(frozen=True)
class Whole(Number):
    """A whole number within bounds, or one of some words."""

    metavar = "INTEGER"
    title = "a whole number"

    def read(self, text: str) -> Any:
        """Return the whole number in a text."""
        try:
            return int(text)
        except ValueError:
            return text

    def fits(self, value: Any) -> bool:
        """Return whether a value is such a number."""
        return isinstance(value, Integral) and super().fits(value)


@dataclass(frozen=True)
class Several(Kind):
    """One number or several; a text has commas between them, and whole ones may be a range as 3-6."""

    each: Number
    words: tuple[str, ...] = ()
    such_as: str = ""
    metavar = "NUMBERS"

    def take(self, name: str, value: Any) -> Any:
        """Return a list of numbers, or the word itself."""
        if isinstance(value, str):
            if value in self.words:
                return value
            value = [
                number
                for part in value.split(",")
                for number in self._range(name, part.strip())
            ]
        numbers = list(value) if isinstance(value, Iterable) else [value]
        wrong = [number for number in numbers if not self.each.fits(number)]
        if wrong or not numbers:
            wanted = f"{self.each.title.removeprefix('a ')}s{self.each.bounds}{_ending(self.words, self.such_as)}"
            raise LayerscopeError(
                f"{name} is {shown(wrong[0]) if wrong else 'empty'}: give {wanted}"
            )
        return numbers

    def _range(self, name: str, text: str) -> Iterable[Any]:
        ends = RANGE.fullmatch(text) if isinstance(self.each, Whole) else None
        if ends is None:
            return [self.each.read(text)]
        first, last = map(int, ends.groups())
        if last < first:
            raise LayerscopeError(
                f"{name} is {text!r}, which ends before it begins: give {last}-{first}"
            )
        return range(first, last + 1)


@dataclass(frozen=True)
class OneOf(Kind):
    """One of some names."""

    names: tuple[str, ...]

    metavar = "NAME"

    def take(self, name: str, value: Any) -> Any:
        """Return the name itself."""
        if value not in self.names:
            raise LayerscopeError(
                f"{name} {value!r} does not exist{choices(str(value), self.names)}"
            )
        return value


@dataclass(frozen=True)
class OneOrSome(Kind):
    """One of some words, or another word with a number after a colon, as in sample:1000."""

    words: tuple[str, ...]
    counted: str
    least: int

    metavar = "NAME"

    def take(self, name: str, value: Any) -> Any:
        """Return the text itself."""
        word, _, number = str(value).partition(":")
        fits = number.isdecimal() and int(number) >= self.least
        if value not in self.words and not (word == self.counted and fits):
            wanted = f"{', '.join(self.words)} or {self.counted}:N, N a whole number of at least {self.least}"
            raise LayerscopeError(f"{name} is {shown(value)}: give {wanted}")
        return value


@dataclass(frozen=True)
class Names(Kind):
    """Names in a list, of those known if there are some; a text holds them with commas."""

    known: tuple[str, ...] = ()
    metavar = "NAMES"

    def take(self, name: str, value: Any) -> Any:
        """Return a list of names."""
        parts = value.split(",") if isinstance(value, str) else value
        stripped = [str(part).strip() for part in parts]
        taken = [part for part in stripped if part]
        if not taken:
            raise LayerscopeError(
                f"{name} is {shown(value)}: give one name or several, or leave it out"
            )
        if self.known:
            for each in taken:
                OneOf(self.known).take(name, each)
        return taken


@dataclass(frozen=True)
class Weights(Kind):
    """Names with a weight each, 1 where none is given; a text holds them as STS12=2,trec.

    With `together` a weight is given to all of them or to none.
    """

    together: bool = False
    metavar = "NAMES"

    def take(self, name: str, value: Any) -> Any:
        """Return the weight of each name."""
        if isinstance(value, Mapping):
            return value
        taken = {}
        parts = Names().take(name, value)
        if self.together and 0 < sum("=" in part for part in parts) < len(parts):
            raise LayerscopeError(
                f"{name} gives some a weight and others none: give all of them one, or none"
            )
        for part in parts:
            weighted, sign, weight = part.rpartition("=")
            if not sign:
                taken[part] = 1.0
                continue
            try:
                taken[weighted.strip()] = float(weight)
            except ValueError:
                raise LayerscopeError(
                    f"{name}: the weight of {weighted!r} is {weight!r}: give a number"
                ) from None
        return taken


class Repeated(Kind):
    """Values in a list; a command line repeats the option."""


class Folder(Kind):
    """A folder to write to."""

    metavar = "FOLDER"

    def take(self, name: str, value: Any) -> Any:
        """Return the folder, `~` spelt out; one that could not be made is refused before the long job."""
        if not str(value):
            raise LayerscopeError(f"{name} is empty: name a folder")
        try:
            folder = Path(value).expanduser()
            there = next(
                above
                for above in (folder, *folder.absolute().parents)
                if above.exists()
            )
        except (OSError, RuntimeError) as error:  # RuntimeError: ~ of nobody
            reason = getattr(error, "strerror", None) or error
            raise LayerscopeError(
                f"{name} {str(value)!r} cannot be made ({reason}): name a folder"
            ) from error
        if not there.is_dir():
            raise LayerscopeError(
                f"{name} {str(folder)!r} cannot be made ({there} is a file): name a folder"
            )
        return folder


class InCode(Kind):
    """Something that no command line can write."""


IN_CODE = InCode()
SEED = Whole(0, 2**32 - 1)  # what scikit-learn takes


def _ending(words: tuple[str, ...], such_as: str) -> str:
    """Return what else may be given, and an example, for the end of an error."""
    return "".join(f", or {word}" for word in words) + (
        f", such as {such_as}" if such_as else ""
    )


def shown(value: Any) -> str:
    """Return a value as an error quotes it."""
    return f"{value:g}" if isinstance(value, float) else repr(value)
