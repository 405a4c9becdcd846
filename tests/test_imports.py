"""Every module of the rooms that the registry reads can be the first one that is imported."""

from pathlib import Path

import layerscope

ROOT = Path(layerscope.__file__).parent
CODE = """
import importlib, sys
for name in sys.argv[1:]:
    for known in [known for known in sys.modules if known.split(".")[0] == "layerscope"]:
        del sys.modules[known]
    importlib.import_module(name)
"""


def test_every_module_of_a_room_comes_first(forks):
    files = sorted(
        path for room in ("metrics", "probes") for path in (ROOT / room).rglob("*.py")
    )
    names = [
        ".".join(("layerscope", *path.relative_to(ROOT).with_suffix("").parts))
        for path in files
    ]
    ended = forks.run(*(name.removesuffix(".__init__") for name in names), script=CODE)
    assert ended.status == 0, ended.err
