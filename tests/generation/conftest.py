"""Every family of language models, with its depths as truncated checkpoints."""

import pytest
import transformers as hf
from generation.talkers import MAKERS, TOKENIZER, loud, name_of
from models.zoo import L

from layerscope.truncation import truncate


@pytest.fixture(scope="module", params=MAKERS, ids=name_of)
def cuts(request, tmp_path_factory):
    model, out = loud(request.param()), tmp_path_factory.mktemp("cuts")
    cuts = {}
    for k in (1, 2):
        folder = truncate(model, k, out / f"layer-{k}", processor=TOKENIZER)
        cuts[k] = hf.AutoModelForCausalLM.from_pretrained(folder).eval()
    return cuts | {L: model}
