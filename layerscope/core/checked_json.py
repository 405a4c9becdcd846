"""JSON objects that carry a checksum of their members, and the same without the folders of this machine."""

import hashlib
import json
import re
from collections.abc import Mapping
from pathlib import PurePosixPath, PureWindowsPath
from typing import Any

CHECKSUM = "checksum"
QUOTED = re.compile(r"""(['"])((?:~|[A-Za-z]:)?[/\\][^'"\n]*)\1""")
BARE = re.compile(
    r"""(?<![\w'"./\\~-])(?!//)(?:~|[A-Za-z]:)?[/\\](?:[^\s'",)\]/\\]+[/\\])+"""
)
"""The folders of a path from the root or the home folder that is a word of a command, as in `--data /home/me/a.csv`."""


def text_of(facts: Mapping[str, Any]) -> str:
    """Return the JSON of an object, with a checksum of its members."""
    # escaped: half a character can be written
    return json.dumps({**facts, CHECKSUM: _checksum(facts)}, indent=2)


def unchanged(facts: dict[str, Any]) -> bool:
    """Take the checksum out of an object that was read, and return whether it fits the rest; without one, it does."""
    return facts.pop(CHECKSUM, None) in (None, _checksum(facts))


def without_folders(text: str) -> str:
    """Return JSON that layerscope wrote, each path from the root or the home folder as its last name; other as it is.

    What came from data (`examples`) stays.

    >>> import json
    >>> from layerscope.core.checked_json import text_of, without_folders
    >>> without = without_folders(text_of({"source": "/home/me/a.csv", "command": "layerscope select ~/runs/a"}))
    >>> json.loads(without)["source"], json.loads(without)["command"]
    ('a.csv', 'layerscope select a')
    """
    try:
        facts = json.loads(text)
    except ValueError:
        return text
    if not isinstance(facts, dict) or CHECKSUM not in facts:
        return text
    del facts[CHECKSUM]
    bare = _bare(facts)
    return text if bare == facts else text_of(bare)


def _bare(value: Any) -> Any:
    if isinstance(value, dict):
        return {
            key: entry if key == "examples" else _bare(entry)
            for key, entry in value.items()
        }
    if isinstance(value, list):
        return [_bare(entry) for entry in value]
    if not isinstance(value, str) or "\n" in value:
        return value
    if re.match(r"(?:~|[A-Za-z]:)?[/\\]", value):
        return _name(value)
    return BARE.sub(
        "", QUOTED.sub(lambda match: f"{match[1]}{_name(match[2])}{match[1]}", value)
    )


def _name(path: str) -> str:
    kind = PureWindowsPath if "\\" in path else PurePosixPath
    return kind(path).name


def _checksum(facts: Mapping[str, Any]) -> str:
    """Return the sha256 (hex) of an object, whatever its order and spacing."""
    return hashlib.sha256(
        json.dumps(json.loads(json.dumps(facts)), sort_keys=True).encode()
    ).hexdigest()
