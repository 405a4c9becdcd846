"""Language models that recipes read: pretrained here on the documentation of Python's library, or from the hub."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from layerscope.inputs import Corpus, open_corpus
from layerscope.runs import Run, open_run
from layerscope_papers.assets import Asset, Assets, Cost

Options = tuple[tuple[str, Any], ...]
ENTROPY = "prompt_entropy"
HELD = slice(7, None, 9)
"""What no model is trained on: every ninth module, in the order of names, or every ninth part of a user's texts."""


@dataclass(frozen=True)
class Language:
    """One scale: a model of the hub, or the shape of one that is pretrained here; and the texts that it reads.

    Attributes:
        data: name of the data set.
        samples: texts that are read.
        hub: model of the hub, empty for one that is pretrained here.
        depth: blocks of one that is pretrained here.
        width: dimensions of a token.
        heads: attention heads of a block.
        context: tokens of a text, at most.
        vocabulary: number of byte pairs, which are learnt from the training texts.
        pretraining: steps of the model that is pretrained here.
        steps: steps of a model that is trained further, 0 where none is.
        batch_size: texts of a step.
        learning_rate: highest of the steps.
        seeds: models of each kind.
        yours: fingerprint of the model and data that a user named, False where the scale names them.
        parameters: those of a model of the hub, for the estimate alone.
        encoder: model of the hub that judges coherence, empty for that of `generate`.

    """

    data: str
    samples: int
    hub: str = ""
    depth: int = 6
    width: int = 96
    heads: int = 6
    context: int = 128
    vocabulary: int = 2048
    pretraining: int = 2500
    steps: int = 200
    batch_size: int = 8
    learning_rate: float = 1e-3
    seeds: int = field(default=3, repr=False)
    yours: str | bool = False
    parameters: float = field(default=0.0, repr=False)
    encoder: str = field(default="", repr=False)

    @property
    def base(self) -> "tuple[Pretrained, ...]":
        """The model that is pretrained here, if it is."""
        return () if self.hub else (Pretrained(self),)

    def model(self, assets: Assets) -> str:
        """Return the hub's name of the pretrained model, or the folder of that made here."""
        return self.hub or str(assets.get(Pretrained(self)))

    def cost(self, texts: int, *, learns: bool) -> Cost:
        """Return about what so many texts take: a model of the hub on a GPU."""
        # of a block 4 squares of the width are attention's and 9 the MLP's
        trained = 13 * self.width**2 * self.depth + self.width * self.vocabulary
        parameters = self.parameters or trained
        on_gpu = bool(self.hub) and not self.yours
        return Cost.of(parameters, texts * self.context, on_gpu=on_gpu, learns=learns)

    def config(self) -> dict[str, Any]:
        """Return the configuration of a Llama of this shape, as transformers read it."""
        return {
            "model_type": "llama",
            "architectures": ["LlamaForCausalLM"],
            "hidden_size": self.width,
            "intermediate_size": 3 * self.width,
            "num_hidden_layers": self.depth,
            "num_attention_heads": self.heads,
            "num_key_value_heads": self.heads,
            "max_position_embeddings": self.context,
            "vocab_size": self.vocabulary,
            "tie_word_embeddings": True,
            "bos_token_id": 0,
            "eos_token_id": 0,
            "pad_token_id": 0,
        }


SMALL = Language("stdlib-docs", 256, seeds=6)
PAPER = Language(
    "hf:wikitext/wikitext-103-raw-v1",
    1000,
    hub="EleutherAI/pythia-410m",
    parameters=405e6,
)
SCALES: dict[Any, Language] = {"small": SMALL, "paper": PAPER}


def yours(model: str, data: str) -> Language:
    """Return the settings for a model and texts that a user names; nothing is trained."""
    from layerscope.models import LoadOptions, load, parameters, weights_fingerprint

    module = load(model, LoadOptions()).module
    corpus = open_corpus(data, modality="text")
    return Language(
        data,
        SMALL.samples,
        hub=model,
        steps=0,
        yours=corpus.fingerprint() + weights_fingerprint(module),
        parameters=parameters(module),
    )


def texts(setup: Language) -> tuple[Corpus, Corpus]:
    """Return the texts that a model is trained on, and those that it is judged on; all are both where none is."""
    if setup.data.startswith("hf:") and not setup.yours:
        return open_corpus(f"{setup.data}:train"), open_corpus(f"{setup.data}:test")
    corpus = open_corpus(setup.data, modality="text")
    whole = replace(corpus, labels=None)
    if not setup.steps:
        return whole, whole
    # docstrings of one module repeat each other
    groups: Any = corpus.labels
    if setup.yours:
        # 90 parts, as neighbours may belong to one text
        groups = np.arange(len(whole)) * 90 // len(whole)
    else:
        # a small model would spend much of what it learns on runs of spaces and line breaks
        samples = [" ".join(text.split()) for text in whole.samples]
        whole = replace(whole, samples=samples)
    is_held = np.isin(groups, np.unique(groups)[HELD])
    held = replace(whole, name=f"{whole.name}-held")
    return whole.take(np.flatnonzero(~is_held)), held.take(np.flatnonzero(is_held))


def learn(
    setup: Language, model: str | Path, out: Path, steps: int, **options: Any
) -> None:
    """Train a language model on the texts of a scale, from its last checkpoint where there is one."""
    from layerscope import train

    training, held = texts(setup)
    train(
        model,
        training,
        held,
        out=out,
        task="causal-lm",
        max_steps=steps,
        eval_every=steps,
        batch_size=setup.batch_size,
        max_length=setup.context,
        progress=False,
        **options,
    )


@dataclass(frozen=True)
class Pretrained(Asset):
    """A Llama trained from random weights, where no model comes from the hub."""

    setup: Language
    named = "pretrained language model"

    @property
    def cost(self) -> Cost:
        """About what it takes."""
        setup = self.setup
        return setup.cost(setup.pretraining * setup.batch_size, learns=True)

    def make(self, out: Path, assets: Assets) -> None:
        """Make the vocabulary and train the model."""
        setup = self.setup
        out.parent.mkdir(parents=True, exist_ok=True)
        config = out.parent / f"{out.name}.json"
        config.write_text(json.dumps(setup.config()), encoding="utf-8")
        learn(
            setup,
            config,
            out,
            setup.pretraining,
            objective="standard",
            from_config=True,
            processor=byte_pairs(list(texts(setup)[0].samples), setup),
            learning_rate=3e-3,
            weight_decay=0.1,
            scheduler="cosine",
            warmup=0.05,
        )


@dataclass(frozen=True)
class _OfLanguage(Asset):
    """What rests on the language model of a scale."""

    setup: Language

    @property
    def rests_on(self) -> tuple[Asset, ...]:
        """The pretrained model, where it is made here."""
        return self.setup.base


@dataclass(frozen=True)
class Speaker(_OfLanguage):
    """A pretrained language model, trained further on running text."""

    objective: str = "standard"
    seed: int = 0
    options: Options = ()

    @property
    def cost(self) -> Cost:
        """About what it takes, by the model's parameters and the tokens that it reads."""
        setup = self.setup
        return setup.cost(setup.steps * setup.batch_size, learns=True)

    def __str__(self) -> str:
        return f"language model {self.objective} seed {self.seed}"

    def make(self, out: Path, assets: Assets) -> None:
        """Train it."""
        setup = self.setup
        learn(
            setup,
            setup.model(assets),
            out,
            setup.steps,
            objective=self.objective,
            seed=self.seed,
            learning_rate=setup.learning_rate,
            **dict(self.options),
        )


@dataclass(frozen=True)
class Read(_OfLanguage):
    """A run of a scale's model on its texts; `options` are those of `profile` that differ."""

    options: Options = ()

    @property
    def cost(self) -> Cost:
        """About what it takes, by the model's parameters and the tokens that it reads."""
        return self.setup.cost(self.setup.samples, learns=False)

    def __str__(self) -> str:
        return "texts read" + "".join(
            f" {name} {value}" for name, value in self.options
        )

    def make(self, out: Path, assets: Assets) -> None:
        """Profile the model, from the shard where it was stopped."""
        from layerscope.profiling import profile

        options: dict[str, Any] = {
            "max_length": self.setup.context,
            "samples": self.setup.samples,
            "metrics": [ENTROPY],
            "views": 0,
        }
        _, held = texts(self.setup)
        options |= dict(self.options)
        profile(self.setup.model(assets), held, out=out, progress=False, **options)


def byte_pairs(
    texts: Sequence[str], setup: Language, template: str = "<end> $A"
) -> Any:
    """Return a tokenizer of byte pairs made of texts, which puts `<end>` where the template of a text has it."""
    from tokenizers import ByteLevelBPETokenizer
    from tokenizers.processors import TemplateProcessing
    from transformers import PreTrainedTokenizerFast

    made = ByteLevelBPETokenizer()
    made.train_from_iterator(
        texts,
        vocab_size=setup.vocabulary,
        special_tokens=["<end>"],
        show_progress=False,
    )
    made._tokenizer.post_processor = TemplateProcessing(
        template, special_tokens=[("<end>", 0)]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=made._tokenizer,
        bos_token="<end>",
        eos_token="<end>",
        pad_token="<end>",
        model_max_length=setup.context,
    )


def entropy(
    assets: Assets, *options: tuple[str, Any], setup: Language | None = None
) -> pd.DataFrame:
    """Return the prompt entropy of each text at each layer, `[text, (site, layer)]`, of the run with these options.

    The model and its texts are those of a `setup`, by default the scale's.
    """
    return by_sample(open_run(assets.get(Read(setup or assets.settings, options))))


def by_sample(run: Run) -> pd.DataFrame:
    """Return the prompt entropy of each sample of a run at each layer, `[sample, (site, layer)]`."""
    rows = run.samples()
    rows = rows[rows["metric"] == ENTROPY]
    rows = rows[rows["variant"] == rows["variant"].iloc[0]]
    return rows.pivot_table(index="sample", columns=["site", "layer"], values="value")
