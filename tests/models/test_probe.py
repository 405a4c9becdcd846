import torch
import transformers as hf
from models.test_capture import layered
from models.zoo import build

from layerscope.inputs import Waveform


def test_a_speech_model_without_a_mask_gets_batches_of_one_length_though_the_probe_sounds_are_equally_long():
    config = hf.Wav2Vec2Config(
        vocab_size=32,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=64,
        conv_dim=(16, 16),
        conv_kernel=(10, 3),
        conv_stride=(5, 2),
        num_feat_extract_layers=2,
        num_conv_pos_embeddings=16,
        num_conv_pos_embedding_groups=4,
        feat_extract_norm="group",
    )
    model = build(lambda: hf.Wav2Vec2Model(config))
    generator = torch.Generator().manual_seed(0)
    sounds = [Waveform(torch.randn(1600, generator=generator).numpy(), 16000) for _ in range(4)]
    scope = layered(
        model, "audio", sounds, hf.Wav2Vec2FeatureExtractor(return_attention_mask=False)
    )
    assert not scope.padding
    assert any("equal length" in note for note in scope.notes)
