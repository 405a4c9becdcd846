from layerscope.inputs.corpus import Corpus, draw
from layerscope.inputs.media import resample
from layerscope.inputs.opening import open_corpus
from layerscope.inputs.samples import Modality, Waveform, Window
from layerscope.inputs.views import DEFAULT_SHARE, VIEW_KINDS, augment, check_views
from layerscope.inputs.windows import make_extreme, pack, random_tokens, repeat_tokens

__all__ = [
    "DEFAULT_SHARE",
    "VIEW_KINDS",
    "Corpus",
    "Modality",
    "Waveform",
    "Window",
    "augment",
    "check_views",
    "draw",
    "make_extreme",
    "open_corpus",
    "pack",
    "random_tokens",
    "repeat_tokens",
    "resample",
]
