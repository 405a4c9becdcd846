"""Every type that transformers knows, small, through the verbs, each answer checked or refused."""

import json
import sys
import traceback
from pathlib import Path
from tempfile import TemporaryDirectory

from campaign.checks import Examination
from campaign.small import NotSmall, small_model
from transformers.models.auto import modeling_auto as auto
from transformers.models.auto.configuration_auto import CONFIG_MAPPING_NAMES

from layerscope.core.errors import LayerscopeError

VERBS = ("inspect", "profile", "lens", "truncate")
CLASSIFIERS = ("SEQUENCE_CLASSIFICATION", "IMAGE_CLASSIFICATION")
HEADS = (
    "CAUSAL_LM", "MASKED_LM", "SEQ_TO_SEQ_CAUSAL_LM", "IMAGE_CLASSIFICATION", "SEQUENCE_CLASSIFICATION",
    "IMAGE_TEXT_TO_TEXT", "",
)  # fmt: skip


def cases():
    """Return the class that says most about each model type, and its classifier: the type of each."""
    found = {}
    for kind in CONFIG_MAPPING_NAMES:
        for heads in (HEADS, CLASSIFIERS):
            names = [_class(head, kind) for head in heads]
            for name in filter(None, names):
                found.setdefault(name, kind)
                break
    return found


def _class(head, kind):
    of_head = f"MODEL_FOR_{head}_MAPPING_NAMES" if head else "MODEL_MAPPING_NAMES"
    found = getattr(auto, of_head).get(kind)
    return found[0] if isinstance(found, tuple | list) else found


def examined(kind, name, folder):
    """Return a word for each verb on a class, or why it was skipped."""
    try:
        examination = Examination(small_model(kind, name), folder)
    except NotSmall as error:
        return {"skipped": str(error)}
    return {verb: verdict(getattr(examination, verb)) for verb in VERBS}


def verdict(check):
    """Return "ok", "refused: the line", or "DEFECT: what" of one check."""
    try:
        return check() or "ok"
    except LayerscopeError as error:
        kind = "DEFECT: several lines" if "\n" in str(error) else "refused"
        return f"{kind}: {error}"
    except Exception as error:
        frame = traceback.extract_tb(error.__traceback__)[-1]
        return f"DEFECT: {type(error).__name__} at {frame.name}: {error}"[:300]


def main():
    """Examine the class that the command line names, and print what came of it."""
    with TemporaryDirectory() as folder:
        print(json.dumps(examined(*sys.argv[1:], Path(folder))))
