"""Which samples a model reads: drawn, running text packed into windows, tokens replaced.

The order matters: running text becomes windows, of which some are drawn, whose tokens are then
replaced where an experiment asks for it.
"""

from dataclasses import replace

from layerscope.core import LayerscopeError, count
from layerscope.inputs import Corpus, draw, make_extreme, pack
from layerscope.models import LayeredModel
from layerscope.models.encode import TextEncoder
from layerscope.models.texts import window_of
from layerscope.profiling.options import PassOptions


def as_read(corpus: Corpus, model: LayeredModel, options: PassOptions) -> Corpus:
    """Return the samples drawn, running text packed for a language model, tokens replaced where options say so."""
    _refuse_for_others(corpus, model, options)
    tokenizer = model.loaded.processor_for("text")
    window = window_of(options.chunk, options.prompt, corpus, model)
    if window is not None:
        corpus = pack(corpus, tokenizer, window)
    corpus = draw(corpus, options.samples, options.seed)
    if options.replaced is None:
        return corpus
    encoder = model.encoder
    if tokenizer is None or not isinstance(encoder, TextEncoder):
        raise LayerscopeError(
            f"`{options.replaced}` needs a tokenizer, and {model.name} has none: leave it out"
        )
    # counts what is cut, which the new ids no longer show
    encoder.lengths(corpus.samples)
    if encoder.cut:
        cut = f"{encoder.cut:,} of {len(corpus):,} texts are cut at {count(encoder.max_length, 'token')}"
        corpus = replace(corpus, notes=(*corpus.notes, cut))
    table = model.module.get_input_embeddings()  # type: ignore[operator]  # to torch it is no method
    return make_extreme(
        corpus,
        "repeat" if options.replaced == "repeat_tokens" else "random",
        getattr(options, options.replaced),
        tokenizer=tokenizer,
        tokenised=encoder.ids,
        rows=table.num_embeddings,
        seed=options.seed,
    )


def _refuse_for_others(
    corpus: Corpus, model: LayeredModel, options: PassOptions
) -> None:
    """Raise for an option of texts where samples are none."""
    is_text = corpus.modality == "text"
    is_tokens = isinstance(model.encoder, TextEncoder)
    applies = {
        "chunk": is_text,
        "prompt": is_text,
        "max_length": is_tokens,
        "repeat_tokens": is_tokens,
        "random_tokens": is_tokens,
    }
    for name, fits in applies.items():
        if not fits and getattr(options, name) not in (None, ""):
            raise LayerscopeError(
                f"`{name}` is for texts, and {corpus.name} holds {corpus.modality} samples: leave it out"
            )
    if options.prompt and options.replaced:
        raise LayerscopeError(
            f"`prompt` goes before texts, and `{options.replaced}` makes token ids of them: leave one of the two out"
        )
