"""The aligned loss of DETR, held to the losses of decoders that are cut after each layer."""

import numpy as np
import pytest
import torch
import transformers as hf
from tiny import seeded
from typed import refused

from layerscope_papers import detection
from layerscope_papers.detection import (
    ap50_by_layer,
    average_precision,
    detection_loss,
    digit_canvases,
    right_boxes,
    train_detector,
)


def detr(num_labels=4, **options):
    backbone = hf.ResNetConfig(
        num_channels=3,
        embedding_size=8,
        hidden_sizes=[8, 16],
        depths=[1, 1],
        layer_type="basic",
        out_features=["stage2"],
    )
    config = hf.DetrConfig(
        use_timm_backbone=False,
        use_pretrained_backbone=False,
        backbone=None,
        backbone_config=backbone,
        d_model=16,
        encoder_layers=1,
        decoder_layers=3,
        encoder_attention_heads=2,
        decoder_attention_heads=2,
        encoder_ffn_dim=32,
        decoder_ffn_dim=32,
        num_queries=7,
        dropout=0.0,
        num_labels=num_labels,
        **options,
    )
    return seeded(hf.DetrForObjectDetection, config).train()


def batch():
    generator = torch.Generator().manual_seed(0)
    pixels = torch.randn(2, 3, 32, 32, generator=generator)
    boxes = [torch.rand(n, 4, generator=generator) * 0.4 + 0.2 for n in (2, 3)]
    return pixels, [
        {"class_labels": torch.arange(len(box)), "boxes": box} for box in boxes
    ]


def gradients(model):
    named = model.named_parameters()
    return {name: p.grad.clone() for name, p in named if p.grad is not None}


@pytest.mark.parametrize("layers", [None, [1, 3], [3]])
def test_loss_and_gradients_are_those_of_decoders_cut_after_each_layer(layers):
    model, (pixels, labels) = detr(), batch()
    whole, wanted = model.model.decoder.layers, 0.0
    for layer in layers or (1, 2, 3):
        model.model.decoder.layers = whole[:layer]
        loss = model(pixel_values=pixels, labels=labels).loss
        loss.backward()
        wanted += loss.item()
    model.model.decoder.layers = whole
    expected = gradients(model)
    model.zero_grad()
    found = detection_loss(model, pixels, labels, layers)
    found.backward()
    assert found.item() == pytest.approx(wanted, rel=1e-5)
    assert gradients(model).keys() == expected.keys() and len(expected) > 50
    for name, slope in gradients(model).items():
        torch.testing.assert_close(
            slope, expected[name], rtol=1e-4, atol=1e-5, msg=name
        )


def test_average_precision_and_matches_are_those_written_out():
    rng = np.random.default_rng(0)
    for _ in range(20):
        n = int(rng.integers(1, 30))
        scores, hits = rng.random(n), rng.random(n) < 0.5
        positives = int(hits.sum() + rng.integers(0, 5)) or 1
        right = hits[np.argsort(-scores)].cumsum()
        recalls, precisions = right / positives, right / np.arange(1, n + 1)
        at = [
            precisions[recalls >= recall - 1e-12].max(initial=0.0)
            for recall in np.linspace(0, 1, 101)
        ]
        found = average_precision(scores, hits, positives)
        assert found == pytest.approx(np.mean(at), rel=1e-12)
    truths = torch.tensor([[0.3, 0.3, 0.2, 0.2], [0.7, 0.7, 0.2, 0.2]])
    boxes = torch.tensor(
        [
            [0.3, 0.3, 0.2, 0.2],
            [0.31, 0.3, 0.2, 0.2],
            [0.7, 0.75, 0.2, 0.2],
            [0.7, 0.77, 0.2, 0.2],
        ]
    )
    # the third shares 0.15/0.25 with one
    assert right_boxes(boxes, truths).tolist() == [True, False] * 2
    assert not right_boxes(boxes, truths[:0]).any()


def test_a_layer_that_finds_everything_has_an_average_precision_of_one(monkeypatch):
    pixels, labels = digit_canvases(4, size=40, held_out=True)

    def objects(*, found):
        logits, boxes = torch.zeros(4, 7, 5), torch.rand(4, 7, 4) * 0.01
        logits[..., 4] = 9.0
        for i, label in enumerate(labels):
            for j, box in enumerate(label["boxes"]):
                logits[i, j, j % 4], logits[i, j, 4] = 9.0, 0.0
                if found:
                    boxes[i, j] = box
        return logits, boxes

    layers = [objects(found=False), objects(found=True), objects(found=True)]
    layers[2][1][0, 0] = 0.01  # one digit fewer is found
    monkeypatch.setattr(detection, "detections", lambda *_: layers)
    found = ap50_by_layer(detr(), pixels, labels)
    assert found[1] == 1.0 and 0.5 < found[2] < 1.0 and found[0] == 0.0


def test_training_lowers_the_loss_of_every_layer_and_canvases_are_seeded():
    pixels, labels = digit_canvases(24, size=32)
    again, _ = digit_canvases(24, size=32)
    other, _ = digit_canvases(24, size=32, held_out=True)
    assert torch.equal(pixels, again) and not torch.equal(pixels, other)
    assert pixels.abs().max() <= 1
    for canvas, label in zip(pixels, labels, strict=True):
        centres, sides = (32 * label["boxes"]).split(2, dim=1)
        corners = torch.cat([centres - sides / 2, centres + sides / 2], 1).round()
        for left, top, right, bottom in corners.int().tolist():
            assert min(left, top) >= 0 and max(right, bottom) <= 32
            inside = canvas[0, top:bottom, left:right]
            assert inside.max() > 0.5, "a box holds its digit"
    model = detr(num_labels=10)
    how = {"steps": 25, "batch_size": 8, "learning_rate": 1e-3}
    losses = train_detector(model, pixels, labels, **how)
    assert np.mean(losses[-5:]) < 0.95 * np.mean(losses[:5])
    assert len(ap50_by_layer(model, pixels, labels)) == 3


def test_a_detector_with_auxiliary_losses_is_refused():
    with refused("auxiliary_loss is on"):
        detection_loss(detr(auxiliary_loss=True), *batch())
