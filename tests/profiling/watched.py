"""Runs that say why, and the same by hooks on named blocks and the models' own outputs, in float64."""

import numpy as np
import tiny
import torch
from models import zoo

from layerscope import profile
from layerscope.profiling.depth import READ

TEXTS = [" ".join(tiny.WORDS[i : i + 8 + i // 5 % 5]) for i in range(0, 80, 5)]


CAUSAL = [tiny.llama, tiny.gpt2]


def blocks_of(model):
    if hasattr(model, "vit"):
        return model.vit.layers
    return model.transformer.h if hasattr(model, "transformer") else model.model.layers


def writes_of(block):
    """Return the last matrices of attention and MLP of a block of GPT-2 or Llama."""
    if hasattr(block, "attn"):
        return block.attn.c_proj, block.mlp.c_proj
    return block.self_attn.o_proj, block.mlp.down_proj


def measured(model, out, metrics, **options):
    options = {"data": TEXTS, "processor": tiny.tokenizer(special=False)} | options
    return profile(model, out=out, metrics=metrics, views=0, progress=False, **options)


def finding(run, name):
    (named,) = [f for f in run.as_dict()["findings"] if f["name"] == name]
    return named


def curve_of(run, name, variant):
    rows = run.table()
    rows = rows[(rows["metric"] == name) & (rows["site"] == "raw")]
    chosen = rows["variant"].isna() if variant is None else rows["variant"] == variant
    return rows[chosen].sort_values("layer")["value"].to_numpy()


def vit():
    images = {"image_size": 8, "patch_size": 2, "num_channels": 1, "num_labels": 10}
    return zoo.seeded("ViTForImageClassification", **images)


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
        self.is_image = hasattr(model, "vit")
        value = pixels(sample) if self.is_image else torch.tensor(sample)
        self.inputs = {"pixel_values" if self.is_image else "input_ids": value[None]}
        self.stream, self.logits = self.run()

    @torch.no_grad()
    def run(self, skipped=-1, where=None):
        """Return the stream [L+1, T, D] and the logits where a block writes nothing at some tokens."""
        stream = []

        def before(_, args, kwargs):
            stream.append((args[0] if args else kwargs["hidden_states"])[0].clone())

        def after(_, __, output):
            is_tuple = isinstance(output, tuple)
            state = output[0] if is_tuple else output
            if len(stream) == skipped + 1:
                state = torch.where(where[None, :, None], stream[-1][None], state)
            stream.append(state[0].clone())
            return (state, *output[1:]) if is_tuple else state

        handles = [
            self.blocks[0].register_forward_pre_hook(before, with_kwargs=True),
            *(block.register_forward_hook(after) for block in self.blocks),
        ]
        logits = self.model(**self.inputs).logits[0]
        for handle in handles:
            handle.remove()
        return torch.stack(stream), logits

    @torch.no_grad()
    def attention(self):
        """Return the weights [L, heads, T, T] of attention."""
        self.model.set_attn_implementation("eager")
        out = self.model(**self.inputs, output_attentions=True)
        self.model.set_attn_implementation("sdpa")
        return torch.cat(out.attentions).numpy()

    def skips(self, side):
        """Return change of the prediction and of later blocks by block, at the tokens of a side."""
        tokens = self.stream.shape[1]
        half = tokens if self.is_image else -(-tokens // 2)
        where = torch.arange(tokens) < half
        counted = where if side == "same token" else ~where
        read = np.flatnonzero(counted)
        few = min(READ, len(read))
        read = read[np.arange(few) * (len(read) - 1) // max(1, few - 1)]
        wrote = self.stream.diff(dim=0)[:, counted]
        predictions, later = [], []
        for block in range(len(self.blocks)):
            stream, logits = self.run(block, where)
            change = wrote - stream.diff(dim=0)[:, counted]
            share = change.norm(dim=-1) / wrote.norm(dim=-1)
            later.append(share[block + 1 :].mean())
            moved = (self.logits.softmax(-1) - logits.softmax(-1)).norm(dim=-1)
            predictions.append((moved if self.is_image else moved[read]).mean())
        return np.array(predictions), np.array(later)


def close(run, name, variant, by_text):
    """Hold a curve to the mean over texts of the test's own values."""
    values = np.stack(by_text)
    defined = np.isfinite(values).any(0)
    expected = np.nanmean(values[:, defined], 0)
    np.testing.assert_allclose(curve_of(run, name, variant), expected, 1e-6, 1e-6)
