import ast
import inspect
import json
import subprocess
import sys

import numpy as np
from sklearn.datasets import load_digits

from layerscope.inputs import open_corpus


def test_stdlib_docs_are_the_docstrings_themselves():
    corpus = open_corpus("stdlib-docs")
    assert len(corpus) > 5000
    assert len(set(corpus.labels)) > 150
    assert len(set(corpus.samples)) == len(corpus)
    assert min(map(len, corpus.samples)) > 40
    found = dict(zip(corpus.names, corpus.samples, strict=True))
    assert found["json.loads"] == inspect.getdoc(json.loads)
    assert found["json.decoder.JSONDecoder.raw_decode"] == inspect.getdoc(
        json.JSONDecoder.raw_decode
    )
    assert found["ast.NodeVisitor"] == inspect.getdoc(ast.NodeVisitor)
    assert corpus.labels[corpus.names.index("json.loads")] == "json"
    assert set(corpus.labels) <= sys.stdlib_module_names
    assert not {"test", "idlelib", "lib2to3"}.intersection(corpus.labels)
    assert corpus.fingerprint() == open_corpus("stdlib-docs").fingerprint()


def test_digits_are_scikit_learns():
    corpus = open_corpus("digits")
    data = load_digits()
    assert corpus.labels == tuple(data.target.tolist())
    image = corpus.samples[5]
    assert (image.mode, image.size) == ("RGB", (8, 8))
    assert np.abs(np.asarray(image)[:, :, 1] / 255 * 16 - data.images[5]).max() < 0.04


def test_importing_the_room_loads_nothing_heavy():
    heavy = (
        "torch",
        "pandas",
        "pyarrow",
        "PIL",
        "sklearn",
        "scipy",
        "soundfile",
        "datasets",
        "transformers",
    )
    code = f"import sys, layerscope.inputs; print([m for m in {heavy!r} if m in sys.modules])"
    shown = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert shown.stdout.strip() == "[]"
