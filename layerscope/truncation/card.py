"""The model card: what a truncated model is, what it costs and scores, and what it must not be mixed with."""

from collections.abc import Sequence
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path
from typing import Any

from huggingface_hub import ModelCard, ModelCardData
from huggingface_hub.utils import yaml_dump

from layerscope.core import spans
from layerscope.core.hub import CARD
from layerscope.models import is_mean_head
from layerscope.models.whereabouts import Whence
from layerscope.show import escape
from layerscope.truncation.costs import Truncated
from layerscope.truncation.onnx_file import output_of
from layerscope.truncation.source import Source

KEPT = (
    "license",
    "license_name",
    "license_link",
    "language",
    "tags",
    "datasets",
    "pipeline_tag",
    "base_model",
)
"""What a card says of the model that holds at every depth; its results do not."""
PIPELINES = {
    "SentenceTransformer": "sentence-similarity",
    "CrossEncoder": "text-ranking",
    "SparseEncoder": "feature-extraction",
}
"""What the hub calls the work of the classes of sentence-transformers."""


def write_card(kind: str, folder: Path, /, **facts: Any) -> None:
    """Write README.md, Markdown with a YAML head, into the folder of a model, from the template of this kind."""
    (folder / CARD).write_text(
        filled(f"{kind}.md", **facts), encoding="utf-8", errors="replace"
    )


def filled(name: str, /, **facts: Any) -> str:
    """Return a template of a card filled in; `md` escapes what came from data, so that names do nothing in a card."""
    # which takes a while to import
    from jinja2 import Environment, PackageLoader, StrictUndefined

    room = Environment(
        loader=PackageLoader("layerscope.truncation", "cards"),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    room.filters |= {"md": escape, "f": format}
    return room.get_template(name).render(facts)


def describe(source: Source, made: Truncated, folder: Path) -> None:
    """Write the card of a truncated model."""
    # a tokenizer without a pad token takes one text at a time
    pad = getattr(source.model.loaded.processor, "pad_token", None)
    like = f"layer {made.layer} of the full model"
    if made.dropped:
        like = f"that of the full model with {spans(made.dropped, 'block')} bypassed"
    if made.mix:
        like = f"the mix of the full model's {made.mix}"
    if made.healed:
        like = "that of the healed model"
    output = ""
    if made.format == "onnx":
        output = output_of(folder)
    write_card(
        "truncated",
        folder,
        head=_head(source, made),
        made=made,
        source=source,
        like=like,
        mean=made.format == "transformers" and is_mean_head(source.module.config),
        version=version("layerscope"),
        alone=source.unit == "text" and pad is None,
        output=output,
    )


def head(
    whence: Whence,
    library: str,
    pipeline: str | None,
    tags: Sequence[str],
    *,
    same: bool = True,
) -> str:
    """Return the YAML head of a model's card: what its source's card says that still holds, and what this model is.

    `whence` is what `whereabouts` says of the source; with `same` the model does what its source
    did, whose pipeline then goes first.
    """
    hub, beside = whence
    kept = _kept_of(beside)
    if same:
        pipeline = kept.get("pipeline_tag") or pipeline
    every = [*kept.pop("tags", []), "layerscope", *tags]
    tags = [*dict.fromkeys(every)]
    fields = {**kept, "library_name": library, "pipeline_tag": pipeline, "tags": tags}
    if base := hub or kept.get("base_model"):
        # the hub's word for other weights or depth
        fields |= {"base_model": base, "base_model_relation": "finetune"}
    yaml = yaml_dump(
        ModelCardData(**fields).to_dict(), sort_keys=False, allow_unicode=False
    )
    return str(yaml).strip()


def _kept_of(beside: Path | None) -> dict[str, Any]:
    """Return what the source's card says of the model at every depth."""
    if beside is None:
        return {}
    with suppress(Exception):  # none, or written by hand, and broken in as many ways
        card = ModelCard.load(beside / CARD, ignore_metadata_errors=True)
        theirs = card.data.to_dict()
        return {key: theirs[key] for key in KEPT if theirs.get(key)}
    return {}


def pipeline_of(auto: str) -> str | None:
    """Return what transformers and the hub call the work of a class, None where they have no word for it."""
    from transformers.pipelines import SUPPORTED_TASKS as TASKS

    for task, about in TASKS.items():
        if auto in [kind.__name__ for kind in about["pt"]]:
            return str(task)
    return None


def _head(source: Source, made: Truncated) -> str:
    """Return the head of a truncated model's card: without a head of its own it gives states, whatever its source."""
    served = made.format == "sentence-transformers"
    headless = made.auto == "AutoModel" and not served
    pipeline = pipeline_of(made.auto)
    if is_mean_head(source.module.config):
        pipeline = "text-classification"
    if served:
        pipeline = PIPELINES[source.model.loaded.wrapper]
    elif headless and source.unit == "image":
        pipeline = f"image-{pipeline}"
    library = {"onnx": "onnxruntime"}.get(made.format, made.format)
    whence = source.hub, source.beside
    return head(whence, library, pipeline, ["truncated"], same=not headless)
