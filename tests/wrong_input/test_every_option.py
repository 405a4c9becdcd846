"""Every option of every verb refuses what its kind does not take, by call and by command line, before any work."""

import re
from inspect import Parameter

import pytest
from typed import refused

import layerscope
import layerscope_papers
from layerscope.cli.app import NAMES
from layerscope.core import option_kinds as kinds
from layerscope.core.options import Options, checked, declared
from layerscope.scores.verb import read_scores

OTHERS = {
    "scores": read_scores,
    "reproduce": layerscope_papers.reproduce,
}
VERBS = {name: OTHERS.get(name) or getattr(layerscope, name) for name in NAMES}

NEEDED = {
    "evaluate": {"tasks": "classification:data.csv"},
    "reproduce": {"names": "exits"},
}
"""What a command needs although the verb has a default."""


def beyond(number):
    """Return numbers just outside the bounds."""
    step = 1 if isinstance(number, kinds.Whole) else 0.5
    outside = (number.least - step, number.most + step, number.above, number.below)
    return (each for each in outside if abs(each) < float("inf"))


BAD = {
    kinds.Whole: lambda kind: ["many", "nan", "", "1.5", *beyond(kind)],
    kinds.Number: lambda kind: ["many", "nan", "", *beyond(kind)],
    kinds.Several: lambda kind: ["many", "1,,2", *beyond(kind.each)],
    kinds.OneOf: lambda kind: ["nonesuch", ""],
    kinds.OneOrSome: lambda kind: [
        "nonesuch",
        kind.counted,
        f"{kind.counted}:{kind.least - 1}",
    ],
    kinds.Names: lambda kind: [",", "", *(["nonesuch"] if kind.known else [])],
    kinds.Weights: lambda kind: [",", "a=much"],
    kinds.Folder: lambda kind: ["", f"{__file__}/below"],
}
"""Values that an option of a kind refuses, as a command line writes them."""


def bad_values(kind):
    return list(BAD[type(kind)](kind)) if type(kind) in BAD else []


def required(options, tmp_path):
    """Return good values of the options that have no default."""
    folder = tmp_path / "out"
    return {
        name: folder if isinstance(option.kind, kinds.Folder) else "1"
        for name, option in options.items()
        if option.default is Parameter.empty
    }


@pytest.mark.parametrize("verb", VERBS)
def test_a_call_refuses_it(verb, tmp_path):
    options = declared(VERBS[verb])
    for name, option in options.items():
        for value in bad_values(option.kind):
            read = option.kind.read(value) if isinstance(value, str) else value
            with refused(rf"^{name}\b"):
                VERBS[verb](**required(options, tmp_path) | {name: read})
    with refused("has no option 'nonesuch'"):
        checked(VERBS[verb], {"nonesuch": 1}, Options)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("verb", VERBS)
def test_a_command_refuses_it(refusal, verb, tmp_path):
    options = declared(VERBS[verb])
    first, *_ = options
    words = required(options, tmp_path) | NEEDED.get(verb, {})
    positional = [words.pop(first)] if first in words else []
    for name, option in options.items():
        if name == first or isinstance(option.kind, kinds.InCode):
            continue
        flag = f"--{name.replace('_', '-')}"
        for value in bad_values(option.kind)[:1]:
            others = {
                f"--{other}": word for other, word in words.items() if other != name
            }
            pairs = [word for pair in others.items() for word in pair]
            line = refusal(verb, *positional, *pairs, flag, value)
            assert re.match(rf"({flag}|{name})\b", line), line
