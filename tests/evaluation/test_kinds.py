"""Kinds of tasks are named for the help without being imported."""

from layerscope.cli.choose import FILES as HELP
from layerscope.evaluation.kinds import FILES
from layerscope.evaluation.probe_states import PROBES


def test_every_kind_is_one_that_the_help_names():
    assert all(name in HELP.help for name in (*FILES, *PROBES))
