"""How much faster a model of half the depth is, against the ideal of its operations.

    python benchmarks/truncated.py [--case minilm|base] [--repeats 21]

Both models run the same batches of 128 tokens in turns, and the short one's states are those of the
full one's layer (an error where they differ by more than 1e-5 of the largest); the figure is the
median of each repeat's own ratio, so that a busy machine slows both sides. The ideal is the ratio
of their operations (matrix products and attention). Bar: 85 % of it, for MiniLM-L6 at 3 layers and
for the shape of BERT-base at 6.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import torch

BAR = 0.85
TOKENS = 128


def case(name: str) -> tuple[Any, int, int]:
    """Return (model, layer to keep, batch size)."""
    import transformers as hf

    from layerscope.models.checks import embedded

    if name == "minilm":
        return hf.AutoModel.from_pretrained(embedded("minilm")).eval(), 3, 16
    torch.manual_seed(0)
    return hf.BertModel(hf.BertConfig()).eval(), 6, 8


def measure(name: str, repeats: int) -> bool:
    """Truncate, load with transformers alone, and time both; return whether the bar is met."""
    import transformers as hf
    from torch.nn.attention import SDPBackend, sdpa_kernel
    from torch.utils.flop_counter import FlopCounterMode

    import layerscope
    from layerscope.models.checks import embedded

    full, layer, batch = case(name)
    with tempfile.TemporaryDirectory() as folder:
        tokenizer = hf.AutoTokenizer.from_pretrained(embedded("minilm"))
        out = layerscope.truncate(
            full, layer, Path(folder) / "cut", processor=tokenizer, progress=False
        )
        cut = hf.AutoModel.from_pretrained(out).eval()
    ids = torch.randint(
        1000, 20000, (batch, TOKENS), generator=torch.Generator().manual_seed(0)
    )

    @torch.inference_mode()
    def seconds(model: Any) -> float:
        start = time.perf_counter()
        model(input_ids=ids)
        return time.perf_counter() - start

    def operations(model: Any) -> int:
        model.requires_grad_(False)
        with (
            torch.inference_mode(),
            sdpa_kernel(SDPBackend.MATH),
            FlopCounterMode(display=False) as counter,
        ):
            model(input_ids=ids)
        return int(counter.get_total_flops())

    with torch.inference_mode():
        inner, last = (
            full(ids, output_hidden_states=True).hidden_states[layer],
            cut(ids).last_hidden_state,
        )
    worst = float((inner - last).abs().max() / inner.abs().max())
    if not worst < 1e-5:
        raise SystemExit(f"the two sides differ by {worst:.1e}")
    ideal = operations(full) / operations(cut)
    for model in (full, cut, full, cut):
        seconds(model)
    pairs = [(seconds(full), seconds(cut)) for _ in range(repeats)]
    ratios = sorted(a / b for a, b in pairs)
    speedup = statistics.median(ratios)
    whole, short = (
        statistics.median(side) * 1e3 / batch for side in zip(*pairs, strict=True)
    )
    print(
        f"{name}: {whole:.2f} ms a text in full, {short:.2f} ms with {layer} layers: {speedup:.2f} x "
        f"({ratios[repeats // 4]:.2f} to {ratios[-1 - repeats // 4]:.2f}), ideal {ideal:.2f} x: "
        f"{speedup / ideal:.0%} of it (bar {BAR:.0%})"
    )
    return speedup >= BAR * ideal


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--case", choices=["minilm", "base"], action="append")
    parser.add_argument("--repeats", type=int, default=21)
    given = parser.parse_args()
    met = [measure(name, given.repeats) for name in given.case or ["minilm", "base"]]
    raise SystemExit(0 if all(met) else 1)
