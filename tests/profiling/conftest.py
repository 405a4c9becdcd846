"""A whole run beside what is seen of its model."""

import pytest
import tiny
import transformers as hf
from profiling.watched import Watched, inputs_for, pixels, vit

from layerscope import profile


@pytest.fixture(scope="session", params=["stories260K", "gpt2", "vit"])
def both(request, tmp_path_factory):
    if request.param == "stories260K":
        folder = request.getfixturevalue("shared") / "models" / request.param
        model = hf.AutoModelForCausalLM.from_pretrained(folder)
    else:
        model = {"gpt2": tiny.gpt2, "vit": vit}[request.param]()
    model = model.double().eval()
    data = inputs_for(request.param)
    run = profile(
        model,
        data,
        processor=pixels if request.param == "vit" else None,
        out=tmp_path_factory.mktemp("why") / "run",
        metrics="valley,causal_depth",
        views=0,
        progress=False,
    )
    return run, [Watched(model, sample) for sample in data]
