"""Results pushed to a hub and opened from it, by the hub's own client against a server on this machine."""

import pandas as pd
import pytest
from hub_server import OWNER, cut, hub
from huggingface_hub import DatasetCard
from small_runs import labelled, rows
from werkzeug.wrappers import Response

import layerscope
from layerscope.core.hub import on_this_machine, page_folder
from layerscope.scores import Evaluation, save_rules, shipped_rules
from layerscope.selection.label_free import rules_from

__all__ = ["hub", "labelled", "rows"]
SCORES = pd.DataFrame({"model": "m", "layer": [0, 1, 2, 3], "task": "topics", "score": [0.2, 0.5, 0.7, 0.6]})


def test_a_run_comes_back_as_it_was(hub, labelled):
    (labelled.path / "notes.txt").write_text("mine alone")
    name = labelled.push_to_hub("user/run")
    assert name == "hf://user/run" and not {"notes.txt", "report.html"} & set(hub.files("user/run"))
    found = layerscope.open_run(name)
    pd.testing.assert_frame_equal(found.table(), labelled.table(), check_exact=True)
    assert (found.pooled(2) == labelled.pooled(2)).all() and found.info == labelled.info
    assert any("layerscope/" in agent for agent in hub.agents)
    card = DatasetCard(hub.files("user/run")["README.md"].decode())
    assert card.data.tags == ["layerscope", "run"] and 'layerscope.open_run("hf://user/run")' in card.text
    assert str(labelled.document().answer)[:20] in card.text


def test_a_run_is_saved_as_a_copy_of_its_folder(labelled, tmp_path):
    copied = layerscope.open_run(labelled.save(tmp_path / "copy"))
    pd.testing.assert_frame_equal(copied.table(), labelled.table(), check_exact=True)
    with pytest.raises(layerscope.LayerscopeError, match="is not empty: name a new folder"):
        labelled.save(tmp_path / "copy")


def test_every_kind_of_result_opens_by_its_own_function_and_by_report(hub, labelled, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    selection = layerscope.select(labelled, cost=False, progress=False)
    evaluation = Evaluation(SCORES)
    for result, opened in ((selection, layerscope.open_selection), (evaluation, layerscope.open_evaluation)):
        name = result.push_to_hub(f"user/{type(result).__name__.lower()}")
        assert opened(name).as_dict() == result.as_dict()
        kind = opened.__name__
        assert f'layerscope.{kind}("{name}")' in hub.files(name.removeprefix("hf://"))["README.md"].decode()
        page = layerscope.report(name)
        assert page.resolve() == tmp_path / "report.html"  # and not in the client's cache
    pd.testing.assert_frame_equal(layerscope.open_evaluation("hf://user/evaluation").scores, evaluation.scores)
    assert page_folder(on_this_machine("hf://user/evaluation")) != on_this_machine("hf://user/evaluation")


def test_pushing_again_replaces_the_same_kind_and_nothing_else(hub, labelled):
    labelled.push_to_hub("user/run")
    first = hub.files("user/run")
    hub.repos["dataset", "user/run"].append({**first, "shards/00099.safetensors": b"of an earlier, larger run"})
    labelled.push_to_hub("user/run")
    assert hub.files("user/run") == first  # unchanged files are not sent, and what was left over is gone
    with pytest.raises(layerscope.LayerscopeError, match=r"'user/run' holds something else \(log.jsonl\)"):
        Evaluation(SCORES).push_to_hub("user/run")
    assert hub.files("user/run") == first
    hub.repos["dataset", "user/run"].append({**first, "run.json": b"{}"})
    old = layerscope.open_run(f"hf://user/run@{1:040x}")
    pd.testing.assert_frame_equal(old.table(), labelled.table())
    with pytest.raises(layerscope.LayerscopeError, match="hf://user/run@v9 has no such revision"):
        layerscope.open_run("hf://user/run@v9")


def test_what_is_private_stays_private(hub, monkeypatch):
    Evaluation(SCORES).push_to_hub("user/scores", private=True)
    assert ("dataset", "user/scores") in hub.private
    monkeypatch.setenv("HF_TOKEN", "")
    with pytest.raises(layerscope.LayerscopeError, match=r"hf://user/scores is refused without a valid token: log in"):
        layerscope.open_evaluation("hf://user/scores")
    with pytest.raises(layerscope.LayerscopeError, match=r"'user/other' is refused without a valid token"):
        Evaluation(SCORES).push_to_hub("user/other")
    assert Evaluation(SCORES).push_to_hub("user/other", token=OWNER) == "hf://user/other"


def test_evidence_is_pooled_from_results_on_the_hub(hub, labelled, tmp_path):
    """Scores and metrics of two models, each pushed alone, make the rules that they make from files."""
    tables = []
    for name, best in (("one", 1), ("two", 2)):
        scores = SCORES.assign(model=name, score=[0.2, *(0.5 + 0.1 * (layer == best) for layer in (1, 2, 3))])
        values = [0.0, *(float(layer != best) for layer in (1, 2, 3))]
        tables.append(pd.DataFrame({
            "model": name, "dataset": "d", "metric": "rankme", "layer": range(4), "value": values, "revision": "",
            "variant": None, "site": None, "pooling": None,
        }))  # fmt: skip
        Evaluation(scores).push_to_hub(f"user/{name}")
    far = rules_from(["hf://user/one", tables[0], "hf://user/two", tables[1]])
    known = (("one", (0.6, 0.5, 0.5)), ("two", (0.5, 0.6, 0.5)))
    both = [SCORES.assign(model=name, score=[0.2, *score]) for name, score in known]
    near = rules_from([Evaluation(pd.concat(both)), pd.concat(tables)])
    assert [rule.name for rule in far] == [rule.name for rule in near] and far[0].name == "minimum rankme · d"
    assert far[0].gains == pytest.approx(near[0].gains) and len(far[0].choices) == 2
    file = save_rules(shipped_rules(), tmp_path / "own.json")
    hub.repos["dataset", "user/rules"] = [{"own.json": file.read_bytes(), "README.md": b"rules"}]
    assert rules_from("hf://user/rules") == shipped_rules()
    with pytest.raises(layerscope.LayerscopeError, match=r"'hf://user/one' is not a file of rules: give one that"):
        rules_from("hf://user/one")


FAULTS = {
    401: "is refused without a valid token: log in",
    403: "is not for this token to use",
    404: "is not there: check the name",
    429: r"was asked too often \(429\): wait some minutes",
    500: r"waits for the hub, which has a fault of its own \(500\): try again later",
    503: r"waits for the hub, which has a fault of its own \(503\): try again later",
    "cut": "check the network",
}


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("at", ["create", "validate-yaml", "preupload", "batch", "large", "commit", "tree", "resolve"])
def test_a_fault_of_the_hub_is_one_line_with_the_mend(hub, at, fault):
    """Whatever step of a push or an opening fails, nothing is lost here or there, and the next try goes through."""
    evaluation = Evaluation(SCORES)
    if at == "resolve":
        evaluation.push_to_hub("user/scores")
    before = {key: list(commits) for key, commits in hub.repos.items()}
    answer = cut if fault == "cut" else (lambda request: Response("{}", fault))
    hub.fault = lambda request: answer(request) if at in request.path else None
    with pytest.raises(layerscope.LayerscopeError, match=FAULTS[fault]) as raised:
        if at == "resolve":
            layerscope.open_evaluation("hf://user/scores")
        else:
            evaluation.push_to_hub("user/scores")
    line = str(raised.value)
    assert "\n" not in line and "user/scores" in line and len(line) < 400, line
    assert all(len(commits) == 1 for commits in hub.repos.values()) or hub.repos == before
    hub.fault = lambda request: None
    evaluation.push_to_hub("user/scores")
    assert layerscope.open_evaluation("hf://user/scores").as_dict() == evaluation.as_dict()
