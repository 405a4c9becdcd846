"""Small language models that say more than one word, and their texts in transformers' own hands."""

import random
from functools import partial

import torch
from models import zoo
from models.tokenizer import word_tokenizer, words

from layerscope.core.progress import Reporter
from layerscope.generation import generate
from layerscope.generation.language_model import language_model, token_ids
from layerscope.generation.scoring import scores_of
from layerscope.models import LoadOptions, Override, load

NEW = 24
GREEDY = {"max_new_tokens": NEW, "do_sample": False, "pad_token_id": 0}
TOKENIZER = word_tokenizer()


def prompts(lengths=(3, 12, 5, 20), seed=0):
    rng = random.Random(seed)
    return [words([rng.randrange(3, 90) for _ in range(n)]) for n in lengths]


def family(name, **options):
    """Return what makes a small model of a family of transformers."""
    return partial(zoo.of_class, f"{name}ForCausalLM", **options)


def name_of(make):
    """Return the name of a family, as its maker says it; other values name themselves."""
    if isinstance(make, int):
        return str(make)
    return getattr(make, "__name__", "") or make.args[0]


gpt_neox, qwen3, phi3 = (
    partial(zoo.of_family, name) for name in ("gpt_neox", "qwen3", "phi3")
)
mistral = family("Mistral", sliding_window=8)
gemma3 = family(
    "Gemma3",
    sliding_window=8,
    layer_types=["sliding_attention", "full_attention", "sliding_attention"],
)
mamba2 = family("Mamba2", num_heads=8, n_groups=1, chunk_size=8)
bamba = family(
    "Bamba",
    attn_layer_indices=[0],
    mamba_n_heads=8,
    mamba_d_head=8,
    mamba_d_state=8,
    mamba_chunk_size=8,
)


def loud(model):
    """Return a model with larger weights: a quiet one says the same token at every step and depth."""
    seeded = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=seeded) * 0.15)
    return model.eval()


MAKERS = [zoo.gpt2, zoo.opt, zoo.llama, zoo.mamba, gemma3, mamba2, bamba]


@torch.no_grad()
def of_transformers(model, ids, **options):
    """Return the new tokens of `generate` for one prompt alone."""
    given = torch.tensor([ids])
    settings = GREEDY | options
    found = model.generate(given, attention_mask=torch.ones_like(given), **settings)
    return tuple(found[0, len(ids) :].tolist())


def score(model, texts, layers=(1, 2, 3)):
    opened = language_model(load(model, LoadOptions(), TOKENIZER), Override())
    return scores_of(opened, token_ids(opened, texts), layers, Reporter())


def told(model, texts, layer=None, **options):
    how = {"max_new_tokens": NEW, "processor": TOKENIZER} | options
    return list(generate(model, texts, layers=layer, **how).texts.itertuples())
