"""`exits` of a language model: what is foretold of drafts, and what is measured, saved, shown and refused."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from generation.talkers import GREEDY, TOKENIZER, loud, prompts as words_of
from generation.test_speculation import made, prompts
from models import zoo

import layerscope
from layerscope import LayerscopeError, exits, generate
from layerscope.core.memory import peak_bytes
from layerscope.generation import DraftReport, SelfSpeculation, open_draft_report
from layerscope.generation.decoder import open_language_model
from layerscope.generation.draft_replay import DraftCosts, Reading, Setting, best, read, replay
from layerscope.generation.draft_scheduler import RoundCosts
from layerscope.models import LoadOptions, Override

NEW = 24
QUIET: dict[str, Any] = {"processor": TOKENIZER, "progress": False}


def opened(model: Any) -> Any:
    return open_language_model(model, TOKENIZER, LoadOptions(), Override())


@torch.no_grad()
def test_a_layer_s_drafts_are_those_of_the_head_on_its_states() -> None:
    model = made(zoo.llama)
    prompt, new = [5, 6, 7, 8], [9, 3, 4, 8, 8, 2]
    found = read(opened(model), prompt, new)
    states = model(torch.tensor([prompt + new[:-1]]), output_hidden_states=True).hidden_states
    for layer in (1, 2):
        law = model.lm_head(model.model.norm(states[layer][0, len(prompt) :])).double().softmax(-1)
        np.testing.assert_array_equal(
            found.right[layer - 1], (law.argmax(-1) == torch.tensor(new[1:])).numpy()
        )
        np.testing.assert_allclose(found.sure[layer - 1], law.amax(-1).numpy(), rtol=1e-5)


@pytest.mark.parametrize("rows", [1, 3])
@pytest.mark.parametrize("sure", [False, True])
def test_a_replay_is_what_happens(rows: int, sure: bool) -> None:
    """Drafted and accepted tokens and rounds by recorded agreement are those of the decoding itself."""
    model = made(zoo.llama, 0.3)
    model.generation_config.eos_token_id = None
    options = prompts(rows) | GREEDY
    plain = model.generate(**options)
    readings = []
    for row, mask in zip(plain, options["attention_mask"], strict=True):
        start = int((mask == 0).sum())
        readings.append(
            read(opened(model), row[start : mask.numel()].tolist(), row[mask.numel() :].tolist())
        )
    threshold = float(np.quantile(readings[0].sure[1], 0.3)) if sure else 0.0
    speculation = SelfSpeculation(model, 2, 3, threshold=threshold or None, fall_back=False)
    model.generate(**options, custom_generate=speculation)
    found, report = replay(readings, Setting(2, 3, threshold), NEW), speculation.report
    assert 0 < found.accepted <= found.drafted
    assert sure or found.accepted < found.drafted
    rounds = sum(number for round, number in found.rounds.items() if round != (1, False))
    assert found.accepted == report.accepted
    if (
        rows == 1
    ):  # of a batch, drafts after a text's first wrong one are as probable as they happen to be
        assert found.drafted == report.drafted
        assert any(stopped for _, stopped in found.rounds) == sure
        if not sure:
            assert rounds == report.rounds


def costs(depth: int, base: float, late: float, ask: float = 0.0) -> DraftCosts:
    """Return costs of layer 1: 1 s early, 0.5 s bare, base + n · late to verify n tokens, 3 s for a plain one."""
    rounds = RoundCosts(depth)
    for _ in range(3):
        rounds.add("early", 1, 1, 1.0)
        rounds.add("bare", 1, 1, 0.5)
        rounds.add("late", depth, 1, 3.0)
        for tokens in range(1, 14):
            rounds.add("late", depth - 1, tokens, base + late * tokens)
    return DraftCosts(rounds, ask)


def test_the_time_of_a_text_is_the_sum_of_its_rounds() -> None:
    cost = costs(4, 0.0, 1.0, ask=0.1)
    right, sure = np.array([[True, True, False, True, True, True, True]]), np.full((1, 7), 0.9)
    sure[0, 2] = 0.1
    free = replay([Reading(right, sure)], Setting(1, 2), 8)
    assert free.rounds == {(3, False): 2, (1, False): 1}
    assert (free.drafted, free.accepted, free.verified) == (4, 4, 3)
    assert cost.seconds(free, Setting(1, 2)) == pytest.approx(2 * (2 * 1 + 0.5 + 3) + 3)
    # before the third token, which is wrong
    stopped = replay([Reading(right, sure)], Setting(1, 4, 0.5), 8)
    assert stopped.rounds == {(3, True): 1, (4, False): 1}
    assert (stopped.drafted, stopped.accepted) == (5, 5)
    seconds = (3 * 1.1 + 3) + (3 * 1.1 + 0.5 + 4)
    assert cost.seconds(stopped, Setting(1, 4, 0.5)) == pytest.approx(seconds)


@pytest.mark.parametrize("right", [True, False])
def test_drafts_go_as_far_as_they_are_right(right: bool) -> None:
    cost = costs(4, 5.0, 0.1)
    text = Reading(np.full((1, 60), right), np.full((1, 60), 0.5))
    every = [Setting(1, n) for n in range(1, 12)]
    setting, seconds = best([[text]], every, cost, 61)
    assert (setting.tokens > 5) == right
    assert seconds <= min(cost.seconds(replay([text], each, 61), each) for each in every)


def test_bytes_of_a_call() -> None:
    def held() -> torch.Tensor:
        first = torch.zeros(1000)
        second = first + 1  # both are held
        del first
        return (second * 2)[:10]

    assert peak_bytes(held) == 8000
    with torch.inference_mode():
        assert peak_bytes(held) == 8000
    given = torch.zeros(1000)
    assert peak_bytes(lambda: given.add_(1)) == 0


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> DraftReport:
    model = made(zoo.gpt2, 0.1)
    found = exits(
        model,
        words_of((9, 14, 6, 20, 8, 11), seed=3),
        prefix=4,
        max_new_tokens=16,
        samples=4,
        out=tmp_path_factory.mktemp("drafts") / "out",
        **QUIET,
    )
    assert isinstance(found, DraftReport)
    assert model.config.num_hidden_layers == zoo.L  # which transformers' own early exit lowers
    return found


def test_what_is_reported(report: DraftReport) -> None:
    rows = report.layers
    assert rows["layer"].tolist() == [1, 2]
    assert rows["chosen"].sum() == 1
    assert rows[rows["chosen"]]["layer"].item() == report.layer
    assert report.same == report.texts == 2  # held-out prompts
    assert rows["agreement"].between(0, 1).all()
    assert (rows[["predicted", "measured", "tokens_per_second", "memory"]] > 0).all(axis=None)
    assert (rows["length"] >= 1).all()
    assert rows["memory"].ge(report.plain_memory).all()
    assert rows["early_exit"].isna().all()
    assert any(
        "assistant_early_exit does not run here (IndexError)" in note for note in report.notes
    )
    assert report.pays == (min(report.predicted, report.measured) >= 1.045)
    assert ("same text" in report.verdict) == report.pays


def test_saved_and_opened(report: DraftReport, tmp_path: Path) -> None:
    folder = report.save(tmp_path / "kept")
    again = open_draft_report(folder)
    assert again.as_dict() == report.as_dict()
    page = layerscope.report(folder)
    assert report.verdict in page.read_text(encoding="utf-8")
    facts = json.loads((folder / "drafts.json").read_text(encoding="utf-8"))
    (folder / "drafts.json").write_text(
        json.dumps(facts | {"layer": 1 + facts["layer"]}), encoding="utf-8"
    )
    with pytest.raises(LayerscopeError, match="has changed since it was written"):
        open_draft_report(folder)


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (
            {"criterion": "margin"},
            "`criterion` is for classifiers, and this is a language model: leave it out",
        ),
        ({"min_accuracy": 0.9}, "`min_accuracy` is for classifiers"),
        ({"exits": [3]}, "layer 3 cannot draft: give `exits` of 1 … 2"),
        ({"exits": [7]}, "layer 7 cannot draft"),
        ({"max_new_tokens": 4}, "`max_new_tokens=4` is too short to time drafts: give at least 16"),
        ({"batch_size": 4}, "gives 4 prompts: `batch_size=4` needs 8"),
        ({"max_new_tokens": 400}, "positions, shorten it"),
    ],
)
def test_refused_in_one_line(options: dict[str, Any], why: str, tmp_path: Path) -> None:
    asked = {"max_new_tokens": 16, "out": tmp_path / "out"} | QUIET | options
    with pytest.raises(LayerscopeError, match=".*") as error:
        exits(loud(zoo.gpt2()), words_of(), **asked)
    assert why in str(error.value)
    assert not (tmp_path / "out").exists()


def test_generate_reads_what_was_chosen(report: DraftReport, tmp_path: Path) -> None:
    model, prompt = made(zoo.gpt2, 0.1), words_of((9,), seed=3)
    plain = generate(model, prompt, max_new_tokens=16, **QUIET).texts["ids"].tolist()
    for pays in (True, False):
        folder = replace(report, pays=pays).save(tmp_path / str(pays))
        found = generate(model, prompt, max_new_tokens=16, drafts=folder, **QUIET)
        assert found.texts["ids"].tolist() == plain
        refused = f"plain decoding: drafts do not pay, according to {folder}"
        note = f"drafts by layer {report.layer}: " if pays else refused
        assert note in found.notes[-1]
    for others, why in (
        ({"draft_layer": 1}, "`drafts` and `draft_layer` both say which layer drafts"),
        (
            {"draft_tokens": 3},
            "`draft_tokens` needs a layer that drafts: try `draft_layer='auto'`, without `drafts`",
        ),
        ({"layers": [1]}, "drafts speed up the last layer's text: leave `layers` out"),
        ({"drafts": tmp_path}, "holds no report of drafts"),
    ):
        with pytest.raises(LayerscopeError) as refused:
            generate(
                model,
                prompt,
                max_new_tokens=16,
                **({"drafts": tmp_path / "True"} | others),
                **QUIET,
            )
        assert why in str(refused.value)
    with pytest.raises(
        LayerscopeError, match="is about another model, GPT2LMHeadModel: run layerscope exits"
    ):
        generate(made(zoo.llama), prompt, max_new_tokens=16, drafts=tmp_path / "True", **QUIET)
