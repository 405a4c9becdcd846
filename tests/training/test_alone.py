"""Sounds of a model whose states padding changes: in training, evaluation and exits each is what it is alone."""

from pathlib import Path

import learning
import pytest
import tiny
import torch
import transformers as hf
from tiny import one_thread
from torch.nn.functional import cross_entropy
from torch.testing import assert_close

from layerscope.early_exit import ExitModel
from layerscope.early_exit.validation import read_validation
from layerscope.inputs import Waveform
from layerscope.training.exit_loss import ExitLoss
from layerscope.training.exits import Exits
from layerscope.training.objectives import Objective
from layerscope.training.trainer import layered_model, probe

__all__ = ["one_thread"]
DROPOUTS = ("hidden_dropout", "attention_dropout", "activation_dropout", "feat_proj_dropout",
            "final_dropout", "layerdrop", "mask_time_prob")  # fmt: skip
LABELS = torch.tensor([0, 1, 1, 0])


@pytest.fixture
def model(tmp_path: Path) -> torch.nn.Module:
    """Return a classifier of sounds whose first convolution is normed over time, padding and all."""
    folder, off = learning.speech(tmp_path / "speech"), dict.fromkeys(DROPOUTS, 0.0)
    config = hf.AutoConfig.from_pretrained(folder, **off, num_labels=2)
    assert config.feat_extract_norm == "group"
    return tiny.seeded(hf.Wav2Vec2ForSequenceClassification, config)


@pytest.fixture
def extractor() -> hf.Wav2Vec2FeatureExtractor:
    return hf.Wav2Vec2FeatureExtractor(sampling_rate=8000, return_attention_mask=True)


@pytest.mark.parametrize("name", ["aligned", "cka"])
def test_a_batch_has_the_loss_and_the_logits_of_its_samples_alone(model, extractor, name: str):
    layered = layered_model(model, extractor, None)
    assert not layered.padding and not layered.joins(3, 4) and layered.joins(4, 4)
    noise = torch.randn(4000, generator=torch.Generator().manual_seed(0)).numpy()
    waves = [Waveform(noise[:length], 8000) for length in (3000, 1800, 4000, 1800)]
    together = layered.encoder.batch(waves).named
    alone = [layered.encoder.batch([wave]).named for wave in waves]
    inputs, objective = probe(layered), Objective(name)
    exits = Exits(layered, inputs)
    with torch.no_grad():
        wanted = torch.cat([model(**one).logits for one in alone])
        assert not torch.allclose(model(**together).logits, wanted, atol=1e-4)
    reads = [exits(lambda one=one: model(**one)) for one in alone]
    states = [torch.cat(layer) for layer in zip(*reads, strict=True)]
    loss = objective.loss(states, LABELS, exits.head, exits.layers)
    exit_loss, scored = ExitLoss(exits, objective, inputs), []
    exit_loss.score = lambda read, heads, _: scored.extend(
        head(read(i)) for i, head in enumerate(heads)
    )
    with torch.no_grad():
        output = model(**together, labels=LABELS)
    assert_close(output.logits, wanted)
    assert_close(output.loss, cross_entropy(wanted, LABELS))
    for logits, state in zip(scored, states, strict=True):
        assert_close(logits, exits.head(state))
    exit_loss.on = tuple(range(len(exits.layers)))
    found = model.train()(**together, labels=LABELS).loss
    assert_close(found, loss, rtol=1e-4, atol=1e-5)
    exit_loss.on = ()
    last = model(**together, labels=LABELS, num_items_in_batch=torch.tensor(8)).loss
    assert_close(last, cross_entropy(wanted, LABELS) / 2)


def test_exits_run_them_one_at_a_time(model, extractor, tmp_path: Path):
    sounds = learning.sounds(tmp_path / "sounds", 6)
    read = read_validation(ExitModel(model, processor=extractor), sounds)
    assert [rows.tolist() for rows in read.plan(4)] == [[0], [1], [2], [3], [4], [5]]
    note = "padding changes this model's states: samples of different lengths are run one at a time"
    assert note in read.notes
