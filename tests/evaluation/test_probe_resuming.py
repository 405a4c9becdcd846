"""Probes as tasks of `evaluate` that go on: only what is missing is computed, also after a kill."""

import json
import signal
from dataclasses import replace

import pytest
from typed import refused

import layerscope
from layerscope.evaluation.kinds import kind_of
from layerscope.profiling import forward_pass


def probed(name, monkeypatch):
    """Return a list that gets an entry for each fit of this kind of probe."""
    computed = []
    kind = kind_of(name)
    probe = replace(
        kind, probe=lambda *a, **k: computed.append(a) or kind.probe(*a, **k)
    )
    module = f"layerscope.evaluation.kinds.{name.replace('-', '_')}"
    monkeypatch.setattr(f"{module}.KIND", probe)
    return computed


def test_more_layers_take_only_what_is_new_and_other_data_are_refused(
    vit, tmp_path, monkeypatch
):
    computed = probed("linear-probe", monkeypatch)

    def evaluate(**options):
        computed.clear()
        return layerscope.evaluate(
            vit,
            "linear-probe:digits",
            tmp_path / "out",
            pooling="mean",
            **options,
        )

    first = evaluate(samples=60, layers=[3])
    assert len(computed) == 1 + (
        first.baseline().iloc[0, 0] != first.table().iloc[0, 0]
    )
    evaluate(samples=60, layers=[3])
    assert computed == []
    more = evaluate(samples=60, layers=[1, 3])
    assert len(computed) == 1 and more.table().loc[3].equals(first.table().loc[3])
    for other in ({"samples": 70}, {"samples": 60, "seed": 1}):
        with refused("holds scores of digits .linear probe. on other data"):
            evaluate(layers=[1, 3], **other)
    assert computed == []


def test_killed_between_layers_it_keeps_what_is_done(forks, vit, tmp_path, monkeypatch):
    out = tmp_path / "out"
    call = f"layerscope.evaluate({vit!r}, 'knn-probe:digits', {str(out)!r}, samples=60, progress=False)"
    short = (
        "import time, layerscope; from layerscope.scores.probe_results import ProbeScores as P; add = P.add; "
        # so that it is killed between two layers
        "P.add = lambda *what: (add(*what), time.sleep(0.2)); "
    )
    running = forks.start(script=short + call)
    kept = []
    running.until(
        lambda: (
            kept.extend(
                p
                for p in out.glob("probes/*/*.json")
                if len(json.loads(p.read_text())["rows"]) >= 2
            )
            or kept
        ),
        0.01,
    )
    running.kill()
    assert running.wait().status == -signal.SIGKILL
    before = json.loads(kept[0].read_text())["rows"]
    assert 2 <= len(before) < 5
    computed = probed("knn-probe", monkeypatch)
    monkeypatch.setattr(
        forward_pass, "_forward", lambda *a: pytest.fail("its states are there")
    )
    found = layerscope.evaluate(vit, "knn-probe:digits", out, samples=60)
    after = json.loads(kept[0].read_text())["rows"]
    assert (
        after[: len(before)] == before
        and len(after) == 5
        and len(computed) <= 5 - len(before)
    )
    assert found.table().shape == (4, 1) and not (out / "states").exists()


def test_a_damaged_file_of_scores_is_refused_and_judged_again(vit, tmp_path):
    def evaluate():
        return layerscope.evaluate(
            vit,
            "knn-probe:digits",
            tmp_path / "out",
            samples=60,
            layers=[2],
        ).table()

    first = evaluate()
    (file,) = tmp_path.glob("out/probes/*/*.json")
    file.write_text(file.read_text()[:-20])
    with refused("is damaged, or no file of probe scores: evaluate that task again"):
        layerscope.open_evaluation(tmp_path / "out")
    assert evaluate().equals(first)
