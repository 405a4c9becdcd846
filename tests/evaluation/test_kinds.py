"""A kind of task is one file: it is found, named and helped with by being there."""

from layerscope.cli.choose import FILES as HELP
from layerscope.evaluation.evaluator import KINDS
from layerscope.evaluation.kinds import FILES, PROBES


def test_every_file_is_a_kind_of_its_name_that_the_help_names():
    assert sorted([*FILES, *PROBES]) == KINDS
    assert all(kind.name == name for kinds in (FILES, PROBES) for name, kind in kinds.items())
    assert all(name in HELP.help for name in KINDS)
