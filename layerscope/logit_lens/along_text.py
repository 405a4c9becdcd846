"""How depth is used along a text: by thirds of what a model wrote, while it thinks and while it answers.

Of a text with seven new tokens, in which the chat template's marks enclose what is thought:

    token   <think>  2     +         2         </think>  4       .
    third   start    start start     middle    middle    end     end
    phase   answer   thinking                  thinking  answer  answer

A token is thought if the last mark before it opens: the closing mark is, the opening one is not. Where a text
has a closing mark alone, its template has opened the thinking before the first token.
"""

import math
from collections.abc import Iterator, Sequence
from itertools import chain

import pandas as pd

from layerscope.core.margin import differs, error_of
from layerscope.show.document import Column, Section, Table
from layerscope.show.numbers import error, percent
from layerscope.show.plots import Axis, Chart, Meaning

THIRDS = ("start", "middle", "end")
ALL = "all"
PART_COLUMNS = {
    **dict.fromkeys(THIRDS, "third"), "thinking": "phase", "answer": "phase"
}  # fmt: skip
"""The parts of a text, and the column of `Reading.saturation` that names each."""
MARKS = (
    ("<think>", "</think>"),
    ("[THINK]", "[/THINK]"),
    ("<|channel|>analysis", "<|channel|>final"),
)
"""What opens and closes thinking, by the chat templates of DeepSeek and Qwen, of Mistral, and of gpt-oss."""
PARTS = {
    "part": "object", "n": "int64", "layer": "float64", "stderr": "float64", "early": "float64",
}  # fmt: skip
ENTROPY = {
    "part": "object", "layer": "int64", "n": "int64", "entropy": "float64", "stderr": "float64",
}  # fmt: skip
SURE = "How sure each layer is of what it predicts, right or wrong, and where tokens settle on average."
PARTED = "Thirds are of each text's new tokens; thinking and answer are set apart by the chat template's marks."
UNSURE = Meaning(
    "Entropy of each layer's predictions in nats, mean over tokens: 0 is certain, the logarithm of the vocabulary "
    "blind guessing.",
    "Low: the layer is sure of its prediction, right or wrong.",
    "nostalgebraist 2020, interpreting GPT: the logit lens",
)


def thirds(n: int) -> list[str]:
    """Return the third of a text that each of its n tokens is in.

    >>> thirds(4)
    ['start', 'start', 'middle', 'end']
    """
    return [THIRDS[3 * i // n] for i in range(n)]


def at_equal_length(
    saturation: pd.DataFrame, others: Sequence[pd.DataFrame]
) -> pd.DataFrame:
    """Return the table with as many tokens of each text `counted` as in the shortest of the tables.

    Thirds are those of what is left.
    """
    lengths = [
        table.loc[table["counted"], "sample"].value_counts()
        for table in (saturation, *others)
    ]
    shortest = pd.concat(lengths, axis=1).fillna(0).min(axis=1)
    rows = saturation[saturation["counted"]]
    is_kept = rows.groupby("sample").cumcount() < rows["sample"].map(shortest)
    kept = rows[is_kept]
    cut = saturation.assign(counted=saturation.index.isin(kept.index))
    sizes = kept.groupby("sample", sort=False).size()
    cut.loc[kept.index, "third"] = [*chain(*map(thirds, sizes))]
    return cut


def phases(pieces: Sequence[str]) -> list[str | None]:
    """Return whether each piece of a text is thinking or answer, None for all of a text without marks.

    >>> phases(["so", "</think>", "four"])
    ['thinking', 'thinking', 'answer']
    """
    text = "".join(pieces)
    for opening, closing in MARKS:
        opens = text.find(opening)
        closes = text.find(closing)
        if opens < 0 and closes < 0:
            continue
        before = ""
        if opens < 0 or 0 <= closes < opens:
            before = opening
        named = list[str | None]()
        for piece in pieces:
            thinks = before.rfind(opening) > before.rfind(closing)
            named.append("thinking" if thinks else "answer")
            before += piece
        return named
    return [None] * len(pieces)


def error_by_text(rows: pd.DataFrame, column: str) -> float:
    """Return the standard error of a column's mean, for texts drawn anew; NaN for one text."""
    texts = pd.factorize(rows["sample"])[0]
    if texts.max() < 1:
        return math.nan
    return error_of(rows[column].to_numpy(dtype=float), texts)


def parts_of(counted: pd.DataFrame) -> Iterator[tuple[str, pd.DataFrame]]:
    """Yield the tokens that count, a row for each, and those of each part of the text that has any."""
    yield ALL, counted
    for part, column in PART_COLUMNS.items():
        rows = counted[counted[column] == part]
        if len(rows):
            yield part, rows


def settling(counted: pd.DataFrame, depth: int) -> pd.DataFrame:
    """Return a row for each part: its tokens, the layer at which they settle, the share of early ones."""
    rows = []
    for part, tokens in parts_of(counted):
        layers = tokens["layer"]
        stderr = error_by_text(tokens, "layer")
        rows.append((part, len(tokens), layers.mean(), stderr, (layers < depth).mean()))
    return pd.DataFrame(rows, columns=[*PARTS])


def entropies(counted: pd.DataFrame, grid: pd.DataFrame) -> pd.DataFrame:
    """Return a row for each part and layer: the mean entropy of that layer's predictions."""
    columns = ["sample", "position", "layer", "entropy"]
    by_token = grid.loc[grid["rank"] == 1, columns]
    rows = []
    for part, tokens in parts_of(counted):
        read = tokens[["sample", "position"]].merge(by_token)
        for layer, at in read.groupby("layer"):
            mean = at["entropy"].mean()
            rows.append((part, layer, len(at), mean, error_by_text(at, "entropy")))
    return pd.DataFrame(rows, columns=[*ENTROPY])


def findings(counted: pd.DataFrame) -> Iterator[str]:
    """Yield in sentences whether tokens settle later at the end of texts than at their start, and in answers."""
    parts = dict(parts_of(counted))
    for first, last in (("start", "end"), ("thinking", "answer")):
        if first not in parts or last not in parts:
            continue
        before = parts[first]
        after = parts[last]
        means = before["layer"].mean(), after["layer"].mean()
        change = float(means[1] - means[0])
        # one text may hold tokens of both: what it adds to the difference is one term
        terms = [
            (before["layer"] - means[0]) / -len(before),
            (after["layer"] - means[1]) / len(after),
        ]
        both = pd.concat([before, after]).assign(term=pd.concat(terms))
        stderr = error_by_text(both, "term") * len(both)
        how = "later" if change > 0 else "earlier"
        if differs(change, stderr) is False:
            how = "equally deep, as far as these texts show"
        shown = f"{change:+.2f} {error(stderr)}".rstrip()
        yield (
            f"{last.capitalize()} against {first}: tokens settle {how}, at layer {means[1]:.2f} against "
            f"{means[0]:.2f} ({shown})."
        )


def tables(parts: pd.DataFrame, by_layer: pd.DataFrame) -> tuple[Table, Table]:
    """Return where tokens settle, a row for each part, and the entropy, a column for each."""
    settle = [
        Column("part", "left", field="part"),
        Column("tokens", field="n", form="{:,}".format),
        Column("settle at layer", field="layer", form="{:.2f}".format),
        Column("before the last", field="early", form=percent),
    ]
    if parts["stderr"].notna().any():
        settle.insert(3, Column("±", field="stderr", form=error))
    wide = by_layer.pivot(index="layer", columns="part", values="entropy").reset_index()
    entropy = [Column(part, field=part, form="{:.2f}".format) for part in parts["part"]]
    columns = [Column("layer", field="layer"), *entropy]
    return (
        Table.of(parts, settle, "Where tokens settle", name="settled-by-part"),
        Table.of(wide, columns, "Entropy by layer (nats)", name="entropy-by-layer"),
    )


def section(
    by_part: tuple[Table, Table], by_layer: pd.DataFrame, depth: int
) -> Section:
    """Return what `tables` gives, and the entropy drawn by layer."""
    last = by_layer[by_layer["layer"] == depth].set_index("part")["entropy"]
    chart = Chart.of(
        by_layer.drop(columns="n"),
        ("layer", Axis("layer", whole=True, depth=depth)),
        ("entropy", Axis("entropy (nats)")),
        by="part",
        error="stderr",
        title="Entropy by layer",
        summary=f"{last[ALL]:.2f} nats at the last layer",
        about=UNSURE,
        unit="nats",
        name="lens_entropy",
        overlaid=True,
    )
    title = "How sure each layer is"
    lead = SURE
    if len(by_part[0].rows) > 1:
        title = "Along the text"
        lead = f"{SURE} {PARTED}"
    return Section("along", title, lead, (chart, *by_part))
