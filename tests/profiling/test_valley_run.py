"""Planted sinks are found, and whole runs of `valley` equal code of the test's own in float64."""

import numpy as np
import pytest
import tiny
import torch
from models import zoo
from profiling.watched import CAUSAL, blocks_of, close, curve_of, finding, measured
from torch import nn
from typed import refused

SINKS = {"ablate": "sinks"}


class Changed(nn.Module):
    """An MLP of which what it gives is changed."""

    def __init__(self, inner, change):
        super().__init__()
        self.inner, self.change = inner, change

    def forward(self, states):
        return self.change(self.inner(states).clone())


def planted(make, size, token=0):
    """Return a model whose second block writes a large vector at a token, or nothing at all."""
    write = torch.randn(32, generator=torch.Generator().manual_seed(5))

    def change(out):
        out[:, token] = 0.0 if size is None else out[:, token] + size * write
        return out

    model = make()
    block = blocks_of(model)[1]
    block.mlp = Changed(block.mlp, change)
    return model


DRAWN = "curve-valley", "curve-first_singular"


def variants_drawn(run):
    (why,) = [section for section in run.document().sections if section.name == "why"]
    charts = [part for part in why.parts if part.name.startswith(DRAWN)]
    return sorted({chart.variant for chart in charts})


@pytest.mark.parametrize("make", CAUSAL)
def test_a_planted_sink_is_found_and_its_removal_undoes_it(make, tmp_path):
    model = planted(make, 300.0)
    run = measured(model, tmp_path / "run", "valley", ablate="sinks")
    said = finding(run, "valley")
    assert said["token"] == "token 1" and said["massive_from"] == 2
    assert said["fall"] > 0.5
    assert said["without"] < said["fall"] / 3 and said["ablated"] < said["fall"] / 3
    assert "goes with token 1: without it the entropy falls by" in said["text"]
    # the block that made it has written nothing there: as if its MLP gave nothing to the first token
    undone = measured(planted(make, None), tmp_path / "undone", "valley")
    for name, before, after in (
        ("valley", "all tokens", "sinks ablated"),
        ("first_norm", None, "sinks ablated"),
        ("first_attention", "mean head", "mean head,sinks ablated"),
    ):
        expected = curve_of(undone, name, before)
        np.testing.assert_allclose(curve_of(run, name, after), expected, rtol=1e-4)
    assert curve_of(run, "first_norm", None).max() > 20
    assert variants_drawn(run) == ["all tokens", "sinks ablated", "without sinks"]
    assert run.report(tmp_path / "page.html").stat().st_size > 10_000
    assert model.config._attn_implementation == "sdpa"


def test_a_sink_elsewhere_is_not_called_the_first_token(tmp_path):
    run = measured(planted(tiny.gpt2, 300.0, token=2), tmp_path / "run", "valley")
    said = finding(run, "valley")
    assert said["token"] == "a massive token that is not the first"
    assert said["massive_from"] == 2 and said["without"] < said["fall"] / 2
    assert variants_drawn(run) == ["all tokens", "without sinks"]


@pytest.mark.parametrize("make", CAUSAL)
def test_a_model_without_a_sink_is_told_so(make, tmp_path):
    run = measured(make(), tmp_path / "run", "valley")
    said = finding(run, "valley")
    assert said["text"].startswith("No first-token sink: token 1 has up to ")
    assert run.document().answer == "No first-token sink"
    assert said["massive_from"] is None and "without" not in said
    assert variants_drawn(run) == ["all tokens"], "without sinks it is the same"
    assert len(set(run.table()["variant"]) & {"all tokens", "without sinks"}) == 2


def test_a_sink_that_is_there_before_the_first_block_is_found(tmp_path):
    model = tiny.gpt2()
    with torch.no_grad():
        model.transformer.wpe.weight[0] *= 1000
    said = finding(measured(model, tmp_path / "run", "valley"), "valley")
    assert said["massive_from"] == 0 and "from layer 0 on" in said["text"]
    assert not said["text"].startswith("No first-token sink")


def valley_by_hand(text):
    stream = text.stream.numpy()
    shares = np.linalg.svd(stream, compute_uv=False) ** 2
    shares /= shares.sum(-1, keepdims=True)
    norms = np.linalg.norm(stream, axis=-1)
    first = text.attention()[:, :, 1:, 0].mean(-1)
    entropy = -(shares * np.log(shares)).sum(-1)
    return {
        ("valley", "all tokens"): entropy / np.log(min(stream.shape[1:])),
        ("first_singular", "all tokens"): shares[:, 0],
        ("first_norm", None): norms[:, 0] / np.median(norms, axis=-1),
        ("first_attention", "mean head"): first.mean(1),
        ("first_attention", "largest head"): first.max(1),
    }


def test_valley_equals_svd_of_the_stream_and_the_attentions_that_the_model_gives(
    both,
):
    run, texts = both
    values = [valley_by_hand(text) for text in texts]
    for curve in values[0]:
        close(run, *curve, [each[curve] for each in values])


def test_blocks_without_attention_weights_are_named(tmp_path):
    run = measured(zoo.mamba(), tmp_path / "run", "valley")
    (note,) = [note for note in run.info["notes"] if "attention weights" in note]
    assert note.startswith("blocks 1-3 of MambaForCausalLM give no attention weights")
    names = set(run.table()["metric"])
    assert "valley" in names and "first_attention" not in names


def test_eager_attention_is_said_and_changes_no_other_run(tmp_path):
    run = measured(tiny.llama(), tmp_path / "run", "valley")
    assert any("eagerly" in note for note in run.info["notes"])
    other = measured(tiny.llama(), tmp_path / "other", "all")
    assert not any("eagerly" in note for note in other.info["notes"])
    assert not {"valley", "causal_depth"} & set(other.table()["metric"])


@pytest.mark.parametrize(
    "make, metrics, options, line",
    [
        (tiny.gpt2, "valley", {"data": ["w1", "w2", "w3"]}, "have one token each"),
        (tiny.gpt2, "causal_depth", SINKS, "`ablate` is for the metric valley"),
        (zoo.mamba, "valley", SINKS, "no MLP is found in the blocks"),
        (tiny.Plain, "valley", {"data": tiny.rows(8)}, "this model have no tokens"),
    ],
)
def test_what_cannot_be_measured_is_one_line(make, metrics, options, line, tmp_path):
    with refused(line):
        measured(make(), tmp_path / "run", metrics, **options)
