"""How much of the loss's rise healing takes back in language models without some of their blocks.

    python benchmarks/shrink_lm.py --data DATA --models MODELS [--minutes 2] [--seeds 0 1 2]
    [--stories 3000] [--steps 600] [--dropped 2] [--work FOLDER]

Two models: MODELS/stories260K (5 blocks), on stories that it tells itself, and a GPT-2 shape of 12
blocks, trained here for some steps on DATA/tiny_shakespeare, with the tokenizer of the other. Two
blocks of the first are dropped, and `--dropped` of the second, which hardly misses two. They are
chosen by the loss without them on 128 windows, and healed, as `shrink` does it. Printed, on
windows held out: the loss of the next token of the full, the cut and the healed model, and the
share of the rise that was taken back, with its standard error over windows. Bar: half of it. What
is done lies in the work folder, and a killed call goes on.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np
import torch
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    GPT2Config,
    GPT2LMHeadModel,
    PreTrainedTokenizerBase,
)

from layerscope.core.margin import error_of
from layerscope.core.progress import reporting
from layerscope.healing.healing import Plan
from layerscope.healing.lessons import Lessons
from layerscope.inputs import open_corpus
from layerscope.models import LoadOptions, Override
from layerscope.shrinking.tasks import HELD, LEARN, VALIDATION, NextToken
from layerscope.truncation.expected import kept_without
from layerscope.truncation.healed import Healing, open_cut
from layerscope.truncation.pipeline import write_healed
from layerscope.truncation.removed_blocks import Meter, greedy_removal
from layerscope.truncation.source import open_source

WINDOW, HELD_OUT, BATCH = 128, 200, 16


def windows(texts: list[str], tokenizer: PreTrainedTokenizerBase) -> list[str]:
    """Return running text in pieces of about a window."""
    ids = tokenizer("\n".join(texts), add_special_tokens=False)["input_ids"]
    starts = range(0, len(ids) - WINDOW, WINDOW - 1)
    return [tokenizer.decode(ids[start : start + WINDOW - 1]) for start in starts]


@torch.no_grad()
def stories(folder: Path, n: int, work: Path) -> list[str]:
    """Return stories that a model tells, seeded; they are told once."""
    path = work / f"stories-{n}.json"
    if path.is_file():
        return list(json.loads(path.read_text("utf-8")))
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForCausalLM.from_pretrained(folder).eval()
    torch.manual_seed(0)
    told: list[str] = []
    while len(told) < n:
        start = torch.full((min(n, 100), 1), tokenizer.bos_token_id)
        ids = model.generate(start, max_new_tokens=WINDOW, do_sample=True, top_k=0)
        told += tokenizer.batch_decode(ids, skip_special_tokens=True)
    told = list(dict.fromkeys(told))
    path.write_text(json.dumps(told), "utf-8")
    return told


def trained(
    folder: Path, tokenizer: PreTrainedTokenizerBase, text: str, steps: int
) -> None:
    """Train a GPT-2 shape of 12 blocks on a text, and save it."""
    config = GPT2Config(
        vocab_size=len(tokenizer),
        n_positions=WINDOW,
        n_embd=96,
        n_layer=12,
        n_head=4,
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
    )
    torch.manual_seed(0)
    model = GPT2LMHeadModel(config).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    ids = torch.tensor(tokenizer(text, add_special_tokens=False)["input_ids"])
    path = folder.with_suffix(".pt")
    first = 0
    if path.is_file():
        state = torch.load(path)
        first = state["step"] + 1
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
    for step in range(first, steps):
        torch.manual_seed(step)
        starts = torch.randint(len(ids) - WINDOW, (BATCH,))
        batch = torch.stack([ids[start : start + WINDOW] for start in starts])
        loss = model(input_ids=batch, labels=batch).loss
        optimizer.param_groups[0]["lr"] = 1e-3 * min(1.0, (step + 1) / 50)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if step % 100 == 0:
            print(f"training, step {step}: loss {loss.item():.2f}", flush=True)
            weights = model.state_dict()
            state = {
                "step": step,
                "model": weights,
                "optimizer": optimizer.state_dict(),
            }
            torch.save(state, path)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def measured(
    folder: Path, dropped: int, texts: list[str], minutes: float, seed: int, work: Path
) -> None:
    """Print what a model without some blocks loses, before and after healing."""
    name = folder.name
    room = work / f"{name}-without-{dropped}-{seed}"
    result = room / "result.txt"
    if result.is_file():
        print(result.read_text("utf-8"), flush=True)
        return
    source = open_source(folder, None, Override(), LoadOptions(device="cpu"))
    texts = list(open_corpus(texts).samples)
    rows = np.random.default_rng(0).permutation(len(texts))
    part = np.full(len(texts), LEARN)
    held_out = min(HELD_OUT, len(texts) // 4)
    part[rows[:held_out]] = HELD
    part[rows[held_out : 2 * held_out]] = VALIDATION
    task = NextToken(source.model, source.pooled_by, texts, part)
    learn = task.texts(LEARN)
    depth = source.model.stack.depth
    meter = Meter(source.model, learn[:128], source.pooled_by, lambda steps: None)
    gone = greedy_removal(meter, dropped)
    kept = kept_without(gone, depth)
    full = task.values(source.model, HELD)
    cut = task.with_only([block + 1 for block in kept], HELD)
    room.mkdir(parents=True, exist_ok=True)
    lessons = Lessons(learn, task.texts(VALIDATION), task.texts(HELD))
    healing = Healing(lessons, Plan(minutes, seed=seed), room)
    write_healed(source, kept, room / "model", "transformers", healing, reporting(True))
    healed = task.values(open_cut(room / "model", source).model, HELD)
    share = (healed - cut).mean() / (full - cut).mean()
    error = error_of(healed - cut - share * (full - cut)) / (full - cut).mean()
    losses = [-values.mean() / 100 for values in (full, cut, healed)]
    line = (
        f"{name}, seed {seed}: without blocks {gone} of {depth}: loss {losses[0]:.3f}, cut {losses[1]:.3f}, "
        f"healed {losses[2]:.3f}: {share:.0%} ±{error:.0%} of the rise taken back"
    )
    result.write_text(line, "utf-8")
    print(line, flush=True)


def main() -> None:
    """Measure both models."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--models", type=Path, required=True)
    parser.add_argument("--minutes", type=float, default=2.0)
    parser.add_argument("--stories", type=int, default=3000)
    parser.add_argument("--steps", type=int, default=600)
    parser.add_argument("--dropped", type=int, default=2, help="of the 12 blocks")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--work", type=Path, default=Path("shrink-lm-benchmark"))
    options = parser.parse_args()
    small = options.models / "stories260K"
    tokenizer = AutoTokenizer.from_pretrained(small)
    options.work.mkdir(parents=True, exist_ok=True)
    told = stories(small, options.stories, options.work)
    for seed in options.seeds:
        measured(small, 2, told, options.minutes, seed, options.work)
    text = (options.data / "tiny_shakespeare" / "input.txt").read_text("utf-8")
    folder = options.work / "twelve"
    if not folder.is_dir():
        trained(folder, tokenizer, text, options.steps)
    pieces = windows(text.splitlines(), tokenizer)[: options.stories]
    for seed in options.seeds:
        measured(folder, options.dropped, pieces, options.minutes, seed, options.work)


if __name__ == "__main__":
    main()
