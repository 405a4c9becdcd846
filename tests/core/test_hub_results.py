"""Results pushed to a hub and opened from it, by the hub's own client against a server on this machine."""

import json

import exit_reports
import pandas as pd
import pytest
import tiny
from hub_server import OWNER, cut, hub
from huggingface_hub import DatasetCard
from typed import refused
from werkzeug.wrappers import Response

import layerscope
from layerscope.core.checked_json import text_of, without_folders
from layerscope.scores import Evaluation
from layerscope.selection.removal import Choice as Block, Removal

__all__ = ["hub"]
SCORES = pd.DataFrame(
    {
        "model": "m",
        "layer": [0, 1, 2, 3],
        "task": "topics",
        "score": [0.2, 0.5, 0.7, 0.6],
    }
)


def test_a_run_comes_back_as_it_was(hub, labelled):
    (labelled.path / "notes.txt").write_text("mine alone")
    name = labelled.push_to_hub("user/run")
    assert name == "hf://user/run" and not {"notes.txt", "report.html"} & set(
        hub.files("user/run")
    )
    found = layerscope.open_run(name)
    pd.testing.assert_frame_equal(found.table(), labelled.table(), check_exact=True)
    assert (found.pooled(2) == labelled.pooled(2)).all() and found.info[
        "plan"
    ] == labelled.info["plan"]
    assert any("layerscope/" in agent for agent in hub.agents)
    card = DatasetCard(hub.files("user/run")["README.md"].decode())
    assert (
        card.data.tags == ["layerscope", "run"]
        and 'layerscope.open_run("hf://user/run")' in card.text
    )
    assert str(labelled.document().answer)[:20] in card.text


def test_nothing_pushed_names_a_folder_of_this_machine(hub, tmp_path):
    texts = tiny.texts(40)
    data = tmp_path / "of mine" / "texts.csv"
    data.parent.mkdir()
    pd.DataFrame(
        {"text": [f"/usr/bin {text}" for text in texts], "label": ["a", "b"] * 20}
    ).to_csv(data)
    model = tiny.saved(tiny.bert(), tmp_path / "bert")
    command = f"layerscope profile {model} --data '{data}' --out {tmp_path}/run"
    run = layerscope.profile(
        model,
        data,
        out=tmp_path / "run",
        metrics="rankme",
        command=command,
    )
    before = {path: path.read_bytes() for path in run.path.rglob("*.*")}
    run.push_to_hub("user/run")
    layerscope.select(run, cost=False).push_to_hub("user/selection")
    pushed = {**hub.files("user/run"), **hub.files("user/selection")}
    assert [
        name for name, content in pushed.items() if str(tmp_path).encode() in content
    ] == []
    found = layerscope.open_run("hf://user/run").info  # and its checksum fits
    assert found["command"] == "layerscope profile bert --data 'texts.csv' --out run"
    assert (found["data"]["source"], found["model"]["source"]) == ("texts.csv", "bert")
    # texts are as they were
    assert found["data"]["examples"] == run.info["data"]["examples"]
    assert before == {path: path.read_bytes() for path in run.path.rglob("*.*")}


def test_links_are_not_pushed(hub, labelled, tmp_path):
    (tmp_path / "secret").write_text("{}")
    run = layerscope.open_run(labelled.save(tmp_path / "copy"))
    (run.path / "tables").rename(tmp_path / "elsewhere")
    (run.path / "tables").symlink_to(tmp_path / "elsewhere")
    with refused(r"copy/tables' is a link, and links are not pushed"):
        run.push_to_hub("user/run")
    model = tmp_path / "model"
    model.mkdir()
    (model / "config.json").write_text("{}")
    (model / "notes.txt").symlink_to(tmp_path / "secret")
    with refused(r"notes.txt' is a link, and links are not pushed"):
        layerscope.push_to_hub(model, "user/model")
    assert not hub.repos


def bare(result):
    """Return a result as a dict, without the folders of this machine."""
    facts = json.loads(without_folders(text_of(result.as_dict())))
    return {name: value for name, value in facts.items() if name != "checksum"}


def comparison(run, folder):
    again = layerscope.open_run(run.save(folder / "copy"))
    return layerscope.compare([run, again], similarity="cka")


def generation(_, folder):
    model = tiny.saved(tiny.gpt2(), folder / "tiny-gpt2")
    return layerscope.generate(model, ["w1 w2 w3", "w4 w5"], max_new_tokens=3)


def removal(*_):
    choices = tuple(
        Block(way, (2,), 0.1, 0.12, 0.01, 0.9, "")
        for way in ("greedy removal", "last blocks")
    )
    return Removal(
        "tiny",
        3,
        "vectors",
        "topics",
        8,
        8,
        choices,
        (0.1, 0.2, 0.3),
        "tiny",
    )


MADE = {
    "comparison": comparison,
    "exit_report": lambda *_: exit_reports.made(),
    "generation": generation,
    "removal": removal,
}


@pytest.mark.parametrize("kind", MADE)
def test_a_result_comes_back_from_the_hub_as_it_was_pushed(
    hub, labelled, tmp_path, monkeypatch, kind
):
    monkeypatch.chdir(tmp_path)
    result = MADE[kind](labelled, tmp_path)
    name = result.push_to_hub(f"user/{kind}")
    opened = getattr(layerscope, f"open_{kind}")(name)
    assert type(opened) is type(result) and opened.as_dict() == bare(result)
    assert (
        f'layerscope.open_{kind}("{name}")'
        in hub.files(f"user/{kind}")["README.md"].decode()
    )
    assert layerscope.report(name).resolve() == tmp_path / "report.html"


def test_pushing_again_replaces_the_same_kind_and_nothing_else(hub, labelled):
    labelled.push_to_hub("user/run")
    first = hub.files("user/run")
    hub.repos["dataset", "user/run"].append(
        {**first, "shards/00099.safetensors": b"of an earlier, larger run"}
    )
    labelled.push_to_hub("user/run")
    # unchanged files are not sent, and what was left over is gone
    assert hub.files("user/run") == first
    with refused(r"'user/run' holds something else \(log.jsonl\)"):
        Evaluation(SCORES).push_to_hub("user/run")
    assert hub.files("user/run") == first
    hub.repos["dataset", "user/run"].append({**first, "run.json": b"{}"})
    old = layerscope.open_run(f"hf://user/run@{1:040x}")
    pd.testing.assert_frame_equal(old.table(), labelled.table())
    with refused("hf://user/run@v9 has no such revision"):
        layerscope.open_run("hf://user/run@v9")


def test_what_is_private_stays_private(hub, monkeypatch):
    Evaluation(SCORES).push_to_hub("user/open", private=False)
    Evaluation(SCORES).push_to_hub("user/scores")
    assert hub.private == {("dataset", "user/scores")}  # unless somebody says otherwise
    monkeypatch.setenv("HF_TOKEN", "")
    with refused(r"hf://user/scores is refused without a valid token: log in"):
        layerscope.open_evaluation("hf://user/scores")
    with refused(r"'user/other' is refused without a valid token"):
        Evaluation(SCORES).push_to_hub("user/other")
    assert (
        Evaluation(SCORES).push_to_hub("user/other", token=OWNER) == "hf://user/other"
    )


FAULTS = {
    401: "is refused without a valid token: log in",
    403: "is not accessible with this token",
    404: "does not exist: check the name",
    429: r"hit the hub's rate limit \(429\): wait a few minutes",
    503: r"cannot be reached because of an error at the hub \(503\): try again later",
    "cut": "check the network",
}
STEPS = ("create", "preupload", "batch", "large", "tree", "resolve")


@pytest.mark.parametrize(
    "at, fault",
    [
        *(("commit", fault) for fault in FAULTS),
        *((at, fault) for at in STEPS for fault in (503, "cut")),
    ],
)
def test_a_fault_of_the_hub_is_one_line_with_the_mend(hub, at, fault):
    """Whatever step of a push or an opening fails, nothing is lost here or there, and the next try goes through."""
    evaluation = Evaluation(SCORES)
    if at == "resolve":
        evaluation.push_to_hub("user/scores")
    before = {key: list(commits) for key, commits in hub.repos.items()}
    answer = cut if fault == "cut" else (lambda request: Response("{}", fault))
    hub.fault = lambda request: answer(request) if at in request.path else None
    with refused(FAULTS[fault]) as raised:
        if at == "resolve":
            layerscope.open_evaluation("hf://user/scores")
        else:
            evaluation.push_to_hub("user/scores")
    line = str(raised.value)
    assert "\n" not in line and "user/scores" in line and len(line) < 400, line
    assert (
        all(len(commits) == 1 for commits in hub.repos.values()) or hub.repos == before
    )
    hub.fault = lambda request: None
    evaluation.push_to_hub("user/scores")
    again = layerscope.open_evaluation("hf://user/scores")
    assert again.as_dict() == evaluation.as_dict()
