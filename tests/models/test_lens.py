import pytest
import torch
from models.test_capture import IDS, TEXTS, layered, states
from models.zoo import TEXT, close, of_class


@pytest.mark.parametrize("case", TEXT, ids=lambda c: c.name)
@torch.inference_mode()
def test_the_lens_on_the_last_block_gives_the_models_own_logits(case):
    model = case.make()
    scope = layered(model)
    assert scope.lens is not None and scope.lens.kind == "tokens"
    assert scope.is_language_model == case.causal
    inputs = scope.encoder.batch(TEXTS)
    last = states(scope, TEXTS)["raw", scope.stack.depth]
    own = model(**inputs.named).logits
    for row, ids in enumerate(IDS):
        mine = torch.cat(list(scope.lens.token_logits(last[row, : len(ids)], inputs)))
        close(mine, own[row, : len(ids)])


def classifier(kind):
    name, more = {
        "bert": ("Bert", {}),
        "modernbert": (
            "ModernBert",
            {"cls_token_id": 1, "sep_token_id": 2, "classifier_pooling": "mean"},
        ),
        "llama": ("Llama", {"pad_token_id": None}),
        "gpt2 with a pad token": ("GPT2", {}),
    }[kind]
    return of_class(f"{name}ForSequenceClassification", num_labels=4, **more)


@pytest.mark.parametrize(
    "kind, read",
    [
        ("bert", "first"),
        ("modernbert", "mean"),
        ("llama", "last"),
        ("gpt2 with a pad token", "last"),
    ],
)
@torch.inference_mode()
def test_classifiers_logits_and_the_token_they_read(kind, read):
    model = classifier(kind)
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
    scope = layered(next(c for c in TEXT if c.name == "llama").make())
    with pytest.raises(Exception, match="size|shape|expand|must match"):
        # a wrong width
        list(scope.lens.token_logits(torch.randn(2, 7), scope.encoder.batch(TEXTS)))
    assert not any("forward" in m.__dict__ for m in scope.module.modules())
