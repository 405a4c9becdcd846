"""Tiny random classifiers of every family, and what they end at a layer, built without the exits' code."""

import copy
from functools import partial

import torch
import transformers as hf
from models import zoo
from tiny import texts, tokenizer

from layerscope.early_exit import ExitModel
from layerscope.early_exit.validation import Validation
from layerscope.inputs import Waveform
from layerscope.models.stack import module_at

D, L, CLASSES = zoo.D, 4, 5
SOUND = {
    "conv_dim": (16, 16),
    "conv_kernel": (10, 8),
    "conv_stride": (8, 8),
    "num_conv_pos_embeddings": 16,
    "num_conv_pos_embedding_groups": 4,
    "num_feat_extract_layers": 2,
}
STABLE = {"do_stable_layer_norm": True, "feat_extract_norm": "layer"}


def _made(kind, processor, **options):
    return zoo.seeded(kind, L, num_labels=CLASSES, **options), processor


def _text(name, **options):
    words = tokenizer(special=True)
    return partial(_made, f"{name}ForSequenceClassification", words, **options)


def _image(name, **options):
    kind = f"{name}ForImageClassification"
    return partial(_made, kind, None, **zoo.IMAGE, **options)


def _sound(name, **options):
    extractor = hf.Wav2Vec2FeatureExtractor(return_attention_mask=True)
    kind = f"{name}ForSequenceClassification"
    return partial(_made, kind, extractor, **SOUND, **options)


CASES = {
    "bert": _text("Bert"),
    "roberta": _text("Roberta", max_position_embeddings=66),
    "distilbert": _text("DistilBert", hidden_dim=48),
    "electra": _text("Electra", embedding_size=16),
    "albert": _text("Albert", embedding_size=16),
    "deberta": _text(
        "DebertaV2",
        relative_attention=True,
        position_buckets=8,
        pos_att_type=["p2c", "c2p"],
    ),
    "mpnet": _text("MPNet", max_position_embeddings=66),
    "modernbert": _text(
        "ModernBert",
        cls_token_id=1,
        sep_token_id=2,
        global_attn_every_n_layers=2,
        local_attention=8,
        classifier_pooling="mean",
    ),
    "gpt2": _text("GPT2"),
    "gpt_neox": _text("GPTNeoX"),
    "opt": _text("OPT", word_embed_proj_dim=D),
    "bloom": _text("Bloom"),
    "llama": _text("Llama"),
    "qwen3": _text("Qwen3"),
    "mistral": _text("Mistral", sliding_window=8),
    "gemma2": _text("Gemma2", sliding_window=8),
    "mixtral": _text("Mixtral"),
    "vit": _image("ViT"),
    "deit": _image("DeiT"),
    "beit": _image("Beit", use_relative_position_bias=True),
    "dinov2": _image("Dinov2", mlp_ratio=2),
    "wav2vec2": _sound("Wav2Vec2", **STABLE),
    "hubert": _sound("Hubert", **STABLE),
    "wavlm": _sound("WavLM", **STABLE),
    "wav2vec2-group": _sound("Wav2Vec2"),
    "whisper": partial(
        _made,
        "WhisperForAudioClassification",
        hf.WhisperFeatureExtractor(chunk_length=2),
        d_model=D,
        encoder_layers=L,
        encoder_attention_heads=4,
        encoder_ffn_dim=48,
        max_source_positions=100,
        decoder_layers=1,
        decoder_start_token_id=1,
    ),
    "ast": partial(
        _made,
        "ASTForAudioClassification",
        hf.ASTFeatureExtractor(max_length=64, num_mel_bins=32),
        max_length=64,
        num_mel_bins=32,
        patch_size=8,
    ),
}


def exits_of(name, **options):
    """Return a classifier of a family as a model that leaves early."""
    module, processor = CASES[name]()
    return ExitModel(module, processor=processor, **options)


def samples_for(model, n, seed=0):
    """Seeded samples of the model's modality, of different lengths where it has any; the first is the longest."""
    modality = model.layered.encoder.modality
    if modality == "text":
        return ["w1 " * 28, *texts(n - 1, seed, 20)]
    generator = torch.Generator().manual_seed(seed)
    if modality == "image":
        from PIL import Image

        pixels = torch.randint(
            0, 256, (n, 16, 16, 3), generator=generator, dtype=torch.uint8
        ).numpy()
        return [Image.fromarray(one) for one in pixels]
    lengths = [6000, *torch.randint(2000, 5000, (n - 1,), generator=generator).tolist()]
    return [
        Waveform((torch.randn(size, generator=generator) * 0.1).numpy(), 16000)
        for size in lengths
    ]


def validation(model, samples):
    encoder = model.layered.encoder
    return Validation("texts", encoder, samples, [*encoder.lengths(samples)], None, ())


def batch_for(model, n, seed=0):
    return model.layered.encoder.batch(samples_for(model, n, seed))


def truncated(model, layer):
    """The classifier whose list of blocks ends at a layer; of a shared block, that runs it so many times."""
    blocks = model.layered.stack.blocks
    copied = copy.deepcopy(model.model)
    if len(set(blocks)) == 1:
        copied.config.num_hidden_layers = layer
        return copied.eval()
    parent, _, _ = blocks[0].rpartition(".")
    owner, _, name = parent.rpartition(".")
    setattr(module_at(copied, owner, ""), name, module_at(copied, parent, "")[:layer])
    copied.config.num_hidden_layers = layer
    return copied.eval()


def leaving(layers):
    return lambda layer, logits, rows: layers[rows.cpu()] == layer


def close(one, two):
    torch.testing.assert_close(one.float(), two.float(), rtol=1e-5, atol=1e-5)


@torch.no_grad()
def plain(model, inputs):
    return model(**inputs.named).logits


@torch.no_grad()
def ended(model, inputs, layers):
    """Return the logits of each row of a batch by the classifier that ends at its layer."""
    ends = {layer: plain(truncated(model, layer), inputs) for layer in {*layers}}
    return torch.stack([ends[layer][row] for row, layer in enumerate(layers)])
