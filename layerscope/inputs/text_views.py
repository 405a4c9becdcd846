import re
import unicodedata
from collections.abc import Callable, Sequence

import numpy as np

_ROWS = ("qwertyuiop", "asdfghjkl", "zxcvbnm")


def _neighbours() -> dict[str, str]:
    """Return each letter's neighbours on a QWERTY keyboard, whose rows lie half a key apart."""
    found: dict[str, str] = {}
    for y, row in enumerate(_ROWS):
        for x, letter in enumerate(row):
            keys = [(y, x - 1), (y, x + 1), (y - 1, x), (y - 1, x + 1), (y + 1, x - 1), (y + 1, x)]
            found[letter] = "".join(_ROWS[j][i] for j, i in keys if 0 <= j < 3 and 0 <= i < len(_ROWS[j]))
    return found


QWERTY = _neighbours()


def change_words(text: str, kinds: Sequence[str], share: float, random: np.random.Generator) -> str:
    """Return a text with a share of its words changed, one kind each; what lies between words stays.

    At least one word changes, if any can; words that no kind can change are passed over.
    """
    pieces = re.split(r"(\S+)", text)  # the words have odd indices
    words = range(1, len(pieces), 2)
    left = max(1, round(share * len(words)))
    for index in random.permutation(words):
        if left == 0:
            break
        for kind in random.permutation(np.asarray(kinds)):
            changed = TEXT_CHANGES[str(kind)](pieces[index], random)
            if changed is not None:
                pieces[index] = changed
                left -= 1
                break
    return "".join(pieces)


def swap(word: str, random: np.random.Generator) -> str | None:
    """Return a word with two neighbouring, different letters swapped; None where it has none."""
    i = _drawn(
        [i for i in range(len(word) - 1) if word[i] != word[i + 1] and _letters(word, i) and _free(word, i + 2)], random
    )
    if i is None:
        return None
    return word[:i] + word[i + 1] + word[i] + word[i + 2 :]


def typo(word: str, random: np.random.Generator) -> str | None:
    """Return a word with a letter replaced by its neighbour on a QWERTY keyboard, in the same case."""
    i = _drawn([i for i, letter in enumerate(word) if letter.lower() in QWERTY and _free(word, i + 1)], random)
    if i is None:
        return None
    other = str(random.choice(list(QWERTY[word[i].lower()])))
    return word[:i] + (other.upper() if word[i].isupper() else other) + word[i + 1 :]


def split(word: str, random: np.random.Generator) -> str | None:
    """Return a word with a space between two of its letters; None where it has no two."""
    i = _drawn([i + 1 for i in range(len(word) - 1) if _letters(word, i)], random)
    return None if i is None else f"{word[:i]} {word[i:]}"


def _drawn(positions: list[int], random: np.random.Generator) -> int | None:
    return int(random.choice(positions)) if positions else None


def _letters(word: str, i: int) -> bool:
    return word[i].isalnum() and word[i + 1].isalnum()


def _free(word: str, i: int) -> bool:
    """Return whether no accent at `i` belongs to the letter before it, which must not lose it."""
    return i >= len(word) or unicodedata.category(word[i])[0] != "M"


TEXT_CHANGES: dict[str, Callable[[str, np.random.Generator], str | None]] = {
    "swap": swap,
    "typo": typo,
    "split": split,
}
