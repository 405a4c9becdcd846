import pytest
import torch
from models.test_capture import IDS, TEXTS, layered, states
from models.zoo import close, llama, of_class

CLASSIFIERS = [
    ("Bert", {}, "first"),
    ("ModernBert", {"cls_token_id": 1, "sep_token_id": 2, "classifier_pooling": "mean"}, "mean"),
    ("Llama", {"pad_token_id": None}, "last"),
    ("GPT2", {}, "last"),  # with a token to pad with
]  # fmt: skip


@pytest.mark.parametrize("family, options, read", CLASSIFIERS)
@torch.inference_mode()
def test_classifiers_logits_and_the_token_they_read(family, options, read):
    model = of_class(f"{family}ForSequenceClassification", num_labels=4, **options)
    scope = layered(model)
    assert scope.lens.kind == "pooled" and scope.lens.classes == 4
    assert scope.pooling == (read,)
    last = states(scope, TEXTS)["raw", 3]
    mine = scope.lens.sample_logits(last, scope.encoder.batch(TEXTS))
    own = torch.cat([model(input_ids=torch.tensor([ids])).logits for ids in IDS])
    close(mine, own)


@torch.inference_mode()
def test_a_model_without_a_head_has_no_lens_and_an_exception_restores_the_blocks():
    assert layered(of_class("BertModel")).lens is None
    scope = layered(llama())
    with pytest.raises(Exception, match="size|shape|expand|must match"):
        # a wrong width
        list(scope.lens.token_logits(torch.randn(2, 7), scope.encoder.batch(TEXTS)))
    assert not any("forward" in m.__dict__ for m in scope.module.modules())
