"""Tables that are wanted whole: pandas frames, and files read to their end."""

from pathlib import Path
from typing import Any

from layerscope.inputs.rows import TABLES, file_rows


def table_suffix(data: Any) -> str:
    """Return the suffix of a table file, lower case and without .gz.

    It is empty where the data are no such file.
    """
    if not isinstance(data, (str, Path)) or not Path(data).expanduser().is_file():
        return ""
    suffix = Path(str(data).lower().removesuffix(".gz")).suffix
    return suffix if suffix in TABLES else ""


def is_a(data: Any, *names: str) -> bool:
    """Return whether data are of a class, by package and name: the package need not be imported for that.

    >>> is_a(Path("a.csv"), "pathlib.Path"), is_a("a.csv", "pandas.DataFrame")
    (True, False)
    """
    return any(
        f"{cls.__module__.partition('.')[0]}.{cls.__name__}" in names
        for cls in type(data).__mro__
    )


def is_frame(data: Any) -> bool:
    """Return whether data are a pandas frame."""
    return is_a(data, "pandas.DataFrame")


def table_of(data: Any) -> Any | None:
    """Return the table that data are, a pandas frame or the path of a table file, or None where they are none."""
    if is_frame(data):
        return data.reset_index(drop=True).set_axis(
            [str(name) for name in data.columns], axis=1
        )
    suffix = table_suffix(data)
    if not suffix:
        return None
    return file_rows([Path(data).expanduser()], suffix).frame()
