"""The model card: what a truncated model is, what it costs and scores, and what it must not be mixed with."""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path

from huggingface_hub.utils import yaml_dump

from layerscope.core.errors import spans
from layerscope.models.mean_head import is_mean_head
from layerscope.show.plain import escape
from layerscope.truncation.figures import Truncated
from layerscope.truncation.mixing import mix_in_words
from layerscope.truncation.onnx_file import SENTENCE, output_of
from layerscope.truncation.source import Source, card_head

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
    "onnx": """import numpy as np
import onnxruntime
import transformers
{imports}
folder = "path/to/this/folder"
processor = transformers.{reader}.from_pretrained(folder)
session = onnxruntime.InferenceSession(f"{{folder}}/model.onnx")
batch = processor({given}, return_tensors="np")
{output} = session.run(["{output}"], {{entry.name: batch[entry.name] for entry in session.get_inputs()}})[0]
{after}""",
}
GIVEN = {
    "text": '["a text", "another, which is longer"], padding=True, truncation=True',
    "image": '[Image.open("picture.png").convert("RGB")]',
    "audio": "[np.zeros(16000, dtype=np.float32)], sampling_rate=16000",
}
AFTER = {
    "mean": """mask = batch["attention_mask"][..., None]
vectors = ({output} * mask).sum(1) / mask.sum(1)""",
    "cls": "vectors = {output}[:, 0]",
    "last": """last = batch["attention_mask"].shape[1] - 1 - batch["attention_mask"][:, ::-1].argmax(1)
vectors = {output}[np.arange(len(last)), last]""",
}
"""What makes one vector a sample of the states of its tokens."""
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
    """Write README.md, Markdown with a YAML head, into the folder of a truncated model; names do nothing in it."""
    name, stack, loaded = escape(made.model), source.model.stack, source.model.loaded
    named = stack.part if len(source.model.parts) > 1 else stack.entry
    part = f", part {escape(named)}" if named else ""
    at = f" at revision {escape(str(loaded.revision))}" if loaded.revision else ""
    where = "before" if made.site == "raw" else "after"
    title, is_like = f"{name}, layer {made.layer} of {made.depth}", f"layer {made.layer} of the full model"
    what = f"The first {made.layer} of {made.depth} blocks of {name}{part}{at}"
    if made.dropped:
        title, is_like = f"{name} {made.cut}", f"that of the full model with {spans(made.dropped, 'block')} bypassed"
        what = f"{name}{part}{at} {made.cut}; what is left was not trained since, and `layerscope train` heals it"
    if source.mix is not None:
        is_like = f"the mix of the full model's {mix_in_words(source.mix)}"
    gives = f"Its output is {is_like}"
    gives += "" if stack.norm is None else f", {where} the final norm ({escape(stack.norm)})"
    gives += "" if source.dim is None else f", at the first {source.dim} dimensions of its vectors"
    modality = source.model.encoder.modality
    # a tokenizer without a pad token takes one text at a time
    alone = modality == "text" and getattr(loaded.processor, "pad_token", None) is None
    output = output_of(Path(made.path)) if made.format == "onnx" else ""
    loads = LOADS[made.format].format(
        auto=made.auto, reader=READERS[modality], imports="from PIL import Image\n" * (modality == "image"),
        given='["a text"]' if alone else GIVEN[modality], output=output, after=_after(source, output),
    )  # fmt: skip
    held = f"{escape(str(made.data))} ({made.samples or 0:,} samples"
    scored = f"{made.scored.capitalize()}: through the trained head, on {held})."
    if source.run is not None:
        pooling = escape(source.run.info["pooling"][0])
        scored = f"Linear probe: cross-validated accuracy on the labels of {held}, {pooling} pooling)."
    scores = "" if made.score is None else f"\n\n{scored}"
    score = f"\n| {made.scored} | {made.shown()} | {made.shown(full=True)} |" if made.score is not None else ""
    card = f"""---
{_head(source, made)}
---

# {title}
{MEAN if made.format == "transformers" and is_mean_head(source.module.config) else ""}
{what}. {gives}.

> {WARNING}

| | this model | the full model |
| --- | --- | --- |
| parameters | {made.parameters:,} | {made.full_parameters:,} |
| MB of weights | {made.megabytes:,.1f} | {made.full_megabytes:,.1f} |
| ms per {source.unit} | {made.milliseconds:.2f} | {made.full_milliseconds:.2f} |
| speed | {made.speedup:.2f} × (by its operations {made.ideal:.2f} ×) | 1 × |{score}

Speed: {escape(made.measured)}.{scores}

## Use

```python
{loads}
```

Written by layerscope {escape(version("layerscope"))}; loaded again and compared with {is_like} \
before it was named: the largest difference is {made.difference:.1g}, in {made.dtype}.
"""
    (folder / "README.md").write_text(card, encoding="utf-8", errors="replace")


def _head(source: Source, made: Truncated) -> str:
    """The YAML head: what the full model's card says that holds at every depth, and what this model is."""
    kept = card_head(source.beside)
    base = {"base_model": source.hub} if source.hub is not None else {}
    tags = dict.fromkeys([*kept.pop("tags", []), "layerscope", "truncated"])
    library = {"onnx": "onnxruntime"}.get(made.format, made.format)
    head = {**kept, **base, "library_name": library, "tags": [*tags]}
    if "base_model" in head:
        head["base_model_relation"] = "finetune"  # the hub's word for a model of other weights or depth
    return str(yaml_dump(head, sort_keys=False, allow_unicode=False)).strip()


def _after(source: Source, output: str) -> str:
    """What a call of the ONNX file ends with: its output is a sentence's vector, a head's logits, or states to pool."""
    if "logits" in output:
        return f"best = {output}.argmax(-1)"
    if output == "last_hidden_state" and source.unit == "text":
        return AFTER.get(source.pooled_by, AFTER["mean"]).format(output=output)
    if output == SENTENCE:
        return f"vectors = {output}"
    return f"print({output}.shape)"
