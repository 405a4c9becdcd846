"""Selections and readings of the lens: saved, opened again as they were, and on one page with other results."""

import pytest
from frames import scored
from logit_lens.readers import odd_reading
from typed import refused

import layerscope
from layerscope.reports.results import KINDS
from layerscope.scores import Evaluation
from layerscope.selection.selection import open_selection


@pytest.fixture
def selection(tmp_path):
    evaluation = Evaluation(
        scored({"x": [0.9, 0.5, 0.70, 0.6], "y": [0.2, 0.3, 0.52, 0.4]}, "<b>m</b>")
    )
    return layerscope.select(evaluation, cost=False, out=tmp_path / "choice")


def test_a_selection_is_opened_as_it_was(selection, tmp_path):
    found = open_selection(tmp_path / "choice")
    assert (
        found.as_dict() == selection.as_dict()
        and found.document() == selection.document()
    )
    assert found.folder == tmp_path / "choice"


def test_one_page_has_them_beside_other_results(selection, tmp_path):
    odd_reading().save(tmp_path / "lens")
    page = layerscope.report(tmp_path / "choice")
    assert page == tmp_path / "choice" / "report.html"
    text = page.read_text(encoding="utf-8")
    assert (
        "Layers to choose from" in text
        and "layerscope truncate" in text
        and "<b>m</b>" not in text
    )
    both = layerscope.report(
        [tmp_path / "lens", selection], tmp_path / "both.html"
    ).read_text(encoding="utf-8")
    assert "What each layer would predict" in both and "Layers to choose from" in both


def test_a_page_of_scores_alone_is_in_the_current_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    saved = Evaluation(scored({"x": [0.9, 0.5, 0.70, 0.6]})).save("scores")
    assert layerscope.report(saved).as_posix() == "report.html"
    assert not (tmp_path / saved / "report.html").exists()


def test_every_kind_of_result_has_an_opener():
    for kind in KINDS.values():
        assert callable(getattr(layerscope, f"open_{kind}"))


def test_what_is_damaged_is_refused(selection, tmp_path):
    (tmp_path / "choice" / "selection.json").write_text("{}", encoding="utf-8")
    with refused("is damaged, or no selection: run layerscope select again"):
        layerscope.report(tmp_path / "choice")
