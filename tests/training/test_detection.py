"""The aligned loss of DETR, held to the losses of decoders that are cut after each layer."""

from typing import Any

import pytest
import torch
import transformers as hf
from tiny import one_thread, seeded

from layerscope import LayerscopeError
from layerscope.training.detection import aligned_detection_loss

__all__ = ["one_thread"]


def detr(**options: Any) -> Any:
    backbone = hf.ResNetConfig(num_channels=3, embedding_size=8, hidden_sizes=[8, 16], depths=[1, 1],
                               layer_type="basic", out_features=["stage2"])  # fmt: skip
    config = hf.DetrConfig(
        use_timm_backbone=False, use_pretrained_backbone=False, backbone=None, backbone_config=backbone, d_model=16,
        encoder_layers=1, decoder_layers=3, encoder_attention_heads=2, decoder_attention_heads=2, encoder_ffn_dim=32,
        decoder_ffn_dim=32, num_queries=7, num_labels=4, dropout=0.0, **options,
    )  # fmt: skip
    return seeded(hf.DetrForObjectDetection, config).train()


def batch() -> tuple[torch.Tensor, list[dict[str, torch.Tensor]]]:
    generator = torch.Generator().manual_seed(0)
    pixels = torch.randn(2, 3, 32, 32, generator=generator)
    boxes = [torch.rand(n, 4, generator=generator) * 0.4 + 0.2 for n in (2, 3)]
    return pixels, [{"class_labels": torch.arange(len(box)), "boxes": box} for box in boxes]


@pytest.mark.parametrize(("weights", "layers"), [("linear", None), ([1.0, 3.0], [1, 3])])
def test_loss_and_gradients_are_those_of_decoders_cut_after_each_layer(weights: Any, layers: Any):
    model, (pixels, labels) = detr(), batch()
    shares = {1: 1 / 6, 2: 2 / 6, 3: 3 / 6} if layers is None else {1: 0.25, 3: 0.75}
    whole, wanted = model.model.decoder.layers, 0.0
    for layer, share in shares.items():
        model.model.decoder.layers = whole[:layer]
        loss = share * model(pixel_values=pixels, labels=labels).loss
        loss.backward()
        wanted += loss.item()
    model.model.decoder.layers = whole
    expected = {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}
    model.zero_grad()
    found = aligned_detection_loss(model, pixels, labels, weights=weights, layers=layers)
    found.backward()
    assert found.item() == pytest.approx(wanted, rel=1e-5)
    assert {name for name, p in model.named_parameters() if p.grad is not None} == expected.keys() and len(
        expected
    ) > 50
    for name, value in expected.items():
        torch.testing.assert_close(model.get_parameter(name).grad, value, rtol=1e-4, atol=1e-5, msg=name)


def test_wrong_detectors_and_labels_are_told():
    model, (pixels, labels) = detr(), batch()
    labels[1]["class_labels"] = torch.tensor([0, 4, 1])
    with pytest.raises(LayerscopeError, match="label 4 is outside the head's 4 classes"):
        aligned_detection_loss(model, pixels, labels)
    with pytest.raises(LayerscopeError, match="auxiliary_loss is on"):
        aligned_detection_loss(detr(auxiliary_loss=True), *batch())
    with pytest.raises(LayerscopeError, match="DetrModel is not a DETR"):
        aligned_detection_loss(model.model, *batch())
