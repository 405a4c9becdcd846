"""One layer of a model as mteb sees an encoder; samples come embedded from a store that all layers share."""

import copy
import warnings
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from layerscope.core.errors import LayerscopeError
from layerscope.evaluation.stored_texts import Floats, TextStates
from layerscope.inputs.media import to_rgb
from layerscope.models import Loaded
from layerscope.probes.mixes import Weights

ROWS_AT_ONCE = 4096


class Serving:
    """What a model's makers put around its transformer: prompts, the modules after the pooling, the similarity.

    Raises `LayerscopeError` for a SentenceTransformer with modules between transformer and pooling.
    """

    def __init__(self, loaded: Loaded) -> None:
        self.served: Any = loaded.served
        self.tail: list[nn.Module] = []
        self.cut: int | None = None
        self.measure = "cosine"
        if self.served is None:
            return
        kinds = [type(child).__name__ for child in self.served]
        if loaded.pooling is None and kinds[1:2] == ["Pooling"]:
            raise LayerscopeError(
                f"{loaded.name} pools in a way of its own: evaluate takes models that pool by mean, cls or last"
            )
        if "Pooling" not in kinds:
            raise LayerscopeError(
                f"{loaded.name} has no pooling: its layers give no vector for a text"
            )
        if kinds[1] != "Pooling":
            raise LayerscopeError(
                f"{loaded.name} has a {kinds[1]} between transformer and pooling"
            )
        _, self.pooling, *tail = self.served
        self.tail = [copy.deepcopy(child).to("cpu", torch.float32) for child in tail]
        self.cut = getattr(self.served, "truncate_dim", None)
        measure = self.served.similarity_fn_name
        self.measure = str(getattr(measure, "value", measure))
        self.wrapper = wrapped(self.served)

    def prompt(self, task_metadata: Any, prompt_type: Any) -> str:
        """Return what stands before every text of this kind in this task, as mteb and the model's own code choose."""
        if self.served is None or not self.served.prompts:
            return ""
        by_task = self.wrapper.model_prompts or {}
        prompt = None
        if by_task:
            prompt = by_task.get(
                self.wrapper.get_prompt_name(task_metadata, prompt_type)
            )
        if prompt is None:
            names = {"query": ("query",), "document": ("document", "passage", "corpus")}
            fitting = names.get(getattr(prompt_type, "value", ""), ())
            default = self.served.default_prompt_name
            named = [
                name for name in (*fitting, default) if name in self.served.prompts
            ]
            prompt = self.served.prompts[named[0]] if named else ""
        if prompt and not getattr(self.pooling, "include_prompt", True):
            raise LayerscopeError(
                "this model leaves the prompt's tokens out of its pooling, which is not supported for layers: "
                "evaluate it without prompts"
            )
        return str(prompt)

    @torch.inference_mode()
    def finish(self, vectors: Floats) -> Floats:
        """Return pooled vectors [n, D] as the model's own modules after the pooling (Dense, Normalize) turn them."""
        if not (self.tail or self.cut) or not len(vectors):
            return vectors
        parts = []
        for start in range(0, len(vectors), ROWS_AT_ONCE):
            features: Any = {
                "sentence_embedding": torch.from_numpy(
                    vectors[start : start + ROWS_AT_ONCE]
                )
            }
            for module in self.tail:
                features = module(features)
            parts.append(features["sentence_embedding"][:, : self.cut].numpy())
        return np.concatenate(parts)


def wrapped(served: Any) -> Any:
    """Return a SentenceTransformer as mteb evaluates it."""
    from mteb.models import SentenceTransformerEncoderWrapper

    with (
        warnings.catch_warnings()
    ):  # mteb reads the width by a method that sentence-transformers has renamed
        warnings.simplefilter("ignore", FutureWarning)
        return SentenceTransformerEncoderWrapper(served)


def image_of(cell: Any) -> Any:
    """Return an image that mteb hands over: an undecoded file as its bytes or path, or decoded."""
    if isinstance(cell, dict):
        return cell["bytes"] if cell["bytes"] is not None else Path(cell["path"])
    return to_rgb(cell)


@dataclass(frozen=True)
class LayerEncoder:
    """What mteb's `EncoderProtocol` asks for, of one layer, site and pooling."""

    states: TextStates
    serving: Serving
    layer: int
    site: str
    pooling: str
    mteb_model_meta: Any
    weights: Weights | None = None
    """Of a mix of layers, whose deepest one is `layer`."""

    def encode(
        self,
        inputs: Iterable[Any],
        *,
        task_metadata: Any,
        hf_split: str,
        hf_subset: str,
        prompt_type: Any = None,
        **options: Any,
    ) -> Floats:
        """Return the vectors [n, D] of all samples in mteb's batches, which the store embeds where it can and must."""
        prompt = self.serving.prompt(task_metadata, prompt_type)
        modality = self.states.modality
        cells = [cell for batch in inputs for cell in batch[modality]]
        samples = [
            prompt + cell if modality == "text" else image_of(cell) for cell in cells
        ]
        keys = self.states.keys(samples)
        parts = [
            np.float32(weight)
            * self.states.vectors(keys, (layer, self.site, self.pooling))
            for layer, weight in (self.weights or {self.layer: 1.0}).items()
        ]
        return self.serving.finish(sum(parts[1:], parts[0]))

    def similarity(
        self, embeddings1: Any, embeddings2: Any, *, pairwise: bool = False
    ) -> Any:
        """Return the similarities [n, m] of two sets of vectors, or [n] of pairs, by the model's own measure."""
        measure = self.serving.measure
        if measure == "cosine":
            from mteb.similarity_functions import cos_sim, pairwise_cos_sim

            return (pairwise_cos_sim if pairwise else cos_sim)(embeddings1, embeddings2)
        from sentence_transformers import SimilarityFunction

        named: Any = SimilarityFunction
        function = (
            named.to_similarity_pairwise_fn if pairwise else named.to_similarity_fn
        )
        return function(measure)(embeddings1, embeddings2)

    def similarity_pairwise(self, embeddings1: Any, embeddings2: Any) -> Any:
        """Return the similarities [n] of pairs of vectors."""
        return self.similarity(embeddings1, embeddings2, pairwise=True)
