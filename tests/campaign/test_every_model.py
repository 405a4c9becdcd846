"""Model types of transformers, built small: every verb equals what plain hooks say, or refuses in one line."""

import pytest
from campaign import every_model
from campaign.every_model import Case, attempt, defects
from trials import Part

FOUND = {
    # without a pad token its forward takes one sample at a time
    "GPT2ForSequenceClassification": "gpt2",
    "BartForSequenceClassification": "bart",  # as many <eos> in every text of a batch
    "DINOv3ViTModel": "dinov3_vit",  # what it calls its base reads states, not pixels
    "Gemma4ForCausalLM": "gemma4_text",  # a config whose values vary by layer
    # fills a text up to whole windows
    "LongformerForSequenceClassification": "longformer",
    # its table of positions is called with states
    "M2M100ForConditionalGeneration": "m2m_100",
    # reads an image as four rows of patches
    "MobileViTForImageClassification": "mobilevit",
}


@pytest.fixture(scope="module", autouse=True)
def ready():
    every_model.prepare()


@pytest.mark.parametrize("name", FOUND)
def test_what_was_once_found(name):
    row = attempt(Case(FOUND[name], name))
    assert row.skipped is None
    assert not defects(row)


def test_models():
    part, cases = Part("models", share=0.35), every_model.cases()
    for trial in part.trials(most=len(cases)):
        with trial:
            # far from each other in the alphabet
            row = attempt(cases[trial.seed * 101 % len(cases)])
            trial.outcome = (
                "skipped"
                if row.skipped
                else "refused"
                if "refused" in row.verbs["inspect"]
                else "held"
            )
            assert not defects(row), "; ".join(defects(row))
