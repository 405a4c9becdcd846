"""MiniLM-L6 on SST-2, a mean-pooled linear head shared by all layers: aligned training against standard training.

    python examples/minilm_sst2.py --data ../shared/data/sst2 [--out runs/minilm-sst2] [--seeds 3]

24,000 sentences, one epoch. Asked: layers 1 to 3 of aligned are on average at least 8 points above
standard's, its last layer within one point.
"""

from __future__ import annotations

import pandas as pd
from grid import arguments, run, show, verdict

SENTENCES = 24_000


def main() -> None:
    """Run the recipe."""
    given = arguments(__doc__ or "", "runs/minilm-sst2", data="../shared/data/sst2")
    given.out.mkdir(parents=True, exist_ok=True)
    train = given.out / "train.csv"
    pd.read_csv(given.data / "train.csv").sample(SENTENCES, random_state=0).to_csv(
        train, index=False
    )
    command = [
        "minilm",
        "--train",
        str(train),
        "--eval",
        str(given.data / "dev.csv"),
        "--head",
        "mean",
        "--epochs",
        "1",
        "--batch-size",
        "32",
        "--learning-rate",
        "5e-5",
        "--max-length",
        "64",
        "--eval-every",
        "250",
    ]
    objectives = {
        "standard": ["--objective", "standard"],
        "aligned": ["--objective", "aligned"],
    }
    table = run(given, command, objectives, "layer_accuracy")
    show(table, lambda share: f"{100 * share:.1f}")
    gained = 100 * (table["aligned"] - table["standard"])
    shallow = gained.loc[1:3].mean()
    verdict(
        "layers 1-3, aligned - standard in points, at least 8",
        list(shallow),
        shallow.mean() >= 8,
    )
    last = gained.iloc[-1]
    verdict(
        "last layer, aligned - standard in points, from -1 on",
        list(last),
        last.mean() >= -1,
    )


if __name__ == "__main__":
    main()
