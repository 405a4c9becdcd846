"""The model card: what a truncated model is, what it costs and scores, and what it must not be mixed with."""

from collections.abc import Sequence
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path
from typing import Any

from huggingface_hub import EvalResult, ModelCard, ModelCardData
from huggingface_hub.utils import yaml_dump

from layerscope.core.errors import spans
from layerscope.core.hub import CARD
from layerscope.models.mean_head import is_mean_head
from layerscope.show.plain import escape
from layerscope.truncation.figures import Truncated
from layerscope.truncation.mixing import mix_in_words
from layerscope.truncation.onnx_file import SENTENCE, output_of
from layerscope.truncation.source import KEPT, Source, Whence

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


def head(
    whence: Whence, library: str, pipeline: str | None, tags: Sequence[str],
    name: str, score: tuple[str, float | None, str], *, datasets: Sequence[str] = (), same: bool = True,
    task: str | None = None,
) -> str:  # fmt: skip
    """Return the YAML head of a model's card: what its source's card says that still holds, and what this model is.

    `whence` is what `whereabouts` says of the source, `score` a metric, its value and its data, of another `task` where
    one is named; with `same` the model does what its source did, whose pipeline then goes first.
    """
    hub, beside = whence
    kept: dict[str, Any] = {}
    with suppress(Exception):  # none, or written by hand, and broken in as many ways
        theirs = ModelCard.load(Path(beside or "") / CARD, ignore_metadata_errors=True).data.to_dict()
        kept = {key: theirs[key] for key in KEPT if theirs.get(key)}
    pipeline = kept.get("pipeline_tag") or pipeline if same else pipeline
    tags = [*dict.fromkeys([*kept.pop("tags", []), "layerscope", *tags])]
    found = {**kept, "library_name": library, "pipeline_tag": pipeline, "tags": tags}
    if datasets:
        own = kept.get("datasets") or []
        found["datasets"] = [*dict.fromkeys([*([own] if isinstance(own, str) else own), *datasets])]
    if base := hub or kept.get("base_model"):
        found |= {"base_model": base, "base_model_relation": "finetune"}  # the hub's word for other weights or depth
    metric, value, data = score
    if value is not None and pipeline is not None:
        kind = {"perplexity": "perplexity", "pair_spearman": "spearmanr"}.get(metric, "accuracy")
        result = EvalResult(task or pipeline, data, data, kind, round(value, 4), metric_name=metric)
        found |= {"model_name": name, "eval_results": [result]}
    return str(yaml_dump(ModelCardData(**found).to_dict(), sort_keys=False, allow_unicode=False)).strip()


def pipeline_of(auto: str) -> str | None:
    """Return what transformers and the hub call the work of a class, None where they have no word for it."""
    from transformers.pipelines import SUPPORTED_TASKS as TASKS

    return next((task for task, about in TASKS.items() if auto in [kind.__name__ for kind in about["pt"]]), None)


def _head(source: Source, made: Truncated) -> str:
    """Return the head of a truncated model's card: without a head of its own it gives states, whatever its source."""
    served = made.format == "sentence-transformers"
    headless = made.auto == "AutoModel" and not served
    auto = "AutoModelForSequenceClassification" if is_mean_head(source.module.config) else made.auto
    pipeline = "sentence-similarity" if served else pipeline_of(auto)
    pipeline = f"image-{pipeline}" if headless and source.unit == "image" else pipeline
    library = {"onnx": "onnxruntime"}.get(made.format, made.format)
    score, name = (made.scored, made.score, str(made.data)), f"{made.model} {made.cut}"
    task = f"{source.model.encoder.modality}-classification" if made.scored == "linear probe" else None
    return head(
        (source.hub, source.beside), library, pipeline, ["truncated"], name, score, same=not headless, task=task
    )


def _after(source: Source, output: str) -> str:
    """What a call of the ONNX file ends with: its output is a sentence's vector, a head's logits, or states to pool."""
    if "logits" in output:
        return f"best = {output}.argmax(-1)"
    if output == "last_hidden_state" and source.unit == "text":
        return AFTER.get(source.pooled_by, AFTER["mean"]).format(output=output)
    if output == SENTENCE:
        return f"vectors = {output}"
    return f"print({output}.shape)"
