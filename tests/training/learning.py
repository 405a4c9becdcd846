"""Small real files to learn from, and tiny models to teach, saved as a user saves them."""

import csv
import json
import random
from contextlib import contextmanager

import numpy as np
import pytest
import tiny
import transformers as hf
from PIL import Image

from layerscope.training import fit


def words(text):
    """Return the words of a command line."""
    return text.split()


def rows(n, seed=0):
    """Texts of low words are "low", those of high ones "high"."""
    rng = random.Random(seed)
    return [
        (
            " ".join(rng.choices(tiny.WORDS[45 * (i % 2) :][:45], k=rng.randint(3, 9))),
            ("low", "high")[i % 2],
        )
        for i in range(n)
    ]


def table(path, n=48, seed=0):
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([("text", "label"), *rows(n, seed)])
    return path


def tags(path, n=32):
    lines = [
        {
            "tokens": text.split(),
            "labels": ["ODD" if int(w[1:]) % 2 else "EVEN" for w in text.split()],
        }
        for text, _ in rows(n)
    ]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def novel(path, n=60):
    path.write_text("\n".join(text for text, _ in rows(n)))
    return path


def photos(folder, n=50):
    rng = np.random.default_rng(0)
    for i in range(n):
        name = ("dark", "light")[i % 2]
        (folder / name).mkdir(parents=True, exist_ok=True)
        Image.fromarray(
            rng.integers(0, 128, (16, 16, 3), np.uint8) + 127 * (i % 2)
        ).save(folder / name / f"{i}.png")
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


def speech(folder):
    config = hf.Wav2Vec2Config(
        **tiny.SIZES,
        vocab_size=12,
        conv_dim=(16,) * 3,
        conv_stride=(5, 4, 4),
        conv_kernel=(10, 8, 4),
        num_feat_extract_layers=3,
        num_conv_pos_embeddings=16,
        num_conv_pos_embedding_groups=4,
        mask_time_length=2,
    )
    hf.Wav2Vec2Model(config).save_pretrained(folder)
    hf.Wav2Vec2FeatureExtractor(
        sampling_rate=8000, return_attention_mask=True
    ).save_pretrained(folder)
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
