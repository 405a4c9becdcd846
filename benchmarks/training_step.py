"""What a step of `alternate` costs over a step of `standard`, forward and backward without the optimiser.

    python benchmarks/training_step.py [--repeats 10] [--only vit|gpt2] [--rows 16]

A 12-layer ViT with 10 classes (bar 1.04 x), and a 12-layer GPT-2 shape with a 50k vocabulary on
2,048 tokens, against the floor of its operations (bar 1.10 x the floor): multiply-adds of blocks
and head in a plain step, and in the mean of a plain step and one that reads the head at every exit,
taken in turns. The plain step's loss and gradients are those of the model's own forward (an error
where they differ by more than 1e-5 of the largest).
"""

from __future__ import annotations

import argparse
import statistics
import time
from typing import Any

import torch
import transformers as hf

from layerscope.training.exit_loss import ExitLoss
from layerscope.training.exits import Exits
from layerscope.training.objectives import Objective
from layerscope.training.trainer import layered_model, probe

LAYERS = 12


def vit(rows: int) -> tuple[Any, Any, dict[str, torch.Tensor], float]:
    """Return a ViT of DeiT-S's width, nothing to process with, a batch, and the floor: the head costs nothing."""
    config = hf.ViTConfig(
        hidden_size=384,
        num_hidden_layers=LAYERS,
        num_attention_heads=6,
        intermediate_size=1536,
        image_size=32,
        patch_size=4,
        num_labels=10,
    )
    batch = {
        "pixel_values": torch.randn(rows, 3, 32, 32),
        "labels": torch.randint(0, 10, (rows,)),
    }
    return hf.ViTForImageClassification(config), None, batch, 1.0


def gpt2(rows: int) -> tuple[Any, Any, dict[str, torch.Tensor], float]:
    """Return a GPT-2 shape of width 768, a tokenizer, a batch of 128 tokens a row, and the floor of its operations."""
    from tokenizers import Tokenizer, models, pre_tokenizers

    config = hf.GPT2Config(
        n_layer=LAYERS, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0
    )
    words = Tokenizer(models.WordLevel({"[UNK]": 0}, unk_token="[UNK]"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer = hf.PreTrainedTokenizerFast(
        tokenizer_object=words, unk_token="[UNK]", pad_token="[UNK]"
    )
    ids = torch.randint(0, config.vocab_size, (max(1, rows // 2), 256))
    width, length = config.n_embd, ids.shape[1]
    # of a token: projections, and attention's two products
    block = 12 * width**2 + 2 * length * width
    head = width * config.vocab_size
    floor = (LAYERS * block + (1 + LAYERS) / 2 * head) / (LAYERS * block + head)
    batch = {"input_ids": ids, "attention_mask": torch.ones_like(ids), "labels": ids}
    return hf.GPT2LMHeadModel(config), tokenizer, batch, floor


def gradients(module: Any, batch: dict[str, torch.Tensor]) -> list[torch.Tensor]:
    """Return a step's loss, and its gradient of every weight."""
    module.zero_grad()
    loss = module(**batch).loss
    loss.backward()
    return [
        loss.detach(),
        *(weight.grad for weight in module.parameters() if weight.grad is not None),
    ]


def ratio(
    module: Any, processor: Any, batch: dict[str, torch.Tensor], repeats: int
) -> tuple[float, float]:
    """Return the seconds of a plain step and the mean step of `alternate` over it, medians taken in turns."""
    layered = layered_model(module, processor, None)
    inputs = probe(layered)
    own = gradients(module.train(), batch)
    loss = ExitLoss(Exits(layered, inputs), Objective("aligned"), inputs)
    pairs = list(zip(own, gradients(module.train(), batch), strict=True))
    worst = max(float((a - b).abs().max()) for a, b in pairs) / max(
        float(a.abs().max()) for a, _ in pairs
    )
    if not worst < 1e-5:
        raise SystemExit(f"the plain step and the model's own differ by {worst:.1e}")

    def step(on: bool) -> float:
        loss.on = tuple(range(len(loss.exits.layers))) if on else ()
        module.zero_grad()
        start = time.perf_counter()
        module(**batch).loss.backward()
        return time.perf_counter() - start

    step(False)
    step(True)
    pairs = [(step(False), step(True)) for _ in range(repeats)]
    plain = statistics.median(one for one, _ in pairs)
    return plain, statistics.median((one + other) / 2 / one for one, other in pairs)


def main() -> int:
    """Run the benchmark; exit status 1 where a bar is not met."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--repeats", type=int, default=10)
    parser.add_argument("--only", choices=("vit", "gpt2"))
    parser.add_argument("--rows", type=int, default=16)
    given = parser.parse_args()
    met = True
    for name, make, bar in (("vit", vit, 1.04), ("gpt2", gpt2, 1.10)):
        if given.only in (None, name):
            *parts, floor = make(given.rows)
            seconds, found = ratio(*parts, given.repeats)
            print(
                f"{name}: a plain step {seconds:.2f} s, alternate {found:.3f} x; floor {floor:.2f}, "
                f"{found / floor:.3f} x the floor (bar {bar})",
                flush=True,
            )
            met = met and found <= bar * floor
    return 0 if met else 1


if __name__ == "__main__":
    raise SystemExit(main())
