"""Sounds of a model whose states padding changes: in training, evaluation and exits each is what it is alone."""

from pathlib import Path

import learning
import pytest
import tiny
import torch
import transformers as hf
from tiny import one_thread

from layerscope.early_exit import ExitModel
from layerscope.early_exit.validation import read_validation
from layerscope.inputs import Waveform
from layerscope.training.exit_loss import ExitLoss
from layerscope.training.exits import Exits
from layerscope.training.objectives import Objective
from layerscope.training.trainer import layered_model, probe

__all__ = ["one_thread"]
STILL = dict.fromkeys(
    (
        "hidden_dropout",
        "attention_dropout",
        "activation_dropout",
        "feat_proj_dropout",
        "final_dropout",
        "layerdrop",
        "mask_time_prob",
    ),
    0.0,
)
LABELS = torch.tensor([0, 1, 1, 0])


@pytest.fixture
def model(tmp_path: Path) -> torch.nn.Module:
    """Return a classifier of sounds whose first convolution is normed over time, padding and all."""
    config = hf.AutoConfig.from_pretrained(
        learning.speech(tmp_path / "speech"), **STILL, num_labels=2
    )
    assert config.feat_extract_norm == "group"
    return tiny.seeded(hf.Wav2Vec2ForSequenceClassification, config)


@pytest.mark.parametrize("objective", ["aligned", "cka"])
def test_a_batch_has_the_loss_and_the_logits_of_its_samples_alone(
    model: torch.nn.Module, objective: str
):
    layered = layered_model(
        model, hf.Wav2Vec2FeatureExtractor(sampling_rate=8000, return_attention_mask=True), None
    )
    assert not layered.padding and not layered.joins(3, 4) and layered.joins(4, 4)
    noise = torch.randn(4000, generator=torch.Generator().manual_seed(0)).numpy()
    waves = [Waveform(noise[:length], 8000) for length in (3000, 1800, 4000, 1800)]
    together = layered.encoder.batch(waves).named
    alone = [layered.encoder.batch([wave]).named for wave in waves]
    with torch.no_grad():
        wanted = torch.cat([model(**one).logits for one in alone])
        assert not torch.allclose(model(**together).logits, wanted, atol=1e-4)
    inputs = probe(layered)
    exits, chosen = Exits(layered, inputs), Objective(objective)
    states = [
        torch.cat(one)
        for one in zip(*(exits(lambda one=one: model(**one)) for one in alone), strict=True)
    ]
    loss = chosen.loss(states, LABELS, exits.head, exits.layers)
    exit_loss = ExitLoss(exits, chosen, inputs)
    seen: list[torch.Tensor] = []
    exit_loss.score = lambda read, heads, _: seen.extend(
        head(read(i)) for i, head in enumerate(heads)
    )
    with torch.no_grad():
        output = model(**together, labels=LABELS)
        torch.testing.assert_close(output.logits, wanted)
        torch.testing.assert_close(output.loss, torch.nn.functional.cross_entropy(wanted, LABELS))
        for found, state in zip(seen, states, strict=True):
            torch.testing.assert_close(found, exits.head(state))
    exit_loss.on = tuple(range(len(exits.layers)))
    torch.testing.assert_close(
        model.train()(**together, labels=LABELS).loss, loss, rtol=1e-4, atol=1e-5
    )
    exit_loss.on = ()
    own = model(**together, labels=LABELS, num_items_in_batch=torch.tensor(8)).loss
    torch.testing.assert_close(own, torch.nn.functional.cross_entropy(wanted, LABELS) / 2)


def test_exits_run_them_one_at_a_time(model: torch.nn.Module, tmp_path: Path):
    extractor = hf.Wav2Vec2FeatureExtractor(sampling_rate=8000, return_attention_mask=True)
    read = read_validation(
        ExitModel(model, processor=extractor), learning.sounds(tmp_path / "sounds", 6)
    )
    assert [rows.tolist() for rows in read.plan(4)] == [[0], [1], [2], [3], [4], [5]]
    assert (
        "padding changes this model's states: samples of different lengths are run one at a time"
        in read.notes
    )
