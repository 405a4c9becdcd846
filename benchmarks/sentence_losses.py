"""MiniLM-L6 fine-tuned on STS-B by a plain loss, by AlignedLoss and by AdaptiveLayerLoss: each layer, and the time.

    python benchmarks/sentence_losses.py [--data ../shared/data] [--steps 60] [--batch 8] [--dev 200] [--seed 0]

CosineSimilarityLoss on 60 batches of 8 training pairs, the same for all, AdamW at 5e-5. Printed: Spearman x 100 on 200
seeded dev pairs of each layer (mean pooling, as a model cut there gives), and the median of seconds a step.
AdaptiveLayerLoss stands there by its default (the last layer and one other, drawn anew in each step) and with every
layer in each step. AlignedLoss of the last layer alone must give the plain loss and its gradients (an error where they
differ by more than 1e-5 of the largest).
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from datasets import Dataset
from scipy.stats import spearmanr
from sentence_transformers import SentenceTransformer, SentenceTransformerTrainer, SentenceTransformerTrainingArguments
from sentence_transformers.losses import AdaptiveLayerLoss, CosineSimilarityLoss  # the one path of 5.x and 6.x
from transformers import TrainerCallback

from layerscope.models.checks import embedded
from layerscope.training import AlignedLoss

LOSSES = {
    "plain": CosineSimilarityLoss,
    "aligned": lambda model: AlignedLoss(CosineSimilarityLoss(model)),
    "adaptive, 1 a step": lambda model: AdaptiveLayerLoss(model, CosineSimilarityLoss(model)),
    "adaptive, all": lambda model: AdaptiveLayerLoss(model, CosineSimilarityLoss(model), n_layers_per_step=-1),
}


class Clock(TrainerCallback):
    """The seconds of each step."""

    def __init__(self) -> None:
        self.seconds: list[float] = []

    def on_step_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Start."""
        self.start = time.perf_counter()

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Stop."""
        self.seconds.append(time.perf_counter() - self.start)


def pairs(data: Path, split: str) -> pd.DataFrame:
    """Return the pairs of a split, scores from 0 to 1."""
    found = pd.read_csv(data / "stsbenchmark" / f"{split}.csv")
    return found.assign(score=found["score"] / 5).rename(columns={"text_a": "sentence1", "text_b": "sentence2"})


@torch.inference_mode()
def by_layer(model: SentenceTransformer, dev: pd.DataFrame) -> list[float]:
    """Return Spearman x 100 of every layer from 1 on."""
    model.eval()
    sides = []
    for column in ("sentence1", "sentence2"):
        texts, found = dev[column], []
        order = texts.str.len().sort_values().index  # batches of like lengths
        for start in range(0, len(order), 64):
            batch = texts[order[start : start + 64]].tolist()
            given = model.tokenizer(batch, padding=True, truncation=True, return_tensors="pt")
            states = torch.stack(model[0].auto_model(**given, output_hidden_states=True).hidden_states[1:])
            mask = given["attention_mask"][None, :, :, None].float()
            found.append((states * mask).sum(2) / mask.sum(2))
        sides.append(torch.cat(found, 1)[:, torch.from_numpy(order.argsort().copy())])
    scores = torch.cosine_similarity(*sides, dim=-1)
    return [100 * float(spearmanr(row.numpy(), dev["score"])[0]) for row in scores]


def trained(name: str, data: pd.DataFrame, steps: int, batch: int, seed: int) -> tuple[SentenceTransformer, float]:
    """Return the model fine-tuned by a loss, and the median of seconds a step."""
    model, clock = SentenceTransformer(embedded("minilm"), device="cpu"), Clock()
    with tempfile.TemporaryDirectory() as folder:
        args = SentenceTransformerTrainingArguments(
            folder, max_steps=steps, per_device_train_batch_size=batch, learning_rate=5e-5, warmup_steps=6, seed=seed,
            report_to="none", use_cpu=True, disable_tqdm=True, save_strategy="no", logging_strategy="no",
        )  # fmt: skip
        rows = Dataset.from_pandas(data[["sentence1", "sentence2", "score"]], preserve_index=False)
        SentenceTransformerTrainer(
            model=model, args=args, train_dataset=rows, loss=LOSSES[name](model), callbacks=[clock]
        ).train()
    return model, statistics.median(clock.seconds)


def check_equal(data: pd.DataFrame) -> None:
    """Raise unless the aligned loss of the last layer alone is the plain loss, with its gradients."""
    model = SentenceTransformer(embedded("minilm"), device="cpu").eval()
    weights: Any = model[0].auto_model
    features = [model.tokenize(data[column].tolist()) for column in ("sentence1", "sentence2")]
    truth = torch.tensor(data["score"].to_numpy(), dtype=torch.float32)
    found = []
    for loss in (
        CosineSimilarityLoss(model),
        AlignedLoss(CosineSimilarityLoss(model), layers=[len(weights.encoder.layer)]),
    ):
        model.zero_grad()
        value = loss([dict(each) for each in features], truth)
        value.backward()
        found.append([value.detach(), *(w.grad.clone() for w in weights.parameters() if w.grad is not None)])
    largest = max(float(each.abs().max()) for each in found[0])
    worst = max(float((a - b).abs().max()) for a, b in zip(*found, strict=True)) / largest
    if not worst < 1e-5:
        raise SystemExit(f"the plain loss and the aligned loss of the last layer differ by {worst:.1e}")


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path(__file__).resolve().parents[2] / "shared" / "data")
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--dev", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    train = pairs(options.data, "train")
    dev = pairs(options.data, "dev").sample(options.dev, random_state=0).reset_index(drop=True)
    check_equal(train[: options.batch])
    shipped = by_layer(SentenceTransformer(embedded("minilm"), device="cpu"), dev)
    print(f"{'loss':20} " + " ".join(f"{f'layer {i}':>8}" for i in range(1, len(shipped) + 1)) + "  s/step", flush=True)
    print(f"{'as shipped':20} " + " ".join(f"{score:8.1f}" for score in shipped), flush=True)
    for name in LOSSES:
        model, seconds = trained(name, train, options.steps, options.batch, options.seed)
        scores = " ".join(f"{score:8.1f}" for score in by_layer(model, dev))
        print(f"{name:20} {scores}  {seconds:6.3f}", flush=True)


if __name__ == "__main__":
    main()
