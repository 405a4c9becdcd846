import difflib
from collections.abc import Iterable


class LayerscopeError(ValueError):
    """A wrong input, told in one line: the thing, the value, and the mend.

    The command line prints it without a traceback and exits with status 2.
    """


def near(name: str, known: Iterable[str]) -> str:
    """Return `", did you mean X?"` for the known name nearest to a misspelt one, or an empty string."""
    matches = difflib.get_close_matches(name, list(known), n=1)
    return f", did you mean {matches[0]}?" if matches else ""
