"""What must stay while code is restructured: the numbers of one small run of everything, without times.

`python tests/golden.py write golden.json` before, `python tests/golden.py compare golden.json`
after, on one machine. Models have seeded random weights and the data are made here, so that nothing
is read from elsewhere."""

import json
import math
import sys
import tempfile
from collections import Counter
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd
import text_runs
import tiny
import torch
import transformers as hf

import layerscope
from layerscope.early_exit import timing
from layerscope.inputs import Waveform
from layerscope.truncation import costs

TOLERANCE, NIL = 1e-4, 1e-6
"""Relative and absolute: far above what another number of threads changes, far below what a wrong factor does."""
LEFT_OUT = """machine model path data source notes verdict answer findings calibration pays predicted expected measured
error alone alone_error busy speedup early_exit plain_milliseconds plain_rate plain_memory memory
milliseconds tokens_per_second"""
"""Times, what follows from them, and where things lie."""
WHICH = "run run_b kind metric variant layer site layer_b site_b pooling step task sample position threshold"
"""Columns that name a row of a table."""
HOW = {"progress": False}
IMAGE = {"num_channels": 1, "image_size": 8, "patch_size": 4, "num_labels": 10}
SOUND = {
    "conv_dim": (16, 16), "conv_kernel": (10, 3), "conv_stride": (5, 2), "num_feat_extract_layers": 2,
    "num_conv_pos_embeddings": 16, "num_conv_pos_embedding_groups": 4, "feat_extract_norm": "group",
}  # fmt: skip


class Trial:
    """Everything that is run, in one folder; what several need is made once."""

    def __init__(self, folder):
        self.folder, self.table = folder, folder / "texts.csv"
        frame = pd.DataFrame(
            {"text": tiny.texts(80), "label": [f"LABEL_{i % 3}" for i in range(80)]}
        )
        frame.to_csv(self.table, index=False)
        self.classifier = tiny.saved(tiny.classifier(), folder / "classifier")
        self.talker = tiny.saved(tiny.gpt2(), folder / "talker")

    @cache  # noqa: B019  # one trial a process
    def text(self):
        return text_runs.profile(
            str(self.classifier),
            self.folder / "text",
            self.table,
            views=2,
            processor=None,
        )

    @cache  # noqa: B019
    def language(self):
        return text_runs.profile(tiny.gpt2(), self.folder / "language", self.table)

    def images(self):
        small = {
            key: tiny.COMMON[key]
            for key in ("hidden_size", "num_hidden_layers", "num_attention_heads")
        }
        model = tiny.seeded(
            hf.ViTForImageClassification, hf.ViTConfig(**small, **IMAGE)
        )
        return layerscope.profile(
            model, "digits", samples=60, out=self.folder / "images", views=0, **HOW
        )

    def sounds(self):
        model = tiny.seeded(hf.Wav2Vec2Model, hf.Wav2Vec2Config(**tiny.COMMON, **SOUND))
        rng = np.random.default_rng(0)
        waves = [
            Waveform(rng.standard_normal(1600).astype(np.float32), 16000)
            for _ in range(24)
        ]
        processor = hf.Wav2Vec2FeatureExtractor(return_attention_mask=False)
        return layerscope.profile(
            model,
            waves,
            processor=processor,
            out=self.folder / "sounds",
            views=0,
            **HOW,
        )

    @cache  # noqa: B019
    def evaluation(self):
        task = f"classification:{self.table}"
        return layerscope.evaluate(
            str(self.classifier), task, self.folder / "evaluation", **HOW
        )

    def selection(self):
        return layerscope.select(self.text(), **HOW)

    def comparison(self):
        return layerscope.compare([self.text(), self.language()], **HOW)

    def lens(self):
        return layerscope.lens(str(self.talker), "w1 w5 w2 w7 w3", **HOW)

    def exits(self):
        return layerscope.exits(
            str(self.classifier), self.table, max_disagreement=0.95, exits=(1, 2), **HOW
        )

    def drafts(self):
        short = {"samples": 8, "prefix": 4, "max_new_tokens": 16, "draft_tokens": 2}
        report = layerscope.exits(
            str(self.talker), self.table, exits=(2,), **short, **HOW
        )
        # what is fastest depends on the machine
        ways = report.ways[:2].assign(chosen=False)
        return replace(report, ways=ways, draft_layer="2")

    def training(self):
        options = {
            "max_steps": 6,
            "batch_size": 8,
            "eval_every": 3,
            "out": self.folder / "trained",
        }
        layerscope.train(str(self.classifier), self.table, **options, **HOW)
        return layerscope.open_run(self.folder / "trained" / "history")

    def truncation(self):
        cut = layerscope.truncate(str(self.talker), 2, self.folder / "cut", **HOW)
        model = hf.AutoModelForCausalLM.from_pretrained(cut).eval()
        with torch.no_grad():
            return {"logits": model(torch.arange(4, 12)[None]).logits[0].tolist()}

    def generation(self):
        return layerscope.generate(
            str(self.talker), ["w1 w2 w3", "w4 w5"], max_new_tokens=12, **HOW
        )


NAMES = [name for name in vars(Trial) if not name.startswith("_")]


def entries(names=NAMES):
    """Return every number and word by the name of what it belongs to."""
    # threads that wait for each other cost tiny models more than they save
    torch.set_num_threads(1)
    costs.FEWEST = costs.MOST = 1
    timing.SECONDS = timing.RACE = 0.2
    with tempfile.TemporaryDirectory() as folder:
        trial = Trial(Path(folder))
        results = {name: getattr(trial, name)() for name in names}
        return {
            key: value
            for name, result in results.items()
            for key, value in _flat(name, _as_dict(result))
        }


def differing(golden, now):
    """Return a line for each entry that is not the same, beyond rounding."""
    return [
        f"{key}: {golden.get(key, 'nothing')} → {now.get(key, 'nothing')}"
        for key in sorted(golden.keys() | now.keys())
        if key not in golden or key not in now or not _same(golden[key], now[key])
    ]


def _same(one, two):
    if isinstance(one, float) or isinstance(two, float):
        numbers = isinstance(one, (int, float)) and isinstance(two, (int, float))
        return numbers and math.isclose(one, two, rel_tol=TOLERANCE, abs_tol=NIL)
    return bool(one == two)


def _as_dict(result):
    read = getattr(result, "as_dict", None)
    return result if read is None else read()


def _flat(name, value):
    if isinstance(value, dict):
        for key, entry in value.items():
            if key not in LEFT_OUT.split():
                yield from _flat(f"{name} {key}", entry)
    elif isinstance(value, list):
        numbers = Counter()
        for entry in value:
            parts = (
                [str(entry[key]) for key in WHICH.split() if entry.get(key) is not None]
                if isinstance(entry, dict)
                else []
            )
            row = " ".join([name, *parts])
            numbers[row] += 1
            yield from _flat(f"{row} {numbers[row]}", entry)
    else:
        yield name, value


if __name__ == "__main__":
    command, path = sys.argv[1], Path(sys.argv[2])
    now = entries()
    if command == "write":
        path.write_text(json.dumps(now, indent=0), encoding="utf-8")
        print(f"{len(now):,} entries written: {path}")
    else:
        lines = differing(json.loads(path.read_text(encoding="utf-8")), now)
        print("\n".join([*lines, f"{len(lines):,} of {len(now):,} entries differ"]))
        sys.exit(bool(lines))
