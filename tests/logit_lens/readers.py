"""The lens without its progress, and the tokenizers that its tests read with."""

from functools import partial

import tiny

from layerscope import lens

PLAIN, SPECIAL = tiny.tokenizer(special=False), tiny.tokenizer(special=True)
read = partial(lens, progress=False)
