"""What measuring every layer costs over a bare forward of the same batches.

    python benchmarks/profile_overhead.py [--case minilm|wide|lens] [--repeats 5]

Each case runs in a process of its own; the two sides take turns, and the median of their ratios is
printed, with where the time of a pass goes. Bars: MiniLM-L6 at 128 tokens <= 1.20, twelve layers of
768 <= 1.10, a 50k-word head with its lens on <= 1.35. The last lines, without a bar: a whole
`profile` with views against a forward of the originals.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

BARS = {"minilm": 1.20, "wide": 1.10, "lens": 1.35}
TOKENS = 128


def case(name: str) -> tuple[Any, Any, int]:
    """Return (model, tokenizer, number of texts) of a case."""
    import torch
    from transformers import (
        AutoTokenizer,
        BertConfig,
        BertModel,
        GPT2Config,
        GPT2LMHeadModel,
    )

    from layerscope.models.checks import embedded

    folder = embedded("minilm")
    tokenizer = AutoTokenizer.from_pretrained(folder)
    torch.manual_seed(0)
    if name == "minilm":
        return folder, None, 256
    if name == "wide":
        return BertModel(BertConfig(vocab_size=30522)).eval(), tokenizer, 64
    return GPT2LMHeadModel(GPT2Config(vocab_size=50257)).eval(), tokenizer, 64


def texts(n: int) -> list[str]:
    """Return running text cut into pieces of just over 128 tokens."""
    from layerscope.inputs import open_corpus

    joined = " ".join(open_corpus("stdlib-docs").samples[: n * 8]).split()
    return [" ".join(joined[i * 120 : (i + 1) * 120]) for i in range(n)]


def measure(name: str, repeats: int, most: int) -> dict[str, Any]:
    """Time both sides of a case in turns; raises where they give other states of the last layer."""
    import torch

    from layerscope.inputs import open_corpus
    from layerscope.models import LoadOptions, Override, find_layers, load, vectors_for
    from layerscope.models.capture import evaluating
    from layerscope.models.forward import forward
    from layerscope.profiling.forward_pass import compute
    from layerscope.profiling.options import PassOptions
    from layerscope.profiling.plan import Job, make_plan

    source, tokenizer, n = case(name)
    n = min(n, most)
    loaded = load(source, LoadOptions(), tokenizer)
    corpus = open_corpus(texts(n))
    options = PassOptions(samples=None, views=0, max_length=TOKENS, batch_size=32)
    model = find_layers(
        loaded, "text", corpus.samples[:4], Override(), max_length=TOKENS, prompt=""
    )
    job = Job(model, corpus, options, vectors_for(model, "auto"))
    plan = make_plan(job)
    batches = [rows for _, rows in plan.groupby("batch")]
    inputs = [
        model.encoder.batch([corpus.samples[i] for i in rows["sample"]])
        for rows in batches
    ]
    backbone = getattr(model.module, model.module.base_model_prefix, model.module)

    def bare() -> float:
        start = time.perf_counter()
        for batch in inputs:
            forward(backbone, batch)
        return time.perf_counter() - start

    def measured() -> float:
        start = time.perf_counter()
        for rows in batches:
            list(compute(job, rows, print))
        return time.perf_counter() - start

    with evaluating(model.module):
        _check_equal(
            forward(backbone, inputs[0]),
            inputs[0].mask,
            next(compute(job, batches[0], print)),
            model,
        )
        bare(), measured()
        pairs = [(bare(), measured()) for _ in range(repeats)]
        from torch.profiler import ProfilerActivity, profile

        with profile(activities=[ProfilerActivity.CPU]) as spent:
            measured()
    ratios = [b / a for a, b in pairs]
    tokens = int(plan["length"].median())
    return {
        "case": name,
        "texts": n,
        "tokens": tokens,
        "bare_s": statistics.median(a for a, _ in pairs),
        "profile_s": statistics.median(b for _, b in pairs),
        "ratio": statistics.median(ratios),
        "bar": BARS[name],
        "ratios": [round(r, 3) for r in ratios],
        "threads": torch.get_num_threads(),
        "where": spent.key_averages().table(
            sort_by="self_cpu_time_total", row_limit=12, max_name_column_width=40
        ),
    }


def _check_equal(output: Any, mask: Any, kept: dict[str, Any], model: Any) -> None:
    """Raise unless the pass kept what the bare forward gives at its end, pooled."""
    from layerscope.models.pooling import pool

    name = model.pooling[0]
    want = pool(output.last_hidden_state, mask, name)
    worst = float(
        (kept[f"{model.final}.{name}"][-1] - want).abs().max() / want.abs().max()
    )
    if not worst < 1e-4:
        raise SystemExit(f"the two sides differ by {worst:.1e} at the last layer")


def end_to_end(samples: int) -> None:
    """Print the time of a whole profile with views beside one forward of the originals."""
    from layerscope import profile
    from layerscope.inputs import draw, open_corpus
    from layerscope.models import LoadOptions, Override, find_layers, load

    corpus = draw(open_corpus("stdlib-docs"), samples, 0)
    model = find_layers(
        load("minilm", LoadOptions()),
        "text",
        corpus.samples[:4],
        Override(),
        max_length=None,
        prompt="",
    )
    batches = [
        model.encoder.batch(corpus.samples[i : i + 32])
        for i in range(0, len(corpus), 32)
    ]
    start = time.perf_counter()
    for batch in batches:
        model.run(batch, lambda *_: None)
    bare = time.perf_counter() - start
    with tempfile.TemporaryDirectory() as folder:
        start = time.perf_counter()
        profile("minilm", corpus, out=Path(folder) / "run", progress=False)
        whole = time.perf_counter() - start
    print(
        f"end to end, {len(corpus)} docstrings, two views, all metrics and probes: {whole:.1f} s"
    )
    print(f"one forward of the originals: {bare:.1f} s")


def main() -> None:
    """Run every case in a process of its own and keep the figures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--case", choices=BARS)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument(
        "--texts", type=int, default=256, help="texts of a case at most"
    )
    parser.add_argument("--child", action="store_true")
    args = parser.parse_args()
    if args.child:
        print(json.dumps(measure(args.case, args.repeats, args.texts)))
        return
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    for name in [args.case] if args.case else BARS:
        command = [
            sys.executable,
            __file__,
            "--child",
            "--case",
            name,
            "--repeats",
            str(args.repeats),
        ]
        command += ["--texts", str(args.texts)]
        out = json.loads(
            subprocess.run(
                command, check=True, capture_output=True, text=True
            ).stdout.splitlines()[-1]
        )
        print(out.pop("where"))
        print(
            f"{name}: {out['ratio']:.3f} x (bar {out['bar']}), repeats {out['ratios']}"
        )
        print(
            f"bare {out['bare_s']:.2f} s, profile {out['profile_s']:.2f} s, {out['texts']} x {out['tokens']} tokens\n"
        )
    end_to_end(args.texts)


if __name__ == "__main__":
    main()
