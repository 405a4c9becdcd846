"""How much faster self-speculative text is, against plain decoding, its own ideal, and transformers' early exit.

    python benchmarks/self_speculation.py [--batch 1 8] [--tokens 96] [--repeats 3] [--threads 1]
        [--layers 24] [--width 768]

The model is a Llama of 24 layers and width 768 with random weights, whose blocks after the sixth change little, so
that the sixth layer is often right. All decode the same greedy text (an error where one differs) in turns, and figures
are medians of each repeat's own ratio. The ideal is the time of the blocks and heads that were run, each timed alone at
half the text: what remains is the cost of drafting itself. Bars: 90 % of the ideal; faster than `assistant_early_exit`
at the same layer. The last line is what a fall-back costs, where no layer is ever right.
"""

from __future__ import annotations

import argparse
import statistics
import time
from typing import Any

import torch

DRAFT, DRAFTED, PROMPT = 6, 4, 32


def model_of(quiet: float, layers: int, width: int) -> Any:
    """Return the model; blocks after the drafting layer are scaled by `quiet`."""
    import transformers as hf

    torch.manual_seed(0)
    config = hf.LlamaConfig(
        num_hidden_layers=layers, hidden_size=width, intermediate_size=8 * width // 3, num_attention_heads=12,
        vocab_size=8000, bos_token_id=1, eos_token_id=None, pad_token_id=0,
    )  # fmt: skip
    model = hf.LlamaForCausalLM(config).eval()
    with torch.no_grad():
        for block in model.model.layers[DRAFT:]:
            block.self_attn.o_proj.weight *= quiet
            block.mlp.down_proj.weight *= quiet
    return model


def ideal(speculation: Any, batch: int, tokens: int) -> float:
    """Return the seconds of the blocks and heads that the last call ran, each timed alone at half the text."""
    halves, report, new = speculation.halves, speculation.report, DRAFTED + 1
    ids = torch.randint(3, 8000, (batch, PROMPT + tokens // 2))
    mask = torch.ones_like(ids)

    def median(run: Any, repeats: int = 7) -> float:
        times = []
        for _ in range(repeats):
            halves.ahead = 0
            begun = time.perf_counter()
            run()
            times.append(time.perf_counter() - begun)
            for layer in halves._attention():
                layer.keys, layer.values = (each[..., : ids.shape[1], :] for each in (layer.keys, layer.values))
        return statistics.median(times)

    with torch.no_grad(), halves.open():
        halves.start(mask)
        prefill = median(lambda: speculation.halves.module(ids[:, :PROMPT]), 3)
        halves.module(ids, past_key_values=halves.cache, use_cache=True)
        token, several = ids[:, :1], ids[:, :new]
        states = torch.randn(batch, new, halves.stack.width)
        early = median(lambda: halves.early(token, DRAFT, head=True))
        bare = median(lambda: halves.early(token, DRAFT, head=False))
        late = median(lambda: halves.late(several, DRAFT, states))
        plain = median(lambda: halves.all(token))
    alone = report.plain / batch * plain
    return float(prefill + report.rounds * (DRAFTED * early + bare + late) + alone)


def measure(batch: int, tokens: int, repeats: int, shape: tuple[int, int]) -> bool:
    """Time all ways to decode, and return whether the bars are met."""
    from layerscope.generation import SelfSpeculation

    model, ids = (
        model_of(0.02, *shape),
        torch.randint(3, 8000, (batch, PROMPT), generator=torch.Generator().manual_seed(1)),
    )
    options = {"attention_mask": torch.ones_like(ids), "max_new_tokens": tokens, "do_sample": False}
    fixed = SelfSpeculation(model, DRAFT, DRAFTED, fall_back=False)
    auto, never = SelfSpeculation(model), SelfSpeculation(model_of(1.0, *shape), 1)
    ways: dict[str, tuple[Any, dict[str, Any]]] = {
        "plain": (model, {}),
        f"layer {DRAFT}, {DRAFTED} drafts": (model, {"custom_generate": fixed}),
        "auto": (model, {"custom_generate": auto}),
        "plain, no layer is right": (never.halves.module, {}),
        "fall-back, no layer is right": (never.halves.module, {"custom_generate": never}),
    }
    if batch == 1:
        ways["assistant_early_exit"] = model, {"assistant_early_exit": DRAFT}
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    shares, texts = [], {}
    for _ in range(repeats + 1):
        for name, (its, how) in ways.items():
            begun = time.perf_counter()
            texts[name] = its.generate(ids, **options, **how)
            seconds[name].append(time.perf_counter() - begun)
        shares.append(ideal(fixed, batch, tokens) / seconds[f"layer {DRAFT}, {DRAFTED} drafts"][-1])
    for name, text in texts.items():
        wanted = texts["plain, no layer is right" if "no layer" in name else "plain"]
        if not torch.equal(text, wanted):
            raise SystemExit(f"{name} writes another text than plain decoding")

    def ratio(one: str, other: str) -> float:
        return statistics.median(a / b for a, b in list(zip(seconds[one], seconds[other], strict=True))[1:])

    print(f"batch {batch}, {tokens} new tokens: {statistics.median(seconds['plain'][1:]):.2f} s by plain decoding")
    for name in ways:
        if "no layer" not in name and name != "plain":
            print(f"  {name:28} {ratio('plain', name):5.2f} times plain decoding")
    share = statistics.median(shares[1:])
    fallen = ratio("fall-back, no layer is right", "plain, no layer is right")
    print(f"  {fixed.report}: {share:.0%} of the ideal")
    print(f"  auto: {auto.report}, {auto.report.draft_tokens} drafts at a time")
    print(f"  where no layer is right: {fallen:.3f} of the time of plain decoding; {never.report}")
    faster = batch > 1 or ratio("assistant_early_exit", f"layer {DRAFT}, {DRAFTED} drafts") > 1
    return share >= 0.9 and faster


def main() -> None:
    """Measure each batch size."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--batch", type=int, nargs="+", default=[1, 8])
    parser.add_argument("--tokens", type=int, default=96)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--layers", type=int, default=24)
    parser.add_argument("--width", type=int, default=768)
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    shape = given.layers, given.width
    met = [measure(batch, given.tokens, given.repeats, shape) for batch in given.batch]
    raise SystemExit(not all(met))


if __name__ == "__main__":
    main()
