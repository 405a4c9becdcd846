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
from layerscope.truncation.costs import Truncated
from layerscope.truncation.mixing import mix_in_words
from layerscope.truncation.onnx_file import output_of
from layerscope.truncation.source import KEPT, Source, Whence


def write_card(kind: str, folder: Path, /, **facts: Any) -> None:
    """Write README.md, Markdown with a YAML head, into the folder of a model, from the template of this kind."""
    (folder / CARD).write_text(filled(f"{kind}.md", **facts), encoding="utf-8", errors="replace")


def filled(name: str, /, **facts: Any) -> str:
    """Return a template of a card filled in; `md` escapes what came from data, so that names do nothing in a card."""
    from jinja2 import Environment, PackageLoader, StrictUndefined  # which takes a while to import

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
    stack, loaded, modality = source.model.stack, source.model.loaded, source.model.encoder.modality
    like = f"layer {made.layer} of the full model"
    if made.dropped:
        like = f"that of the full model with {spans(made.dropped, 'block')} bypassed"
    if source.mix is not None:
        like = f"the mix of the full model's {mix_in_words(source.mix)}"
    write_card(
        "truncated",
        folder,
        head=_head(source, made),
        made=made,
        name=escape(made.model),
        like=like,
        norm=stack.norm,
        part=stack.part if len(source.model.parts) > 1 else stack.entry,
        revision=str(loaded.revision or ""),
        mean=made.format == "transformers" and is_mean_head(source.module.config),
        unit=source.unit,
        probed="" if source.run is None else source.run.info["pooling"][0],
        version=version("layerscope"),
        format=made.format,
        auto=made.auto,
        modality=modality,
        pooled_by=source.pooled_by,
        # a tokenizer without a pad token takes one text at a time
        alone=modality == "text" and getattr(loaded.processor, "pad_token", None) is None,
        output=output_of(Path(made.path)) if made.format == "onnx" else "",
    )


def head(
    whence: Whence,
    library: str,
    pipeline: str | None,
    tags: Sequence[str],
    name: str,
    score: tuple[str, float | None, str],
    *,
    datasets: Sequence[str] = (),
    same: bool = True,
    task: str | None = None,
) -> str:
    """Return the YAML head of a model's card: what its source's card says that still holds, and what this model is.

    `whence` is what `whereabouts` says of the source, `score` a metric, its value and its data, of
    another `task` where one is named; with `same` the model does what its source did, whose
    pipeline then goes first.
    """
    hub, beside = whence
    kept: dict[str, Any] = {}
    with suppress(Exception):  # none, or written by hand, and broken in as many ways
        theirs = ModelCard.load(
            Path(beside or "") / CARD, ignore_metadata_errors=True
        ).data.to_dict()
        kept = {key: theirs[key] for key in KEPT if theirs.get(key)}
    pipeline = kept.get("pipeline_tag") or pipeline if same else pipeline
    tags = [*dict.fromkeys([*kept.pop("tags", []), "layerscope", *tags])]
    found = {**kept, "library_name": library, "pipeline_tag": pipeline, "tags": tags}
    if datasets:
        own = kept.get("datasets") or []
        found["datasets"] = [*dict.fromkeys([*([own] if isinstance(own, str) else own), *datasets])]
    if base := hub or kept.get("base_model"):
        found |= {
            "base_model": base,
            "base_model_relation": "finetune",
        }  # the hub's word for other weights or depth
    metric, value, data = score
    if value is not None and pipeline is not None:
        kind = {"perplexity": "perplexity", "pair_spearman": "spearmanr"}.get(metric, "accuracy")
        result = EvalResult(task or pipeline, data, data, kind, round(value, 4), metric_name=metric)
        found |= {"model_name": name, "eval_results": [result]}
    return str(
        yaml_dump(ModelCardData(**found).to_dict(), sort_keys=False, allow_unicode=False)
    ).strip()


def pipeline_of(auto: str) -> str | None:
    """Return what transformers and the hub call the work of a class, None where they have no word for it."""
    from transformers.pipelines import SUPPORTED_TASKS as TASKS

    return next(
        (task for task, about in TASKS.items() if auto in [kind.__name__ for kind in about["pt"]]),
        None,
    )


def _head(source: Source, made: Truncated) -> str:
    """Return the head of a truncated model's card: without a head of its own it gives states, whatever its source."""
    served = made.format == "sentence-transformers"
    headless = made.auto == "AutoModel" and not served
    auto = "AutoModelForSequenceClassification" if is_mean_head(source.module.config) else made.auto
    pipeline = "sentence-similarity" if served else pipeline_of(auto)
    pipeline = f"image-{pipeline}" if headless and source.unit == "image" else pipeline
    library = {"onnx": "onnxruntime"}.get(made.format, made.format)
    score, name = (made.scored, made.score, str(made.data)), f"{made.model} {made.cut}"
    task = (
        f"{source.model.encoder.modality}-classification" if made.scored == "linear probe" else None
    )
    return head(
        (source.hub, source.beside),
        library,
        pipeline,
        ["truncated"],
        name,
        score,
        same=not headless,
        task=task,
    )
