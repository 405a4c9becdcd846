"""Options that several verbs share: how a model is loaded, and how a table of samples is read."""

from __future__ import annotations

from typing import Annotated, TypedDict

from layerscope.core.option_kinds import Line, OneOf, Whole

MODEL = "Model and weights"
DATA = "Data"
OUTPUT = "Output"
DTYPES = ("auto", "float32", "float16", "bfloat16", "float64")

Part = Annotated[
    str | None,
    Line("Stack of blocks, where the model has several: encoder, decoder, text, vision, or a module path."),
    MODEL,
]
Device = Annotated[
    str, Line("Device to run on: auto, cpu, cuda:0, or map to spread the model over all.", "auto"), MODEL
]


class Loading(TypedDict, total=False):
    """How a model is loaded, and where its layers are."""

    revision: Annotated[str | None, Line("Branch, tag or commit of a hub model."), MODEL]
    part: Part
    blocks: Annotated[
        str | None, Line("Path of the module that holds the blocks; by default it is searched for."), MODEL
    ]
    norm: Annotated[str | None, Line("Path of the final norm, or none; by default it is searched for."), MODEL]
    dtype: Annotated[
        str,
        OneOf(DTYPES),
        Line("Number type of the weights; auto is float32 on a CPU, else the checkpoint's own.", "auto"),
        MODEL,
    ]
    device: Device
    trust_remote_code: Annotated[bool, Line("Let the checkpoint's own code run.", False), MODEL]
    allow_pickle: Annotated[bool, Line("Load pickled weights, which can run code.", False), MODEL]


class Reading(TypedDict, total=False):
    """How a table of samples is read."""

    text_column: Annotated[str | None, Line("Column of the texts; by default it is guessed."), DATA]
    label_column: Annotated[str | None, Line("Column of the labels; by default it is guessed."), DATA]
    max_length: Annotated[
        int | None, Whole(1), Line("Tokens per text at most; by default the model's own limit, up to 512."), DATA
    ]


class LoadingAndReading(Loading, Reading, total=False):
    """How a model is loaded and its samples are read."""
