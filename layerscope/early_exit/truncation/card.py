"""The model card: what a truncated model is, what it costs and scores, and what it must not be mixed with."""

from __future__ import annotations

import json
import string
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from layerscope.early_exit.truncation.figures import Truncated
from layerscope.early_exit.truncation.source import Source
from layerscope.models.mean_head import is_mean_head

WARNING = (
    "**Its vectors are not comparable with the full model's.** Layers speak different languages: an index, a cache or "
    "a threshold made with vectors of the full model, or of another layer, must be rebuilt with this one."
)
LOADS = {
    "transformers": (
        "import transformers\n\n"
        'model = transformers.{auto}.from_pretrained("path/to/this/folder")\n'
        'processor = transformers.{reader}.from_pretrained("path/to/this/folder")'
    ),
    "sentence-transformers": (
        "from sentence_transformers import SentenceTransformer\n\n"
        'model = SentenceTransformer("path/to/this/folder")\n'
        'vectors = model.encode(["a text", "another"])'
    ),
    "onnx": 'import onnxruntime\n\nsession = onnxruntime.InferenceSession("path/to/this/folder/model.onnx")',
}
MEAN = """
**Read it so.** Its head reads the mean of the tokens, which transformers has no class for, so it is kept as a token
classifier, with a pipeline that takes the mean (mean_pipeline.py, a dozen lines of code):

```python
from transformers import pipeline

classify = pipeline("text-classification", model="path/to/this/folder", trust_remote_code=True)
```

Without that code, a text's logits are the mean of its tokens' logits over the attention mask:

```python
batch = processor(["a text", "another"], padding=True, return_tensors="pt")
mask = batch["attention_mask"].unsqueeze(-1)
logits = (model(**batch).logits * mask).sum(1) / mask.sum(1)
```

`AutoModelForSequenceClassification` would read the first token through weights that were never trained, and answer at
random: an empty weight in the checkpoint keeps it from loading.
"""
READERS = {"text": "AutoTokenizer", "image": "AutoImageProcessor", "audio": "AutoFeatureExtractor"}


def write_card(source: Source, made: Truncated, folder: Path) -> None:
    """Write README.md into the folder of a truncated model."""
    (folder / "README.md").write_text(render(source, made), encoding="utf-8", errors="replace")


def render(source: Source, made: Truncated) -> str:
    """Return the card as Markdown with its YAML head; every name stands in it as it is and does nothing."""
    name, stack = escape(made.model), source.model.stack
    named = stack.part if len(source.model.parts) > 1 else stack.entry
    part = f", part {escape(named)}" if named else ""
    loads = LOADS[made.format].format(auto=made.auto, reader=READERS[source.model.encoder.modality])
    return f"""---
{_head(source, made)}
---

# {name}, layer {made.layer} of {made.depth}
{MEAN if made.format == "transformers" and is_mean_head(source.module.config) else ""}
The first {made.layer} of {made.depth} blocks of {name}{part}. {_output(source, made)}

> {WARNING}

{_table(source, made)}

Speed: {escape(made.measured)}.{_scores(source, made)}

## Use

```python
{loads}
```

Written by layerscope {escape(_version())}; loaded again and compared with the full model's layer before it was named.
"""


def escape(text: str) -> str:
    """Return a text in one line that Markdown and HTML show as it is."""
    line = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
    return "".join(_ENTITIES.get(c) or (f"\\{c}" if c in _MARKS else c) for c in line)


_ENTITIES = {"<": "&lt;", ">": "&gt;", "&": "&amp;"}
_MARKS = frozenset(string.punctuation) - frozenset("<>&.,:;%/'\"()-=+?")


def _head(source: Source, made: Truncated) -> str:
    """The YAML head; texts of JSON are texts of YAML, whatever they hold."""
    base = [f"base_model: {json.dumps(source.hub)}"] if source.hub is not None else []
    library = {"onnx": "onnxruntime"}.get(made.format, made.format)
    return "\n".join([*base, f"library_name: {library}", "tags:", "- layerscope", "- truncated"])


def _output(source: Source, made: Truncated) -> str:
    norm = source.model.stack.norm
    if norm is None:
        return f"Its output is layer {made.layer} of the full model."
    where = "before" if made.site == "raw" else "after"
    return f"Its output is layer {made.layer} of the full model, {where} the final norm ({escape(norm)})."


def _table(source: Source, made: Truncated) -> str:
    rows = [
        ("parameters", f"{made.parameters:,}", f"{made.full_parameters:,}"),
        ("MB of weights", f"{made.megabytes:,.1f}", f"{made.full_megabytes:,.1f}"),
        (f"ms per {source.unit}", f"{made.milliseconds:.2f}", f"{made.full_milliseconds:.2f}"),
        ("speed", f"{made.speedup:.2f} × (by its operations {made.ideal:.2f} ×)", "1 ×"),
    ]
    if made.score is not None:
        rows.append((made.scored, made.shown(), made.shown(full=True)))
    lines = ["| | this model | the full model |", "| --- | --- | --- |"]
    return "\n".join([*lines, *(f"| {what} | {escape(here)} | {escape(full)} |" for what, here, full in rows)])


def _scores(source: Source, made: Truncated) -> str:
    if made.score is None or made.data is None:
        return ""
    held = f"{escape(made.data)} ({made.samples:,} samples"
    if source.run is None:
        return f"\n\n{made.scored.capitalize()}: through the trained head, on {held})."
    pooling = source.run.info["pooling"][0]
    return f"\n\nLinear probe: cross-validated accuracy on the labels of {held}, {escape(pooling)} pooling)."


def _version() -> str:
    try:
        return version("layerscope")
    except PackageNotFoundError:
        return "unknown"
