"""Classification of texts, as mteb judges it: logistic regressions on a few samples of each label."""

import numpy as np

from layerscope.core import LayerscopeError
from layerscope.evaluation.table_tasks import Splits, TableKind, class_labels


def train_and_test(
    splits: Splits, samples: int | None, seed: int, source: str
) -> Splits:
    """Return training and test rows, their labels as numbers in the order of the training labels' names.

    One file is split label by label in seeded halves, a label's odd row to train on. Of texts that
    occur several times only the first is kept: the half that is judged holds none that was trained
    on.
    """
    if "train" not in splits:
        rows = splits["test"].drop_duplicates("text")
        draw = np.random.default_rng([seed, 1])
        shuffled = rows.iloc[draw.permutation(len(rows))]
        number = shuffled.groupby("label").cumcount().sort_index()
        trained = number % 2 == 0
        splits = {
            "train": rows[trained].reset_index(drop=True),
            "test": rows[~trained].reset_index(drop=True),
        }
    train = splits["train"]
    test = splits["test"]
    numbers = {label: i for i, label in enumerate(sorted(train["label"].unique()))}
    trained = test["label"].isin(list(numbers))
    if samples is not None:  # the draw may have left no training row of a label
        test = test[trained].reset_index(drop=True)
    elif not trained.all():
        raise LayerscopeError(
            f"{source}: the label {min(test['label'][~trained])!r} of the test rows has no "
            "training row: add some"
        )
    return {
        name: rows.assign(label=rows["label"].map(numbers))
        for name, rows in (("train", train), ("test", test))
    }


KIND = TableKind(
    "classification",
    texts=("text",),
    label="label",
    type="Classification",
    main_score="accuracy",
    category="t2c",
    splits=("train", "test"),
    score="accuracy",
    check=class_labels,
    arrange=train_and_test,
)
