"""Try an installed layerscope with the dependencies it always has: `python tests/installed.py`, away from the source.

Every command runs on a small model made here, from a folder of its own; what needs an extra must name it in one line.
"""

import subprocess
import sys
import tempfile
from contextlib import chdir
from pathlib import Path

import transformers as hf
from tokenizers import Tokenizer, models, pre_tokenizers

import layerscope

WORDS = [f"w{i}" for i in range(60)]
COMMAND = str(Path(sys.executable).with_name("layerscope"))
RUNS = """
--version --verbose
inspect model
profile model --data texts.csv --out run
select run
lens model --data texts.csv --samples 8
evaluate model --tasks linear-probe:texts.csv --out scores
truncate model --layer 2 --out cut
profile cut --data texts.csv --out small
compare run small
generate model --prompt w1 --max-new-tokens 4
exits model --data texts.csv --samples 8 --max-new-tokens 16
reproduce --list
"""
NEED_AN_EXTRA = {
    "demo": "layerscope[demo]",
    "report run": "layerscope[report]",
    "truncate model --layer 2 --format onnx --out onnx": "layerscope[onnx]",
    "profile hf:a/b": "",
}


def make_inputs() -> None:
    """Write a language model with a tokenizer, and texts of three classes."""
    words = Tokenizer(models.WordLevel({word: i for i, word in enumerate(["[PAD]", "[UNK]", *WORDS])}, "[UNK]"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    named = {"pad_token": "[PAD]", "unk_token": "[UNK]", "eos_token": "[PAD]"}
    hf.PreTrainedTokenizerFast(tokenizer_object=words, model_max_length=64, **named).save_pretrained("model")
    size = {"vocab_size": len(WORDS) + 2, "n_embd": 32, "n_layer": 3, "n_head": 4, "n_positions": 64}
    hf.GPT2LMHeadModel(hf.GPT2Config(**size, bos_token_id=0, eos_token_id=0)).save_pretrained("model")
    rows = [f"{' '.join(WORDS[(i * j) % 60] for j in range(1, 9))} w{i % 3},c{i % 3}" for i in range(90)]
    Path("texts.csv").write_text("\n".join(["text,label", *rows]), encoding="utf-8")


def call(line: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([COMMAND, *line.split()], capture_output=True, text=True, timeout=300)


def try_commands() -> list[str]:
    """Return what went wrong, a line each."""
    wrong = []
    for line in RUNS.strip().splitlines():
        done = call(line)
        if done.returncode or not done.stdout.strip():
            wrong.append(f"layerscope {line}: {done.returncode}, {done.stderr.strip()[-500:]}")
    for line, extra in NEED_AN_EXTRA.items():
        done = call(line)
        told = done.stderr.strip().splitlines()[-1:] or [""]
        if done.returncode != 2 or "Traceback" in done.stderr or extra not in told[0]:
            wrong.append(f"layerscope {line}: {done.returncode}, {done.stderr.strip()[-500:]}")
    return wrong


if __name__ == "__main__":
    assert Path(layerscope.__file__).is_relative_to(sys.prefix), "layerscope is not the installed one"
    with tempfile.TemporaryDirectory() as folder, chdir(folder):
        make_inputs()
        wrong = try_commands()
    print(*wrong or ["every command runs as installed"], sep="\n")
    sys.exit(bool(wrong))
