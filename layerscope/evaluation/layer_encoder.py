"""One layer of a model as mteb sees an encoder; samples come embedded from a store that all layers share."""

import copy
import warnings
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import nn

from layerscope.core import LayerscopeError
from layerscope.evaluation.stored_texts import Floats, TextStates
from layerscope.models import Loaded
from layerscope.scores.probe_results import Slot


class Serving:
    """What a model's makers put around its transformer: prompts, the modules after the pooling, the similarity.

    Raises `LayerscopeError` for a SentenceTransformer that does not pool its transformer by mean, cls or last.
    """

    def __init__(self, loaded: Loaded) -> None:
        self.served: Any = loaded.served
        self.tail: list[nn.Module] = []
        self.cut: int | None = None
        self.measure = "cosine"
        if self.served is None:
            return
        from mteb.models import SentenceTransformerEncoderWrapper

        kinds = [type(child).__name__ for child in self.served]
        if loaded.pooling is None or kinds[1:2] != ["Pooling"]:
            mend = ""
            if loaded.wrapper == "SparseEncoder":
                mend = "; give it pairs:FILE"
            raise LayerscopeError(
                f"{loaded.name} is {', '.join(kinds)}: evaluate takes a transformer, then mean, cls or last "
                f"pooling{mend}"
            )
        _, self.pooling, *tail = self.served
        self.tail = [copy.deepcopy(child).to("cpu", torch.float32) for child in tail]
        self.cut = getattr(self.served, "truncate_dim", None)
        measure = self.served.similarity_fn_name
        self.measure = str(getattr(measure, "value", measure))
        # mteb reads the width by a method that sentence-transformers has renamed
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)
            self.wrapper = SentenceTransformerEncoderWrapper(self.served)

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
            prompt = ""
            for name in (default, *reversed(fitting)):
                prompt = self.served.prompts.get(name, prompt)
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
        features: Any = {"sentence_embedding": torch.from_numpy(vectors)}
        for module in self.tail:
            features = module(features)
        finished: Floats = features["sentence_embedding"][:, : self.cut].numpy()
        return finished


@dataclass(frozen=True)
class LayerEncoder:
    """What mteb's `EncoderProtocol` asks for, of one layer at a site and of a pooling, or of a mix of some."""

    states: TextStates
    serving: Serving
    weights: dict[Slot, float]
    mteb_model_meta: Any

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
        """Return the vectors [n, D] of all texts in mteb's batches, which the store embeds where it must."""
        prompt = self.serving.prompt(task_metadata, prompt_type)
        texts = [prompt + text for batch in inputs for text in batch["text"]]
        keys = self.states.keys(texts)
        parts = []
        for slot, weight in self.weights.items():
            vectors = self.states.vectors(keys, slot)
            parts.append(np.float32(weight) * vectors)
        return self.serving.finish(sum(parts[1:], parts[0]))

    def similarity(
        self, embeddings1: Any, embeddings2: Any, *, pairwise: bool = False
    ) -> Any:
        """Return the similarities [n, m] of two sets of vectors, or [n] of pairs, by the model's own measure."""
        measure = self.serving.measure
        if measure == "cosine":
            from mteb.similarity_functions import cos_sim, pairwise_cos_sim

            if pairwise:
                return pairwise_cos_sim(embeddings1, embeddings2)
            return cos_sim(embeddings1, embeddings2)
        from sentence_transformers import SimilarityFunction

        named: Any = SimilarityFunction
        function = named.to_similarity_fn(measure)
        if pairwise:
            function = named.to_similarity_pairwise_fn(measure)
        return function(embeddings1, embeddings2)

    def similarity_pairwise(self, embeddings1: Any, embeddings2: Any) -> Any:
        """Return the similarities [n] of pairs of vectors."""
        return self.similarity(embeddings1, embeddings2, pairwise=True)
