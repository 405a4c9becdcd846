"""Every verb's options reach its work as a dataclass that mypy knows."""

import dataclasses
import importlib
import importlib.util
import pkgutil
from typing import get_type_hints

import pytest
from typed import refused

import layerscope
from layerscope.cli.app import NAMES
from layerscope.core.options import Options, checked, declared
from layerscope.models.options import InspectOptions
from layerscope.profiling.options import PassOptions, ProfileOptions

NAMED_OTHERWISE = {"scores": "read_scores"}
"""Verbs whose function has another name than the command."""


def option_classes():
    """Return the options of each verb by its name: `InspectOptions` are those of `inspect`."""
    for room in pkgutil.iter_modules(layerscope.__path__, "layerscope."):
        if room.ispkg and importlib.util.find_spec(f"{room.name}.options"):
            importlib.import_module(f"{room.name}.options")
    of_verbs = [
        kind
        for kind in Options.__subclasses__()
        if kind.__module__.endswith(".options")
    ]
    kinds = {kind.__name__.removesuffix("Options").lower(): kind for kind in of_verbs}
    return {
        name: kind for name, kind in kinds.items() if verb_of(name, kind) is not None
    }


def verb_of(name, kind):
    """Return the verb of a room that takes options; None of options of another function."""
    room = importlib.import_module(f"{kind.__module__.removesuffix('.options')}.verb")
    return getattr(room, NAMED_OTHERWISE.get(name, name), None)


def read_by(kind):
    """Return the options that a dataclass takes, with those of its groups."""
    names = set()
    for name, hint in get_type_hints(kind).items():
        if dataclasses.is_dataclass(hint):
            names |= read_by(hint)
        elif hasattr(hint, "__total__"):
            names |= set(hint.__annotations__)
        else:
            names.add(name)
    return names


@pytest.mark.parametrize("name", sorted(option_classes()))
def test_every_option_of_a_verb_has_a_field(name):
    kind = option_classes()[name]
    assert declared(verb_of(name, kind)).keys() <= read_by(kind)


def test_every_command_of_a_model_or_data_has_options():
    assert option_classes().keys() >= {*layerscope.__all__} & {*NAMES}


def test_options_are_grouped_and_know_what_is_not_at_its_default():
    call = {"model": "minilm", "shared": {"dtype": "float64", "part": "encoder"}}
    options = checked(layerscope.inspect, call, InspectOptions)
    assert (options.load.dtype, options.load.device) == ("float64", "auto")
    assert options.override.part == "encoder"
    assert options.changed == {"model", "dtype", "part"}
    with refused("`dtype` is for others: leave it out"):
        options.refuse(["device", "dtype"], "is for others")


def test_the_pass_has_the_defaults_of_profile():
    call = {"model": "minilm"}
    assert checked(layerscope.profile, call, ProfileOptions).measuring == PassOptions()
