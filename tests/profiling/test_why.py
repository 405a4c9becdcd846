"""Planted sinks, idle blocks and late writers are found, and whole runs equal code of the test's own in float64."""

import os
from pathlib import Path

import numpy as np
import pytest
import tiny
import torch
import transformers as hf
from models import zoo
from torch import nn

from layerscope import profile
from layerscope.core.errors import LayerscopeError
from layerscope.profiling.depth import READ

TEXTS = [" ".join(tiny.WORDS[i : i + 8 + i // 5 % 5]) for i in range(0, 80, 5)]


class WithWrite(nn.Module):
    """An MLP that adds a vector to what it gives at one token, or gives nothing there at all."""

    def __init__(self, inner, size, token=0):
        super().__init__()
        self.inner, self.size, self.token = inner, size, token
        generator = torch.Generator().manual_seed(5)
        self.register_buffer("write", torch.randn(32, generator=generator))

    def forward(self, states):
        out = self.inner(states).clone()
        if self.size is None:
            out[:, self.token] = 0.0
        else:
            out[:, self.token] += self.size * self.write
        return out


def blocks_of(model):
    if hasattr(model, "vit"):
        return model.vit.layers
    return model.transformer.h if hasattr(model, "transformer") else model.model.layers


def writes_of(block):
    """Return the last matrices of attention and MLP of a block of GPT-2 or Llama."""
    if hasattr(block, "attn"):
        return block.attn.c_proj, block.mlp.c_proj
    return block.self_attn.o_proj, block.mlp.down_proj


def attentive(make):
    """Return a model whose tokens read much of each other."""
    model = make()
    with torch.no_grad():
        for block in blocks_of(model):
            writes_of(block)[0].weight.mul_(8.0)
    return model


def silence(module):
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.zero_()


def planted(make, size, token=0):
    """Return a model whose second block writes a large vector at a token."""
    model = make()
    block = blocks_of(model)[1]
    block.mlp = WithWrite(block.mlp, size, token)
    return model


def measured(model, out, metrics, **options):
    options = {"data": TEXTS, "processor": tiny.tokenizer(special=False)} | options
    return profile(model, out=out, metrics=metrics, views=0, progress=False, **options)


def finding(run, name):
    (found,) = [f for f in run.as_dict()["findings"] if f["name"] == name]
    return found


CAUSAL = [tiny.llama, tiny.gpt2]


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
    for name in ("valley", "first_norm", "first_attention"):
        heads = {"first_attention": "mean head"}.get(name)
        before = {"valley": "all tokens"}.get(name, heads)
        after = ",".join(filter(None, (heads, "sinks ablated")))
        expected = _curve(undone, name, before)
        np.testing.assert_allclose(_curve(run, name, after), expected, rtol=1e-4)
    assert _curve(run, "first_norm", None).max() > 20
    assert run.report(tmp_path / "page.html").stat().st_size > 10_000
    assert model.config._attn_implementation == "sdpa"


def _curve(run, name, variant):
    rows = run.table()
    rows = rows[(rows["metric"] == name) & (rows["site"] == "raw")]
    chosen = rows["variant"].isna() if variant is None else rows["variant"] == variant
    return rows[chosen].sort_values("layer")["value"].to_numpy()


def test_a_sink_elsewhere_is_not_called_the_first_token(tmp_path):
    run = measured(planted(tiny.gpt2, 300.0, token=2), tmp_path / "run", "valley")
    said = finding(run, "valley")
    assert said["token"] == "a massive token that is not the first"
    assert said["massive_from"] == 2 and said["without"] < said["fall"] / 2


@pytest.mark.parametrize("make", CAUSAL)
def test_a_model_without_a_sink_is_told_so(make, tmp_path):
    run = measured(make(), tmp_path / "run", "valley")
    said = finding(run, "valley")
    assert said["text"].startswith("No first-token sink: token 1 has up to ")
    assert run.document().answer == "No first-token sink"
    assert said["massive_from"] is None and "without" not in said


@pytest.mark.parametrize("make", CAUSAL)
def test_a_planted_idle_block_is_found(make, tmp_path):
    model = make()
    for module in writes_of(blocks_of(model)[1]):
        silence(module)
    said = finding(measured(model, tmp_path / "run", "causal_depth"), "causal_depth")
    assert said["idle"] == "2" and said["value"] < 2.01
    assert "without block 2 the prediction stays the same: idle" in said["text"]
    whole = finding(
        measured(make(), tmp_path / "whole", "causal_depth"), "causal_depth"
    )
    assert "idle" not in whole and 1 <= whole["value"] <= 3 and whole["stderr"] > 0


@pytest.mark.parametrize("make", CAUSAL)
def test_planted_late_writers_are_found(make, tmp_path):
    model = attentive(make)
    silence(writes_of(blocks_of(model)[2])[0])  # no token reads what block 2 wrote
    run = measured(model, tmp_path / "run", "causal_depth")
    assert finding(run, "causal_depth")["late_from"] == 2
    future = run.metric("skip_prediction", variant="future tokens")
    assert future[1] > 1e-3 and abs(future[2]) < 1e-6
    assert run.metric("skip_prediction", variant="same token").min() > 1e-3
    other = measured(attentive(make), tmp_path / "other", "causal_depth")
    assert "late_from" not in finding(other, "causal_depth")


def test_skips_cost_half_a_forward_each(tmp_path):
    model = zoo.seeded("GPT2LMHeadModel", 8, n_embd=16)
    ran = []
    for block in model.transformer.h:
        block.register_forward_pre_hook(lambda _, args: ran.append(args[0].shape[0]))
    texts = [" ".join(tiny.WORDS[i : i + 10]) for i in range(12)]
    measured(model, tmp_path / "run", "causal_depth", data=texts)
    assert ran.count(12) / 8 <= 8 / 2 + 2


# float64 code of the test's own: hooks on named blocks, and the model's own outputs


def shapes():
    def stories():
        folder = Path(os.environ.get("LAYERSCOPE_SHARED", "../shared"))
        if not (folder / "models/stories260K").is_dir():
            pytest.skip("needs stories260K beside the project")
        return hf.AutoModelForCausalLM.from_pretrained(folder / "models/stories260K")

    def vit():
        images = {"image_size": 8, "patch_size": 2, "num_channels": 1, "num_labels": 10}
        return zoo.seeded("ViTForImageClassification", **images)

    return {"stories260K": stories, "gpt2": tiny.gpt2, "vit": vit}


def inputs_for(name):
    rng = np.random.default_rng(0)
    if name == "vit":
        return list(rng.integers(0, 256, size=(5, 8, 8)).astype("uint8"))
    top = 500 if name == "stories260K" else 90
    lengths = (7, 12, 12, 3, 2)
    return [rng.integers(3, top, size=n).tolist() for n in lengths]


def pixels(image):
    """Return an image [1, H, W] in float64."""
    return torch.tensor(np.array(image), dtype=torch.float64)[None] / 255


class Watched:
    """One model run on one sample: the stream of its layers, its logits, and all of it with a block skipped."""

    def __init__(self, model, sample):
        self.model, self.blocks = model, blocks_of(model)
        self.key = "pixel_values" if hasattr(model, "vit") else "input_ids"
        self.value = torch.tensor(np.array(sample))[None]
        if self.key == "pixel_values":
            self.value = pixels(sample)[None]
        self.stream, self.logits = self.run(None, None)
        self.tokens = self.stream[0].shape[0]

    def run(self, skipped, where):
        stream = []

        def before(number, _, args, kwargs):
            if number == 0:
                stream.append((args[0] if args else kwargs["hidden_states"])[0].clone())

        def after(number, _, args, output):
            state = output[0] if isinstance(output, tuple) else output
            if number == skipped:
                state = torch.where(where[None, :, None], stream[-1][None], state)
            stream.append(state[0].clone())
            return (state, *output[1:]) if isinstance(output, tuple) else state

        handles = []
        for number, block in enumerate(self.blocks):
            handles.append(
                block.register_forward_pre_hook(
                    lambda *a, n=number: before(n, *a), with_kwargs=True
                )
            )
            handles.append(
                block.register_forward_hook(lambda *a, n=number: after(n, *a))
            )
        with torch.no_grad():
            logits = self.model(**{self.key: self.value}).logits[0]
        for handle in handles:
            handle.remove()
        return stream, logits

    def attention(self):
        self.model.set_attn_implementation("eager")
        with torch.no_grad():
            out = self.model(**{self.key: self.value}, output_attentions=True)
        self.model.set_attn_implementation("sdpa")
        return np.stack([weights[0].numpy() for weights in out.attentions])

    def skips(self, side):
        """Return change of the prediction and of later blocks by block, at the tokens of a side."""
        is_image = self.key == "pixel_values"
        half = self.tokens if is_image else -(-self.tokens // 2)
        where = torch.arange(self.tokens) < half
        counted = where if side == "same token" else ~where
        read = np.flatnonzero(counted)
        predictions, later = [], []
        for block in range(len(self.blocks)):
            stream, logits = self.run(block, where)
            pairs = []
            for j in range(block + 1, len(self.blocks)):
                c = (self.stream[j + 1] - self.stream[j])[counted]
                d = (stream[j + 1] - stream[j])[counted]
                pairs.append(float(((c - d).norm(dim=1) / c.norm(dim=1)).mean()))
            later.append(np.mean(pairs) if pairs else np.nan)
            p, q = self.logits.softmax(-1), logits.softmax(-1)
            moved = (p - q).norm(dim=-1)
            if not is_image:
                few = min(READ, len(read))
                steps = np.arange(few) * (len(read) - 1) // max(1, few - 1)
                moved = moved[read[steps]]
            predictions.append(float(moved.mean()))
        return np.array(predictions), np.array(later)


@pytest.fixture(scope="module", params=["stories260K", "gpt2", "vit"])
def both(request, tmp_path_factory):
    model = shapes()[request.param]().double().eval()
    data = inputs_for(request.param)
    run = profile(
        model,
        data,
        processor=pixels if request.param == "vit" else None,
        out=tmp_path_factory.mktemp("why") / "run",
        metrics="valley,causal_depth",
        views=0,
        progress=False,
    )
    return run, [Watched(model, sample) for sample in data]


def close(run, name, variant, by_text):
    """Hold a curve to the mean over texts of the test's own values."""
    values = np.stack(by_text)
    defined = np.isfinite(values).any(0)
    expected = np.nanmean(values[:, defined], 0)
    np.testing.assert_allclose(
        _curve(run, name, variant), expected, atol=1e-6, rtol=1e-6
    )


def test_valley_equals_svd_of_the_stream_and_the_attentions_that_the_model_gives(
    both,
):
    run, texts = both
    entropies, singular, firsts, means, largest = [], [], [], [], []
    for text in texts:
        layers = [state.numpy() for state in text.stream]
        values = [np.linalg.svd(layer, compute_uv=False) ** 2 for layer in layers]
        shares = [value / value.sum() for value in values]
        limit = np.log(min(layers[0].shape))
        entropies.append(np.array([-(p * np.log(p)).sum() / limit for p in shares]))
        singular.append(np.array([p[0] for p in shares]))
        norms = [np.linalg.norm(layer, axis=1) for layer in layers]
        firsts.append(np.array([n[0] / np.median(n) for n in norms]))
        by_head = text.attention()[:, :, 1:, 0].mean(-1)
        means.append(by_head.mean(1))
        largest.append(by_head.max(1))
    close(run, "valley", "all tokens", entropies)
    close(run, "first_singular", "all tokens", singular)
    close(run, "first_norm", None, firsts)
    close(run, "first_attention", "mean head", means)
    close(run, "first_attention", "largest head", largest)


def test_causal_depth_equals_forwards_with_a_block_hooked_out(
    both,
):
    run, texts = both
    sides = ["same token"]
    if run.info["model"]["language_model"]:
        sides.append("future tokens")
    for side in sides:
        skips = [text.skips(side) for text in texts]
        close(run, "skip_prediction", side, [prediction for prediction, _ in skips])
        close(run, "skip_later", side, [later for _, later in skips])
    changes = [text.skips("same token")[0] for text in texts]
    depths = [np.array([c.sum() ** 2 / (c**2).sum()]) for c in changes]
    close(run, "causal_depth", None, depths)
    cosines = []
    for text in texts:
        pairs = zip(text.stream, text.stream[1:], strict=False)
        cosines.append(
            np.array(
                [torch.cosine_similarity(b - a, a, dim=1).mean() for a, b in pairs]
            )
        )
    close(run, "branch_cosine", "block", cosines)


def test_branches_are_those_of_the_modules(tmp_path):
    model = tiny.llama().double()
    ids = [5, 9, 20, 33, 41, 7]
    seen = {}
    block = model.model.layers[1]
    for name in ("self_attn", "mlp", "post_attention_layernorm"):
        module = block.get_submodule(name)

        def keep(_, args, output, name=name):
            seen[name] = (output[0] if isinstance(output, tuple) else output).clone()
            if args:
                seen[f"{name} reads"] = args[0].clone()

        module.register_forward_hook(keep)
    with torch.no_grad():
        model(input_ids=torch.tensor([ids]))
    expected = dict(seen)
    run = measured(model, tmp_path / "run", "causal_depth", data=[ids, ids])
    mlp, stream = expected["mlp"][0], expected["post_attention_layernorm reads"][0]
    cosine = torch.cosine_similarity(mlp, stream, dim=1).mean()
    ratio = (mlp.norm(dim=1) / stream.norm(dim=1)).mean()
    assert run.metric("branch_cosine", variant="mlp")[2] == pytest.approx(
        float(cosine), abs=1e-6
    )
    assert run.metric("branch_norm", variant="mlp")[2] == pytest.approx(
        float(ratio), abs=1e-6
    )
    stream = stream - expected["self_attn"][0]
    cosine = torch.cosine_similarity(expected["self_attn"][0], stream, dim=1).mean()
    assert run.metric("branch_cosine", variant="attn")[2] == pytest.approx(
        float(cosine), abs=1e-6
    )


# what cannot be measured is said


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
    ("metrics", "options", "line"),
    [
        ("valley", {"data": ["w1", "w2", "w3"]}, "have one token each"),
        ("causal_depth", {"ablate": "sinks"}, "`ablate` is for the metric valley"),
        ("valley", {"ablate": "heads"}, "ablate 'heads' does not exist"),
    ],
)
def test_what_cannot_be_measured_is_one_line(metrics, options, line, tmp_path):
    with pytest.raises(LayerscopeError, match=line):
        measured(tiny.gpt2(), tmp_path / "run", metrics, **options)


def test_no_mlp_to_ablate_is_one_line(tmp_path):
    with pytest.raises(LayerscopeError, match="no MLP is found in the blocks"):
        measured(zoo.mamba(), tmp_path / "run", "valley", ablate="sinks")


def test_rows_have_no_tokens(tmp_path):
    with pytest.raises(
        LayerscopeError, match="the states of this model have no tokens"
    ):
        profile(
            tiny.Plain(),
            tiny.rows(8),
            out=tmp_path / "run",
            metrics="valley",
            progress=False,
        )
