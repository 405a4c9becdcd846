"""A classifier of means is a token classifier for everyone else."""

from functools import partial

import pytest
import tiny
import torch
import transformers as hf
from models import zoo
from torch import nn

from layerscope.models import LoadOptions, load
from layerscope.models.mean_head import mean, mean_headed, standard_class

MODELS = {
    "bert": partial(zoo.seeded, "BertForTokenClassification"),
    "roberta": partial(
        zoo.seeded, "RobertaForTokenClassification", max_position_embeddings=70
    ),
    "deberta": partial(zoo.seeded, "DebertaV2ForTokenClassification"),
}
IDS = torch.tensor([[1, 5, 6, 7, 2], [1, 9, 2, 0, 0]])
MASK = (IDS != 0).long()


@pytest.mark.parametrize("name", MODELS)
def test_its_logits_are_the_mean_of_the_token_logits(name):
    model = MODELS[name](num_labels=3)
    with torch.no_grad():
        tokens = model(IDS, attention_mask=MASK).logits
        wanted = torch.stack([tokens[0].mean(0), tokens[1, :3].mean(0)])
        for found in (
            mean_headed(model)(input_ids=IDS, attention_mask=MASK),
            model(IDS, MASK),
        ):
            torch.testing.assert_close(found.logits, wanted)
    labels = torch.tensor([0, 2])
    loss = model(IDS, MASK, labels=labels).loss
    torch.testing.assert_close(loss, nn.functional.cross_entropy(wanted, labels))
    items = torch.tensor(8)
    summed = model(IDS, MASK, labels=labels, num_items_in_batch=items).loss
    torch.testing.assert_close(summed, loss * 2 / 8)


def test_it_is_saved_as_the_token_classifier_and_loaded_as_what_it_was(tmp_path):
    model = mean_headed(MODELS["bert"]())
    tiny.saved(model, tmp_path)
    plain = hf.AutoModelForTokenClassification.from_pretrained(tmp_path)
    assert type(plain) is hf.BertForTokenClassification is standard_class(type(model))
    loaded = load(str(tmp_path), LoadOptions(device="cpu")).module
    assert type(loaded) is type(model)
    with torch.no_grad():
        torch.testing.assert_close(loaded(IDS, MASK).logits, model(IDS, MASK).logits)


def test_rows_of_many_exits_take_the_mask_of_their_sample():
    states = zoo.drawn(6, 5, 4)
    found = mean(states, MASK)
    torch.testing.assert_close(found[2], states[2].mean(0))
    torch.testing.assert_close(found[5], states[5, :3].mean(0))
    torch.testing.assert_close(mean(states, None), states.mean(1))
