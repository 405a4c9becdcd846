"""`exits` of a language model: what is measured, saved, shown and refused."""

import numpy as np
import pytest
from generation.drafting import made
from generation.talkers import TOKENIZER, loud, prompts as words_of
from models import zoo
from typed import refused

import layerscope
from layerscope import exits
from layerscope.core.stopwatch import Stopwatch
from layerscope.generation import DraftReport, open_draft_report

SECONDS = {"none": 1.0, "1": 0.8, "2": 0.5, "auto": 0.625}
"""Of each way to decode a batch."""
QUIET = {"processor": TOKENIZER}
FEW = {"prefix": 4, "max_new_tokens": 16, "samples": 3, **QUIET}


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    texts = words_of((9, 14, 6, 20, 8, 11), seed=3)
    out = tmp_path_factory.mktemp("drafts") / "out"
    options = FEW | {"batch_size": 2, "draft_tokens": 3, "min_speedup": 0.01}
    with (
        pytest.MonkeyPatch.context() as patch
    ):  # a clock that no other work on the machine disturbs
        patch.setattr(Stopwatch, "turn", clocked)
        measured = exits(made(zoo.gpt2, 0.1), texts, out=out, **options)
    assert isinstance(measured, DraftReport)
    return measured


def clocked(watch, runs, first=0):
    """Run each way to decode, and return the seconds that each is given."""
    for run in runs:
        run()
    return np.array(list(SECONDS.values()))


def test_what_is_reported(report):
    ways = report.ways.set_index("draft_layer")
    assert [*ways.index] == ["none", "1", "2", "auto"]
    assert report.same == report.prompts == 3, "all texts are those of plain decoding"
    assert (
        ways["measured"]["none"] == 1
        and ways["acceptance"]["2"] > ways["acceptance"]["1"]
    )
    speeds = [SECONDS["none"] / seconds for seconds in SECONDS.values()]
    rates = ways["tokens_per_second"] / ways["tokens_per_second"]["none"]
    assert rates.tolist() == pytest.approx(speeds)
    assert ways["measured"].tolist() == pytest.approx(speeds)
    assert ways.index[ways["chosen"]].tolist() == [report.draft_layer] == ["2"]
    assert report.pays and report.verdict.startswith("pays: ")


def test_the_command_has_what_was_chosen(report):
    assert report.command.startswith("layerscope generate ")
    for option in ("--draft-layer 2", "--draft-tokens 3"):
        assert option in report.command
    assert report.document().commands == (report.command,)


def test_saved_and_opened(report, tmp_path):
    folder = report.save(tmp_path / "kept")
    assert open_draft_report(folder).as_dict() == report.as_dict()
    assert report.verdict in layerscope.report(folder).read_text(encoding="utf-8")
    (folder / "ways.csv").write_text("draft_layer\n1\n", encoding="utf-8")
    with refused("has changed since it was written"):
        open_draft_report(folder)


REFUSED = [
    (
        {"threshold": 0.9},
        "`threshold` is for classifiers, and this is a language model: leave it out",
    ),
    ({"exits": [3]}, "layer 3 of 3 cannot draft: give `exits` before the last layer"),
    ({"max_new_tokens": 400}, "positions, shorten it"),
    ({"draft_lens": "lens"}, "`draft_lens` is gone: "),
]


@pytest.mark.parametrize("options, why", REFUSED)
def test_refused_in_one_line(options, why, tmp_path):
    with refused(why):
        exits(loud(zoo.gpt2()), words_of(), **FEW | {"out": tmp_path / "out"} | options)
    assert not (tmp_path / "out").exists()
