from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Unpack

from layerscope.core import (
    DATA,
    IN_CODE,
    OUTPUT,
    SEED,
    Folder,
    Number,
    Repeated,
    Several,
    Whole,
    checked,
)
from layerscope.core.options import LoadingReadingAndChat
from layerscope.generation.options import GenerateOptions

if TYPE_CHECKING:
    from layerscope.generation.generation import Generation

SAMPLING = "Sampling"
SPECULATION = "Self-speculation"
MEASURES = "Measures"
AUTO = ("auto",)


def generate(
    model: Any,
    prompt: Annotated[str | Sequence[str] | None, Repeated(), DATA] = None,
    data: Annotated[Any, DATA] = None,
    *,
    layers: Annotated[
        int | str | Iterable[int] | None, Several(Whole(), ("all",), "4 or 4,8")
    ] = None,
    samples: Annotated[int | str, Whole(1, words=("all",)), DATA] = 32,
    prefix: Annotated[int, Whole(1), DATA] = 32,
    max_new_tokens: Annotated[int, Whole(1), SAMPLING] = 64,
    top_p: Annotated[float | None, Number(above=0, most=1), SAMPLING] = None,
    temperature: Annotated[float, Number(above=0), SAMPLING] = 1.0,
    seed: Annotated[int, SEED, SAMPLING] = 0,
    batch_size: Annotated[int, Whole(1), SAMPLING] = 8,
    draft_layer: Annotated[int | str | None, Whole(1, words=AUTO), SPECULATION] = None,
    draft_tokens: Annotated[int | str, Whole(1, words=AUTO), SPECULATION] = "auto",
    measure: Annotated[bool, MEASURES] = False,
    processor: Annotated[Any, IN_CODE] = None,
    out: Annotated[str | Path | None, Folder(), OUTPUT] = None,
    progress: Annotated[bool, IN_CODE] = True,
    **shared: Unpack[LoadingReadingAndChat],
) -> "Generation":
    """Generate text at any depth of a language model, and measure its quality by layer.

    Each depth is the model cut there: its own forward and cache, its final norm and head, without
    the penalties that a generation config may set. A text ends at the config's `eos_token_id`.
    Prompts are batched with others of the same length and never padded; random draws depend
    on `seed` and the prompt's index, not on its batch or layer. The model is left unchanged.

    With `draft_layer`, an early layer drafts and all layers verify (`SelfSpeculation`): the last
    layer's text, sooner if drafts are often right. Greedy decoding gives the same tokens; sampling
    draws others from the same distribution. Values chosen by timing differ from run to run, and the
    draws with them: set the draft layer and the number of draft tokens for reproducible draws.

    With `measure`, every layer gets four numbers. Accuracy (the share of the given texts' next
    tokens that are predicted correctly) and perplexity are taken over all tokens of the given
    texts. Coherence is the cosine between prompt and continuation by all-MiniLM-L6-v2; diversity
    is the product over n = 2, 3, 4 of 1 − rep-n, where rep-n is the share of a continuation's
    n-grams that repeat an earlier one; both are means over the texts.

    Source: Tracing Representation Progression, section on language models, equations 20 and 22; Su
    et al. 2022, A
    contrastive framework for neural text generation; Holtzman et al. 2020 for the nucleus.

    Args:
        model: hub name or local folder of a language model; in Python also a loaded one with
            `processor`.
        prompt: text to continue; repeat the option for several. An empty prompt stands for the
            token that begins a text.
        data: texts whose beginnings are continued, instead of prompts: CSV, TSV, JSONL, Parquet or
            text file; hf:name/config:split; stdlib-docs. Running text is packed into windows of at
            most 256 tokens, or of the maximum length if given.
        layers: layers to generate at, such as 4 or 4,8, or all; by default the last.
        samples: number of texts, drawn from the data with the seed, or all.
        prefix: number of tokens at the beginning of each text of the data that serve as its prompt.
        max_new_tokens: maximum number of new tokens per text.
        top_p: nucleus sampling, from the fewest tokens that together have this probability; by
            default decoding is greedy.
        temperature: sampling temperature, by which logits are divided; greedy decoding ignores it.
        seed: random seed of the samples and the draws.
        batch_size: maximum number of texts per batch.
        draft_layer: layer that drafts what all layers verify, or auto: by acceptance and cost.
        draft_tokens: tokens drafted before each verification, or auto: by acceptance and cost, none
            if drafts do not pay.
        measure: measure accuracy, perplexity, coherence and diversity by layer.
        processor: tokenizer of a model given as an object.
        out: folder for the texts and numbers, and from the command line a page; by default nothing
            is saved.
        progress: show progress on standard error.
        **shared: how the model is loaded and the texts are read: `LoadingReadingAndChat`.

    Raises:
        LayerscopeError: for every wrong input, and for logits that are NaN.

    Example:
        >>> found = layerscope.generate("tiny-gpt2", "the food was", layers=[2, 3], max_new_tokens=4, progress=False)
        >>> found.texts[["layer", "text"]].values.tolist()
        [[2, ' was was was was'], [3, ' was was was was']]

    """
    options = checked(generate, locals(), GenerateOptions)
    from layerscope.generation.pipeline import run_generate

    return run_generate(options)
