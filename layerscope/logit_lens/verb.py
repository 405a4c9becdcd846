from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Unpack

from layerscope.core import DATA, IN_CODE, OUTPUT, Folder, Whole, checked
from layerscope.core.options import LoadingReadingAndChat
from layerscope.logit_lens.options import LensOptions

if TYPE_CHECKING:
    from layerscope.logit_lens.reading import Reading

TUNED = "Tuned lens"


def lens(
    model: Any,
    prompt: Annotated[str | None, DATA] = None,
    data: Annotated[Any, DATA] = None,
    *,
    samples: Annotated[int, Whole(1), DATA] = 8,
    generate: Annotated[int, Whole(0)] = 0,
    top: Annotated[int, Whole(1)] = 5,
    tuned: Annotated[str | Path | None, Folder(), TUNED] = None,
    train: Annotated[Any, TUNED] = None,
    steps: Annotated[int, Whole(1), TUNED] = 250,
    processor: Annotated[Any, IN_CODE] = None,
    out: Annotated[str | Path | None, Folder(), OUTPUT] = None,
    progress: Annotated[bool, IN_CODE] = True,
    **shared: Unpack[LoadingReadingAndChat],
) -> "Reading":
    """Show what every layer would predict, token by token, and where predictions settle.

    Each sample takes one forward pass; then each layer's states go through all that the model runs
    after its last block. For the last layer these are the model's own logits, bit for bit if a
    sample has up to 67 million of them.

    Args:
        model: hub name, local folder, or minilm; in Python also a loaded model. It needs a head
            over its layers: a language model, masked or not, or a classifier.
        prompt: text to read; [MASK] stands for the model's mask.
        data: samples to read instead of a prompt: CSV, TSV, JSONL, Parquet or text file; folder of
            images or sounds; hf:name/config:split; stdlib-docs; digits.
        samples: number of samples, drawn with seed 0.
        generate: number of new tokens, the likeliest, that a language model appends to each text before
            it is read; the result is about these, by thirds of the text, and by thinking and answer.
        top: number of predictions kept at each layer.
        tuned: folder of translators through which each layer is read, from an earlier `lens`.
        train: text to train translators on, if the folder has none yet; a killed training is
            resumed. Use other text than the samples.
        steps: training steps, of about 1,000 tokens each.
        processor: tokenizer, image processor or feature extractor of a model given as an object.
        out: folder for the tables, and from the command line a page; by default nothing is saved.
        progress: show progress on standard error.
        **shared: how the model is loaded and the samples are read: `LoadingReadingAndChat`.

    Raises:
        LayerscopeError: for every wrong input, in one line that says how to fix it.

    Example:
        >>> reading = layerscope.lens("tiny-gpt2", "the food was good", progress=False)
        >>> print(reading.summary)
        3 of 4 tokens settle before the last layer; on average at layer 1.5 of 1–3

    """
    options = checked(lens, locals(), LensOptions)
    from layerscope.logit_lens.lens_pass import run_lens

    return run_lens(options)
