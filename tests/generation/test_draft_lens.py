"""Drafts through a tuned lens: the model's own text whatever the translators are, and drafts that they mend."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from early_exit.test_drafts_study import opened
from generation.talkers import GREEDY, TOKENIZER, gpt_neox, loud, prompts as words_of
from generation.test_speculation import prompts
from logit_lens.test_translators_refused import publish
from models import zoo
from models.zoo import D, L

from layerscope import LayerscopeError, exits, generate
from layerscope.generation import SelfSpeculation
from layerscope.generation.draft_replay import read
from layerscope.logit_lens.translators import Translators

LAYER, NEW = 2, 24
QUIET: dict[str, Any] = {"processor": TOKENIZER, "progress": False}


def moved() -> Any:
    """Return a model whose blocks after the layer add one vector to every state, and nothing else."""
    model = loud(zoo.gpt2())
    with torch.no_grad():
        for block in model.transformer.h[LAYER:]:
            for part in (block.attn.c_proj, block.mlp.c_proj):
                part.weight.zero_()
                part.bias.zero_()
        last = model.transformer.h[-1].mlp.c_proj.bias
        last.copy_(40 * torch.randn(D, generator=torch.Generator().manual_seed(3)))
    model.generation_config.eos_token_id = None
    return model


def translators(scale: float, bias: torch.Tensor | None = None) -> Translators:
    """Return random maps of a size, or the layer's with this bias alone."""
    found, seeded = Translators(L, D), torch.Generator().manual_seed(1)
    with torch.no_grad():
        for weight in found.parameters():
            weight.copy_(scale * torch.randn(weight.shape, generator=seeded))
        if bias is not None:
            found[LAYER].bias.copy_(bias)
    return found


@pytest.fixture
def lens(tmp_path: Path) -> Path:
    """A folder of translators that make of the layer's states what the last layer gives."""
    found = translators(0.0, moved().transformer.h[-1].mlp.c_proj.bias.detach())
    return publish(tmp_path / "lens", found.state_dict(), L, D)


@pytest.mark.parametrize("make", [zoo.gpt2, zoo.llama, gpt_neox])
@pytest.mark.parametrize("rows", [1, 3])
def test_whatever_drafts_the_text_is_the_model_s(make: Any, rows: int) -> None:
    model, given = loud(make()), prompts(rows)
    plain = model.generate(**given, **GREEDY)
    for scale in (0.0, 0.3):
        drafts = SelfSpeculation(model, LAYER, 3, lens=translators(scale), fall_back=False)
        assert torch.equal(model.generate(**given, **GREEDY, custom_generate=drafts), plain)
        assert drafts.report.drafted


@torch.no_grad()
def test_drafts_are_the_head_on_translated_states_and_verification_reads_them_untouched() -> None:
    model, found, ids = loud(zoo.llama()), translators(0.2), torch.arange(4, 12)[None]
    drafts = SelfSpeculation(model, LAYER, 3, lens=found, fall_back=False)
    split, states = (
        drafts.split,
        model(ids, output_hidden_states=True).hidden_states[LAYER][0, -1].double(),
    )
    wanted = states + found[LAYER].weight.double() @ states + found[LAYER].bias.double()
    with split.open():
        split.start(torch.ones_like(ids[:, :-1]))
        split.prompts(ids[:, :-1])
        logits = split.early(ids[:, -1:], LAYER, head=True)
        own = split.state.clone()
        whole = split.late(ids[:, -1:], LAYER, own)
    assert torch.allclose(own[0, 0].double(), states, atol=1e-5)
    by_hand = model.lm_head(model.model.norm(wanted.float()))
    assert logits is not None and torch.allclose(logits[0], by_hand, atol=1e-4)
    assert torch.allclose(split.read({LAYER: own[:, 0]})[LAYER][0], by_hand, atol=1e-4)
    # the plain lens
    assert not torch.allclose(by_hand, model.lm_head(model.model.norm(states.float())), atol=0.1)
    assert torch.allclose(whole[0, -1], model(ids).logits[0, -1], atol=1e-4)
    prompt, new = ids[0, :4].tolist(), ids[0, 4:].tolist()
    seen = model(torch.tensor([prompt + new[:-1]]), output_hidden_states=True).hidden_states
    for layer in (1, 2):
        each = found.translated(layer, seen[layer][0, len(prompt) :])
        law = model.lm_head(model.model.norm(each)).double().softmax(-1)
        said = read(opened(model), prompt, new, found).sure[layer - 1]
        np.testing.assert_allclose(said, law.amax(-1).numpy(), rtol=1e-5)


def test_translators_mend_what_later_blocks_add(lens: Path, tmp_path: Path) -> None:
    model, texts = moved(), words_of()
    how = {"draft_layer": LAYER, "draft_tokens": 3, "max_new_tokens": NEW, **QUIET}
    plain = generate(model, texts, max_new_tokens=NEW, **QUIET).texts["ids"].tolist()
    without, through = (generate(model, texts, **how, draft_lens=given) for given in (None, lens))
    assert without.texts["ids"].tolist() == through.texts["ids"].tolist() == plain
    assert "(100%)" in through.notes[-1] and "(100%)" not in without.notes[-1]
    study = {
        "data": words_of((9,) * 8),
        "exits": [1, LAYER],
        "min_speedup": 0.01,
        "threshold": 0.0,
        "max_new_tokens": NEW,
        "prefix": 6,
        **QUIET,
    }
    report = exits(model, out=tmp_path / "drafts", draft_lens=lens, **study)
    agreement = report.layers.set_index("layer")["agreement"]
    assert agreement[LAYER] == 1 and report.lens == str(lens) and report.same == report.texts
    assert exits(model, **study).layers.set_index("layer")["agreement"][LAYER] < 1
    as_chosen = generate(model, texts, max_new_tokens=NEW, drafts=tmp_path / "drafts", **QUIET)
    assert as_chosen.texts["ids"].tolist() == plain and (
        report.layer != LAYER or "(100%)" in as_chosen.notes[-1]
    )


def test_refused(lens: Path) -> None:
    with pytest.raises(LayerscopeError, match="`draft_lens` needs a layer that drafts"):
        generate(moved(), "a b c", max_new_tokens=NEW, draft_lens=lens, **QUIET)
    for verb, how in (
        (generate, {"prompt": "a b c", "draft_layer": 1, "max_new_tokens": NEW}),
        (exits, {"data": words_of((9,) * 8), "prefix": 6, "max_new_tokens": NEW}),
    ):
        with pytest.raises(
            LayerscopeError, match="holds other translators .width: 48 there, "
        ) as said:
            verb(
                loud(zoo.gpt2()),
                draft_lens=publish(lens.parent / verb.__name__, {}, L, 48),
                **how,
                **QUIET,
            )
        assert "\n" not in str(said.value)
