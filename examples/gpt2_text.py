"""A GPT-2-shaped model from scratch on running text: aligned training against standard training.

    python examples/gpt2_text.py --train ../shared/data/wikitext2_valid_test/valid.txt \
        --eval ../shared/data/wikitext2_valid_test/test.txt [--out runs/gpt2-text] [--seeds 3]

A byte-level BPE is trained on the text first. Asked: the perplexity of every intermediate layer is
below the standard model's, the last layer's within 3 %. Source: Tracing Representation Progression,
figure 9.
"""

from __future__ import annotations

import json
from pathlib import Path

from grid import arguments, run, show, verdict
from tokenizers import ByteLevelBPETokenizer
from transformers import PreTrainedTokenizerFast

VOCABULARY, WINDOW = 1_000, 96
END = "<|endoftext|>"
CONFIG = {
    "model_type": "gpt2", "architectures": ["GPT2LMHeadModel"], "n_layer": 6, "n_embd": 96, "n_head": 4,
    "n_positions": WINDOW, "vocab_size": VOCABULARY, "resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0,
}  # fmt: skip


def written(folder: Path, text: Path) -> None:
    """Write a config and a tokenizer of the text."""
    bpe = ByteLevelBPETokenizer()
    bpe.train([str(text)], vocab_size=VOCABULARY, special_tokens=[END])
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=bpe._tokenizer, eos_token=END, pad_token=END
    )
    tokenizer.save_pretrained(folder)
    ends = {
        name: tokenizer.eos_token_id
        for name in ("bos_token_id", "eos_token_id", "pad_token_id")
    }
    (folder / "config.json").write_text(json.dumps(CONFIG | ends))


def main() -> None:
    """Run the recipe."""
    texts = "../shared/data/wikitext2_valid_test"
    given = arguments(
        __doc__ or "",
        "runs/gpt2-text",
        train=f"{texts}/valid.txt",
        eval=f"{texts}/test.txt",
    )
    model = given.out / "gpt2-6"
    written(model, given.train)
    command = [
        str(model),
        "--from-config",
        "--task",
        "causal-lm",
        "--train",
        str(given.train),
        "--eval",
        str(given.eval),
        "--max-length",
        str(WINDOW),
        "--batch-size",
        "16",
        "--max-steps",
        "300",
        "--learning-rate",
        "2e-3",
        "--weight-decay",
        "0.1",
        "--scheduler",
        "cosine",
        "--warmup",
        "50",
        "--eval-every",
        "100",
        "--eval-samples",
        "200",
    ]
    objectives = {
        "standard": ["--objective", "standard"],
        "aligned": ["--objective", "aligned"],
    }
    table = run(given, command, objectives, "perplexity")
    show(table, lambda perplexity: f"{perplexity:.1f}")
    ratio = table["aligned"] / table["standard"]
    worst = ratio.iloc[:-1].max()
    verdict(
        "highest ratio of perplexity at an intermediate layer, below 1",
        list(worst),
        bool((worst < 1).all()),
    )
    last = ratio.iloc[-1]
    verdict(
        "ratio of perplexity at the last layer, at most 1.03",
        list(last),
        last.mean() <= 1.03,
    )


if __name__ == "__main__":
    main()
