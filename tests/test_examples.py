"""Every public function and class shows how it is used; `make test` runs these examples."""

import importlib
import inspect

import pytest

FACES = (
    "layerscope", "layerscope.early_exit", "layerscope.evaluation", "layerscope.generation", "layerscope.inputs",
    "layerscope.metrics",
    "layerscope.probes", "layerscope.runs", "layerscope.scores", "layerscope.training", "layerscope.truncation",
)  # fmt: skip


@pytest.mark.parametrize("face", FACES)
def test_every_public_name_has_an_example(face):
    module = importlib.import_module(face)
    public = {name: getattr(module, name) for name in module.__all__}
    shown = {
        name: found
        for name, found in public.items()
        if inspect.isclass(found) or inspect.isfunction(found)
    }
    assert shown
    assert [
        name for name, found in shown.items() if ">>>" not in (found.__doc__ or "")
    ] == []
