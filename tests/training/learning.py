"""Small real files to learn from, and tiny models to teach, saved as a user saves them."""

import random
from contextlib import contextmanager

import numpy as np
import pandas as pd
import pytest
import tiny
import transformers as hf
from PIL import Image

from layerscope.training import fit


def train(cli, folder, line, *more):
    """Type a training of a model on data, which are the first two words, all files in a folder."""
    model, data, *rest = line.split()
    files = [folder / word if (folder / word).exists() else word for word in rest]
    start = ("train", folder / model, "--train", folder / data, "--device", "cpu")
    return cli(*start, *files, *more)


def rows(n, seed=0):
    """Texts of low words are "low", those of high ones "high"."""
    rng = random.Random(seed)
    kinds = [i % 2 for i in range(n)]
    texts = [rng.choices(tiny.WORDS[45 * i :][:45], k=rng.randint(3, 9)) for i in kinds]
    names = [("low", "high")[i] for i in kinds]
    return [(" ".join(text), name) for text, name in zip(texts, names, strict=True)]


def table(path, n=48, seed=0):
    pd.DataFrame(rows(n, seed), columns=["text", "label"]).to_csv(path, index=False)
    return path


def tags(path, n=32):
    tokens = pd.Series([text.split() for text, _ in rows(n)])
    labels = [[("EVEN", "ODD")[int(w[1:]) % 2] for w in words] for words in tokens]
    frame = pd.DataFrame({"tokens": tokens, "labels": labels})
    frame.to_json(path, orient="records", lines=True)
    return path


def novel(path, n=60):
    path.write_text("\n".join(text for text, _ in rows(n)))
    return path


def photos(folder, n=50):
    rng = np.random.default_rng(0)
    for i in range(n):
        name = ("dark", "light")[i % 2]
        (folder / name).mkdir(parents=True, exist_ok=True)
        pixels = rng.integers(0, 128, (16, 16, 3), np.uint8) + 127 * (i % 2)
        Image.fromarray(pixels).save(folder / name / f"{i}.png")
    return folder


def sounds(folder, n=16):
    import soundfile

    for i in range(n):
        name = ("deep", "shrill")[i % 2]
        (folder / name).mkdir(parents=True, exist_ok=True)
        wave = 0.3 * np.sin(np.arange(1600 + 40 * i) * (0.05, 0.6)[i % 2])
        soundfile.write(folder / name / f"{i}.wav", wave, 8000)
    return folder


def encoder(folder):
    """A text encoder without a head."""
    return tiny.saved(
        hf.BertModel(hf.BertConfig(**tiny.COMMON, max_position_embeddings=64)), folder
    )


def decoder(folder):
    return tiny.saved(tiny.gpt2(), folder)


def vision(folder):
    """A folder with nothing but a vision model's config."""
    hf.ViTConfig(**tiny.SIZES, image_size=16, patch_size=4).save_pretrained(folder)
    return folder


@contextmanager
def stopped_after(step, monkeypatch):
    """Within, a training is interrupted as it ends this step, before that is saved."""
    on_step_end = fit._Progress.on_step_end

    def stop(self, args, state, control, **options):
        if state.global_step == step:
            raise KeyboardInterrupt
        return on_step_end(self, args, state, control, **options)

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(fit._Progress, "on_step_end", stop)
        yield
