"""Try every command of an installed layerscope, away from the source, with the dependencies it always has.

`python tests/installed.py`: what needs an extra must name it in one line. `python
tests/installed.py all`: where the extra `all` is installed, what needs one must run too. The models
are made here, the folder is one of its own."""

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
--version
inspect model
profile model --data texts.csv --out run
select run
lens model --data texts.csv --samples 8
evaluate model --tasks linear-probe:texts.csv --out scores
scores scores --metrics run
truncate model --layer 2 --out cut
profile cut --data texts.csv --out small
compare run small
extract model --data texts.csv --layers 1,2 --out states
generate model --prompt w1 --max-new-tokens 4
exits model --data texts.csv --samples 8 --max-new-tokens 16
shrink model --data texts.csv --samples 110 --max-loss 1000 --minutes 0.05 --out tiny
reproduce --list
"""
NEED_AN_EXTRA = {
    "profile minilm --data stdlib-docs --samples 50 --out demo": "layerscope[demo]",
    "report run --figures figures": "layerscope[charts]",
    "evaluate model --tasks classification:texts.csv --out mteb": "layerscope[evaluation]",
    "evaluate model --tasks lm:words.yaml --out harness": "layerscope[lm-eval]",
    "train model --train texts.csv --out trained --max-steps 4": "layerscope[accelerate]",
    "truncate model --layer 2 --format onnx --out onnx": "layerscope[onnx]",
    "truncate run --layer 2 --format sentence-transformers --out encoder": "layerscope[sentence-transformers]",
    "reproduce T-tab1 --out papers": "layerscope[charts]",
}
NOWHERE = "profile hf:a/b --data texts.csv"
HARNESS = """
task: words
dataset_path: csv
dataset_kwargs: {data_files: {test: texts.csv}, cache_dir: cache}
test_split: test
output_type: loglikelihood
doc_to_text: "{{text}}"
doc_to_target: " {{label}}"
metric_list: [{metric: acc, aggregation: mean, higher_is_better: true}]
"""
MODULE_FIRST = "import layerscope.metrics.rankme; from layerscope.metrics import rankme; assert callable(rankme)"


def make_inputs():
    """Write a language model with a tokenizer, texts of three classes, and a task of lm-evaluation-harness on them."""
    words = Tokenizer(
        models.WordLevel(
            {word: i for i, word in enumerate(["[PAD]", "[UNK]", *WORDS])}, "[UNK]"
        )
    )
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    named = {"pad_token": "[PAD]", "unk_token": "[UNK]", "eos_token": "[PAD]"}
    hf.PreTrainedTokenizerFast(
        tokenizer_object=words, model_max_length=64, **named
    ).save_pretrained("model")
    size = {
        "vocab_size": len(WORDS) + 2,
        "n_embd": 32,
        "n_layer": 3,
        "n_head": 4,
        "n_positions": 64,
    }
    hf.GPT2LMHeadModel(
        hf.GPT2Config(**size, bos_token_id=0, eos_token_id=0)
    ).save_pretrained("model")
    rows = [
        f"{' '.join(WORDS[i * j % 59] for j in range(1, 9))} w{i // 59} w{i % 3},c{i % 3}"
        for i in range(118)
    ]
    Path("texts.csv").write_text("\n".join(["text,label", *rows]), encoding="utf-8")
    Path("words.yaml").write_text(HARNESS, encoding="utf-8")


def fault_of(line, refusal=None):
    """Return what is wrong with a command, if anything: it must run, or else refuse in one line that names this."""
    done = subprocess.run(
        [COMMAND, *line.split()], capture_output=True, text=True, timeout=600
    )
    last = (done.stderr.strip().splitlines() or [""])[-1]
    if refusal is None:
        right = done.returncode == 0 and done.stdout.strip()
    else:
        right = (
            done.returncode == 2 and "Traceback" not in done.stderr and refusal in last
        )
    return (
        ""
        if right
        else f"layerscope {line}: {done.returncode}, {done.stderr.strip()[-500:]}"
    )


def try_commands(extras):
    """Return what went wrong, a line each."""
    first = subprocess.run(
        [sys.executable, "-c", MODULE_FIRST], capture_output=True, text=True
    )
    results = [
        first.stderr,
        *map(fault_of, RUNS.strip().splitlines()),
        fault_of(NOWHERE, ""),
    ]
    for line, extra in NEED_AN_EXTRA.items():
        results.append(fault_of(line, None if extras else extra))
    return [result for result in results if result]


if __name__ == "__main__":
    assert Path(layerscope.__file__).is_relative_to(sys.prefix), (
        "layerscope is not the installed one"
    )
    with tempfile.TemporaryDirectory() as folder, chdir(folder):
        make_inputs()
        wrong = try_commands(extras=sys.argv[1:] == ["all"])
    print(*wrong or ["every command runs as installed"], sep="\n")
    sys.exit(bool(wrong))
