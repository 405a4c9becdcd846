"""The model card of a trained checkpoint."""

from __future__ import annotations

from typing import Any

from layerscope.models.mean_head import is_mean_head
from layerscope.training.data import READS
from layerscope.training.depths import Trained
from layerscope.training.folder import TrainingFolder
from layerscope.truncation.card import MEAN, READERS, escape
from layerscope.truncation.checkpoint import auto_class

IMAGE_PROCESSORS = ("preprocessor_config.json", "processor_config.json")
OBJECTIVES = {
    "standard": "the last layer's loss alone",
    "aligned": "the loss of one shared head at every layer",
    "cosine": "the last layer's loss, and the cosine of every layer to it",
    "cka": "the last layer's loss, and the CKA of every layer to it",
    "classifiers": "a head of its own for every layer, the last one in the checkpoint, the others beside it in "
    "exit_heads.safetensors",
}


def write_card(done: Trained, folder: TrainingFolder, module: Any) -> None:
    """Write README.md into the folder of a trained model."""
    (folder.path / "README.md").write_text(_card(done, folder, module), encoding="utf-8", errors="replace")


def _card(done: Trained, folder: TrainingFolder, module: Any) -> str:
    about, settings = folder.about, folder.about["settings"]
    task, name = settings["task"], escape(about["model"]["name"])
    origin = f"From random weights of {name}'s config" if about["model"]["from_config"] else f"From {name}"
    held = about["data"]["eval"]
    speed = f" Speed: {escape(done.measured)}." if done.measured else ""
    times = {line.layer: "–" if line.ms_per_sample is None else f"{line.ms_per_sample:.2f}" for line in done.own}
    rows = "\n".join(f"| {line.layer} | {line} | {times[line.layer]} |" for line in done.own)
    return f"""---
library_name: transformers
tags:
- layerscope
- {settings["objective"]}
---

# {name}, {task}
{MEAN if is_mean_head(module.config) else ""}
{origin}, trained on {escape(about["data"]["train"]["name"])} for {task} with the objective {settings["objective"]}: \
{OBJECTIVES[settings["objective"]]}. All settings are in training.json.

{escape(done.headline)}.

| layer | {"perplexity" if done.lines[0].metric == "perplexity" else "accuracy"} | ms per sample |
| --- | --- | --- |
{rows}

Scores: {done.own[0].n:,} {"samples" if done.classes else "tokens"} of {escape(held["name"])}.{speed}

## Use

```python
import transformers

model = transformers.{auto_class(module)}.from_pretrained("path/to/this/folder")
{_reading(module, folder, READS.get(task, "text"))}
```
A model that ends at layer K: `layerscope truncate path/to/this/folder --layer K --out small`.
"""


def _reading(module: Any, folder: TrainingFolder, modality: str) -> str:
    """Return the line that makes inputs: by the processor in the folder, or, for images without one, in words."""
    if modality == "image" and not any((folder.path / name).is_file() for name in IMAGE_PROCESSORS):
        size, channels = getattr(module.config, "image_size", 224), getattr(module.config, "num_channels", 3)
        return f"# pixel_values: {channels} channel{'s' * (channels != 1)}, resized to {size}, scaled to -1 ... 1"
    return f'processor = transformers.{READERS[modality]}.from_pretrained("path/to/this/folder")'
