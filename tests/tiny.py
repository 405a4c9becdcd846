"""Tiny random models, saved as a user saves them, with a tokenizer of their own and texts of every length."""

import random

import pytest
import torch
import transformers as hf
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from torch import nn

WORDS = [f"w{i}" for i in range(90)]
SPECIAL = ["[PAD]", "[CLS]", "[SEP]", "[UNK]"]
SIZES = {
    "hidden_size": 32,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "intermediate_size": 48,
}
COMMON = SIZES | {
    "vocab_size": len(SPECIAL) + len(WORDS),
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}


@pytest.fixture(autouse=True, scope="module")
def one_thread():
    """Threads that wait for each other cost tiny models more than they save."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture
def no_gradients():
    """Models are run, and not trained."""
    with torch.no_grad():
        yield


def texts(n, seed=0, longest=30):
    """Seeded texts of 1 to `longest` words; every tenth is a single word."""
    rng = random.Random(seed)
    lengths = [1 if i % 10 == 0 else rng.randint(1, longest) for i in range(n)]
    return [" ".join(rng.choices(WORDS, k=length)) for length in lengths]


def tokenizer(*, special, side="right"):
    """Return a tokenizer of whole words: with [CLS] and [SEP] around a text, or (a language model's) bare."""
    words = Tokenizer(
        models.WordLevel(
            {word: i for i, word in enumerate([*SPECIAL, *WORDS])}, unk_token="[UNK]"
        )
    )
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    if special:
        words.post_processor = processors.TemplateProcessing(
            single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 1), ("[SEP]", 2)]
        )
    named = {"pad_token": "[PAD]", "unk_token": "[UNK]"}
    named |= (
        {"cls_token": "[CLS]", "sep_token": "[SEP]"}
        if special
        else {"eos_token": "[SEP]"}
    )
    return hf.PreTrainedTokenizerFast(
        tokenizer_object=words, padding_side=side, model_max_length=64, **named
    )


def seeded(make, config, seed=0):
    """Return a model with large random weights and random norms, so that its layers differ."""
    torch.manual_seed(seed)
    model = make(config)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.1)
    return model.eval()


def bert(seed=0):
    return seeded(
        hf.BertForMaskedLM, hf.BertConfig(**COMMON, max_position_embeddings=64), seed
    )


def classifier(classes=3, seed=0):
    return seeded(
        hf.BertForSequenceClassification,
        hf.BertConfig(**COMMON, max_position_embeddings=64, num_labels=classes),
        seed,
    )


def gpt2(seed=0):
    config = hf.GPT2Config(
        vocab_size=COMMON["vocab_size"],
        n_embd=32,
        n_layer=3,
        n_head=4,
        n_positions=64,
        bos_token_id=2,
        eos_token_id=2,
    )
    return seeded(hf.GPT2LMHeadModel, config, seed)


def llama(seed=0):
    return seeded(
        hf.LlamaForCausalLM,
        hf.LlamaConfig(**COMMON, num_key_value_heads=2, max_position_embeddings=64),
        seed,
    )


def broken_llama(word):
    """Return a Llama whose states are NaN from this word on."""
    model = llama()
    token = tokenizer(special=False).convert_tokens_to_ids(word)
    model.model.embed_tokens.weight.data[token] = torch.nan
    return model


def saved(model, folder, *, special=None):
    """Save model and tokenizer into a folder, as `save_pretrained` does; one that continues a text has it bare."""
    if special is None:
        special = not type(model).__name__.endswith(("CausalLM", "LMHeadModel"))
    model.save_pretrained(folder)
    tokenizer(special=special).save_pretrained(folder)
    return folder


def sentence_encoder(folder, *more, pooling="mean"):
    """Return a sentence encoder over a saved model, with more modules behind its pooling."""
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.models import Pooling, Transformer

    body = Transformer(str(folder))
    pooled = Pooling(SIZES["hidden_size"], pooling_mode=pooling)
    return SentenceTransformer(modules=[body, pooled, *more], device="cpu")


def vit(folder):
    """Save a vision model with its processor of images of 16 × 16."""
    config = hf.ViTConfig(**SIZES, image_size=16, patch_size=4)
    seeded(hf.ViTModel, config).save_pretrained(folder)
    size = {"height": 16, "width": 16}
    hf.ViTImageProcessor(size=size).save_pretrained(folder)
    return folder


def wav2vec2(folder):
    """Save a speech model with its processor."""
    config = hf.Wav2Vec2Config(
        **SIZES,
        conv_dim=(16, 16),
        conv_stride=(5, 4),
        conv_kernel=(10, 8),
        num_feat_extract_layers=2,
        num_conv_pos_embeddings=16,
        num_conv_pos_embedding_groups=4,
    )
    seeded(hf.Wav2Vec2Model, config).save_pretrained(folder)
    hf.Wav2Vec2FeatureExtractor().save_pretrained(folder)
    return folder


class Block(nn.Module):
    """A residual layer over vectors, which can be told to break on a mark in its input."""

    def __init__(self, width, breaks=False):
        super().__init__()
        self.linear, self.breaks = nn.Linear(width, width), breaks

    def forward(self, x):
        out = x + self.linear(x).tanh()
        return (
            torch.where(x[..., :1] > MARK / 2, torch.nan, out) if self.breaks else out
        )


MARK = 1e3


class Plain(nn.Module):
    """A stack of blocks over rows [B, 6] whose first feature, where it is 1, makes block `breaks` give NaN.

    With `fits` a batch of more rows than that runs out of memory, as a device would.
    """

    def __init__(
        self,
        *,
        breaks=None,
        fits=None,
        width=16,
        depth=3,
    ):
        super().__init__()
        torch.manual_seed(0)
        self.stem = nn.Linear(6, width)
        self.blocks = nn.ModuleList(Block(width, breaks == i + 1) for i in range(depth))
        self.fits, self.sizes = fits, []

    def forward(self, x):
        if self.fits is not None and len(x) > self.fits:
            raise torch.OutOfMemoryError(f"out of memory with {len(x)} rows")
        self.sizes.append(len(x))
        marked = torch.where(x[:, :1] == 1.0, 2 * MARK, 0.0)
        x = self.stem(x) + torch.nn.functional.pad(
            marked, (0, self.stem.out_features - 1)
        )
        for block in self.blocks:
            x = block(x)
        return x


def rows(n, seed=0):
    """Rows [n, 6] for `Plain`, none of them marked."""
    return torch.rand(n, 6, generator=torch.Generator().manual_seed(seed)) * 0.9
