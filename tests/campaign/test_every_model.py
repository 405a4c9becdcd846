"""Model types of transformers, built small: every verb equals what plain hooks say, or refuses in one line."""

import json

import pytest
from campaign.every_model import cases
from trials import tried

FOUND = (
    # without a pad token its forward takes one sample at a time
    "GPT2ForSequenceClassification",
    "BartForSequenceClassification",  # as many <eos> in every text of a batch
    "DINOv3ViTModel",  # what it calls its base reads states, not pixels
    "Gemma4ForCausalLM",  # a config whose values vary by layer
    # fills a text up to whole windows
    "LongformerForSequenceClassification",
    # its table of positions is called with states
    "M2M100ForConditionalGeneration",
    # reads an image as four rows of patches
    "MobileViTForImageClassification",
)
LIMITS = {"seconds": 400, "memory": 8 << 30}
"""What a class may take on a busy machine."""


@pytest.fixture
def examine(forks):
    """Return a function that examines a class in a process of its own, and returns a word for each verb."""

    def call(kind, name):
        script = "from campaign.every_model import main; main()"
        ended = forks.run(kind, name, script=script, **LIMITS)
        assert ended.status == 0, ended
        words = json.loads(ended.out.splitlines()[-1])
        defects = [word for word in words.values() if word.startswith("DEFECT")]
        assert not defects, (name, defects)
        return words

    return call


@pytest.mark.parametrize("name", FOUND)
def test_what_was_once_found(examine, name):
    assert "skipped" not in examine(cases()[name], name)


def test_models(examine):
    every = list(cases().items())

    def attempt(seed, rng):
        # far from each other in the alphabet
        name, kind = every[seed * 101 % len(every)]
        words = examine(kind, name)
        if "skipped" in words:
            return "skipped"
        return "refused" if words["inspect"].startswith("refused") else "held"

    tried("models", 0.35, attempt, most=len(every))
