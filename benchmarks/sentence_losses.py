"""MiniLM-L6 fine-tuned on STS-B to be cut at any layer and any number of dimensions: six losses and a separate model.

    python benchmarks/sentence_losses.py [--data ../shared/data] [--steps 24] [--batch 8] [--dev
    300] [--seeds 3]

CoSENTLoss on the same batches of training pairs for all, AdamW at 1e-4, seeds 0, 1, 2. Printed,
means over the seeds: Spearman x 100 on seeded dev pairs of each layer (mean pooling, as a model cut
there gives) at each prefix of its embedding, and seconds of CPU time: the median of a step, and of
the training. The losses of sentence-transformers stand there by their defaults (the last layer and
another one, drawn anew in each step; of dims one), Matryoshka2dLoss also with all of them in each
step. `separate` is a model of three layers, trained by itself (MatryoshkaLoss). At the end the
differences of AlignedLoss with dims to each, paired by seed, with their standard errors.
AlignedLoss of the last layer alone must give the plain loss and its gradients (an error where they
differ by more than 1e-5 of the largest).
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from datasets import Dataset
from scipy.stats import spearmanr
from sentence_transformers import (
    SentenceTransformer,
    SentenceTransformerTrainer,
    SentenceTransformerTrainingArguments,
)
from sentence_transformers.losses import (  # the one path of 5.x and 6.x
    AdaptiveLayerLoss,
    CoSENTLoss,
    Matryoshka2dLoss,
    MatryoshkaLoss,
)
from transformers import TrainerCallback

from layerscope.models.checks import embedded
from layerscope.training import AlignedLoss

DIMS = [32, 64, 128, 384]
OURS = "AlignedLoss, dims"
LOSSES: dict[str, Callable[[Any], Any]] = {
    "plain": CoSENTLoss,
    "AlignedLoss": lambda model: AlignedLoss(CoSENTLoss(model)),
    OURS: lambda model: AlignedLoss(CoSENTLoss(model), dims=DIMS[:-1]),
    "AdaptiveLayerLoss": lambda model: AdaptiveLayerLoss(model, CoSENTLoss(model)),
    "Matryoshka2dLoss": lambda model: Matryoshka2dLoss(model, CoSENTLoss(model), DIMS),
    "Matryoshka2dLoss, all": lambda model: Matryoshka2dLoss(
        model, CoSENTLoss(model), DIMS, n_layers_per_step=-1, n_dims_per_step=-1
    ),
}
RIVALS = (3,)


class Clock(TrainerCallback):
    """The seconds of CPU time of each step: other jobs do not count."""

    def __init__(self) -> None:
        self.seconds: list[float] = []

    def on_step_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Start."""
        self.start = time.process_time()

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Stop."""
        self.seconds.append(time.process_time() - self.start)


def pairs(data: Path, split: str) -> pd.DataFrame:
    """Return the pairs of a split, scores from 0 to 1."""
    found = pd.read_csv(data / "stsbenchmark" / f"{split}.csv")
    return found.assign(score=found["score"] / 5).rename(
        columns={"text_a": "sentence1", "text_b": "sentence2"}
    )


@torch.inference_mode()
def by_layer(model: SentenceTransformer, dev: pd.DataFrame) -> np.ndarray[Any, Any]:
    """Return Spearman x 100 of every layer from 1 on at each of `DIMS`."""
    model.eval()
    sides = []
    for column in ("sentence1", "sentence2"):
        texts, found = dev[column], []
        order = texts.str.len().sort_values().index  # batches of like lengths
        for start in range(0, len(order), 64):
            batch = texts[order[start : start + 64]].tolist()
            given = model.tokenizer(
                batch, padding=True, truncation=True, return_tensors="pt"
            )
            states = torch.stack(
                model[0]
                .auto_model(**given, output_hidden_states=True)
                .hidden_states[1:]
            )
            mask = given["attention_mask"][None, :, :, None].float()
            found.append((states * mask).sum(2) / mask.sum(2))
        sides.append(torch.cat(found, 1)[:, torch.from_numpy(order.argsort().copy())])
    cosines = [
        torch.cosine_similarity(*(side[..., :d] for side in sides), dim=-1).numpy()
        for d in DIMS
    ]
    return np.array(
        [
            [100 * float(spearmanr(row, dev["score"])[0]) for row in rows]
            for rows in cosines
        ]
    ).T


def trained(
    build: Callable[[Any], Any],
    data: pd.DataFrame,
    steps: int,
    batch: int,
    seed: int,
    depth: int | None = None,
) -> tuple[SentenceTransformer, list[float]]:
    """Return the model, of so many layers, fine-tuned by a loss, and the seconds of its steps."""
    model, clock = SentenceTransformer(embedded("minilm"), device="cpu"), Clock()
    weights: Any = model[0].auto_model
    weights.encoder.layer = weights.encoder.layer[:depth]
    with tempfile.TemporaryDirectory() as folder:
        args = SentenceTransformerTrainingArguments(
            folder,
            max_steps=steps,
            per_device_train_batch_size=batch,
            learning_rate=1e-4,
            warmup_steps=0.1,
            seed=seed,
            report_to="none",
            use_cpu=True,
            disable_tqdm=True,
            save_strategy="no",
            logging_strategy="no",
        )
        rows = Dataset.from_pandas(
            data[["sentence1", "sentence2", "score"]], preserve_index=False
        )
        SentenceTransformerTrainer(
            model=model,
            args=args,
            train_dataset=rows,
            loss=build(model),
            callbacks=[clock],
        ).train()
    return model, clock.seconds


def check_equal(data: pd.DataFrame) -> None:
    """Raise unless the aligned loss of the last layer alone is the plain loss, with its gradients."""
    model = SentenceTransformer(embedded("minilm"), device="cpu").eval()
    weights: Any = model[0].auto_model
    features = [
        model.tokenize(data[column].tolist()) for column in ("sentence1", "sentence2")
    ]
    truth = torch.tensor(data["score"].to_numpy(), dtype=torch.float32)
    found = []
    for loss in (
        CoSENTLoss(model),
        AlignedLoss(CoSENTLoss(model), layers=[len(weights.encoder.layer)]),
    ):
        model.zero_grad()
        value = loss([dict(each) for each in features], truth)
        value.backward()
        found.append(
            [
                value.detach(),
                *(w.grad.clone() for w in weights.parameters() if w.grad is not None),
            ]
        )
    largest = max(float(each.abs().max()) for each in found[0])
    worst = (
        max(float((a - b).abs().max()) for a, b in zip(*found, strict=True)) / largest
    )
    if not worst < 1e-5:
        raise SystemExit(
            f"the plain loss and the aligned loss of the last layer differ by {worst:.1e}"
        )


def spread(values: np.ndarray[Any, Any]) -> str:
    """Return the mean and the standard error of values by seed."""
    error = values.std(ddof=1) / len(values) ** 0.5 if len(values) > 1 else float("nan")
    return f"{values.mean():+5.1f} ±{error:.1f}"


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--data",
        type=Path,
        default=Path(__file__).resolve().parents[2] / "shared" / "data",
    )
    parser.add_argument("--steps", type=int, default=24)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--dev", type=int, default=300)
    parser.add_argument("--seeds", type=int, default=3)
    options = parser.parse_args()
    train = pairs(options.data, "train")
    dev = (
        pairs(options.data, "dev")
        .sample(options.dev, random_state=0)
        .reset_index(drop=True)
    )
    check_equal(train[: options.batch])
    shipped = by_layer(SentenceTransformer(embedded("minilm"), device="cpu"), dev)
    print(
        f"{'':24} dims "
        + " ".join(f"layer {i}" for i in range(1, len(shipped) + 1))
        + "  s/step  s in all"
    )
    scores: dict[str, list[np.ndarray[Any, Any]]] = {}

    def measure(
        name: str, build: Callable[[Any], Any], depth: int | None = None
    ) -> None:
        """Train with each seed, keep the scores, and print their means."""
        clocks, scores[name] = [], []
        for seed in range(options.seeds):
            model, seconds = trained(
                build, train, options.steps, options.batch, seed, depth
            )
            clocks.append(seconds)
            scores[name].append(by_layer(model, dev))
        step = statistics.median(second for seconds in clocks for second in seconds)
        show(
            name,
            np.mean(scores[name], 0),
            f"{step:8.3f} {statistics.median(map(sum, clocks)):9.1f}",
        )

    def show(name: str, table: np.ndarray[Any, Any], times: str = "") -> None:
        for column, d in reversed([*enumerate(DIMS)]):
            cells = " ".join(f"{score:7.1f}" for score in table[:, column])
            last = d == DIMS[-1]
            print(
                f"{name if last else '':24} {d:4} {cells}{times if last else ''}",
                flush=True,
            )

    show("as shipped", shipped)
    for name, build in LOSSES.items():
        measure(name, build)
    for depth in RIVALS:
        measure(
            f"separate, {depth} layers",
            lambda model: MatryoshkaLoss(model, CoSENTLoss(model), DIMS),
            depth,
        )
    print(
        f"\n{OURS} minus {'':12} last layer, {DIMS[-1]}  all layers, {DIMS[-1]}  last layer, {DIMS[0]}  all cells"
    )
    for name, tables in [
        (name, tables) for name, tables in scores.items() if name != OURS
    ]:
        apart = np.array(scores[OURS])[:, : len(tables[0])] - np.array(tables)
        if name.startswith("separate"):
            apart = apart[:, -1:]
        columns = (
            apart[:, -1, -1],
            apart[:, :, -1].mean(1),
            apart[:, -1, 0],
            apart.mean((1, 2)),
        )
        print(
            f"{name:32} " + "  ".join(f"{spread(column):>13}" for column in columns),
            flush=True,
        )


if __name__ == "__main__":
    main()
