"""Language models at every depth against the truncated checkpoint in transformers' own hands."""

import copy
import gc
import pickle
import random
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers as hf
from models import zoo
from models.tokenizer import word_tokenizer, words
from models.zoo import COMMON, L
from scipy.stats import chisquare
from torch import Tensor, nn

from layerscope import LayerscopeError, metrics
from layerscope.core.options import Asked
from layerscope.generation import decoder as opening, generate, score
from layerscope.generation.decoder import MEMORY, open_decoder, open_language_model
from layerscope.generation.generator import chooser, continued, nucleus
from layerscope.truncation import figures, truncate_layers

NEW = 24
TOKENIZER = word_tokenizer()
GROUPED = COMMON | {"num_key_value_heads": 2, "head_dim": 8}


def prompts(lengths: tuple[int, ...] = (3, 12, 5, 20), seed: int = 0) -> list[str]:
    rng = random.Random(seed)
    return [words([rng.randrange(3, 90) for _ in range(n)]) for n in lengths]


def mistral() -> nn.Module:
    return zoo.build(lambda: hf.MistralForCausalLM(hf.MistralConfig(**GROUPED, sliding_window=8)))


def gemma3() -> nn.Module:
    kinds = ["sliding_attention", "full_attention", "sliding_attention"]
    config = hf.Gemma3TextConfig(**GROUPED, sliding_window=8, layer_types=kinds)
    return zoo.build(lambda: hf.Gemma3ForCausalLM(config))


def mamba2() -> nn.Module:
    config = hf.Mamba2Config(
        vocab_size=zoo.V, hidden_size=zoo.D, num_hidden_layers=L, state_size=8, num_heads=8, head_dim=8, n_groups=1,
        chunk_size=8, pad_token_id=0, bos_token_id=1, eos_token_id=2,
    )  # fmt: skip
    return zoo.build(lambda: hf.Mamba2ForCausalLM(config))


def lfm2() -> nn.Module:
    kinds = ["conv", "full_attention", "conv"]
    options = {name: value for name, value in GROUPED.items() if name != "head_dim"}
    return zoo.build(lambda: hf.Lfm2ForCausalLM(hf.Lfm2Config(**options, layer_types=kinds)))


def bamba() -> nn.Module:
    options = {name: value for name, value in GROUPED.items() if name != "head_dim"}
    config = hf.BambaConfig(
        **options, attn_layer_indices=[0], mamba_n_heads=8, mamba_d_head=8, mamba_d_state=8, mamba_chunk_size=8
    )
    return zoo.build(lambda: hf.BambaForCausalLM(config))


def rwkv() -> nn.Module:
    config = hf.RwkvConfig(
        vocab_size=zoo.V, hidden_size=zoo.D, num_hidden_layers=L, attention_hidden_size=zoo.D, context_length=64
    )
    return zoo.build(lambda: hf.RwkvForCausalLM(config))


def loud(model: nn.Module) -> nn.Module:
    """Return a model with larger weights: a quiet one says the same token at every step and depth."""
    seeded = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=seeded) * 0.15)
    return model.eval()


@dataclass
class Family:
    """A model, and its depths as transformers alone loads them."""

    model: Any
    cuts: dict[int, Any]


MAKERS = [zoo.gpt2, zoo.gpt_neox, zoo.opt, zoo.llama, zoo.qwen3, zoo.mamba, mistral, gemma3, mamba2, bamba]


@pytest.fixture(scope="module", params=MAKERS, ids=lambda make: make.__name__)
def family(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Family:
    model, out = loud(request.param()), tmp_path_factory.mktemp("cuts") / "out"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(figures, "FEWEST", 1)
        patch.setattr(figures, "MOST", 1)
        truncate_layers(model, [1, 2], out, processor=TOKENIZER, progress=False)
    cuts = {k: hf.AutoModelForCausalLM.from_pretrained(out / f"layer-{k}").eval() for k in (1, 2)}
    return Family(model, {**cuts, L: model})


@torch.no_grad()
def of_transformers(model: Any, ids: tuple[int, ...], **options: Any) -> tuple[int, ...]:
    """Return the new tokens of `generate` for one prompt alone."""
    given = torch.tensor([ids])
    settings = {"max_new_tokens": NEW, "do_sample": False, "pad_token_id": 0} | options
    found = model.generate(given, attention_mask=torch.ones_like(given), **settings)
    return tuple(found[0, len(ids) :].tolist())


@torch.no_grad()
def forced(model: Any, prompt: tuple[int, ...], ids: tuple[int, ...]) -> Tensor:
    """Return the log-probability of each new token in one forward of the whole text."""
    log_p = model(torch.tensor([[*prompt, *ids]]), use_cache=False).logits[0].double().log_softmax(-1)
    return log_p[len(prompt) - 1 : -1].gather(1, torch.tensor(ids)[:, None])[:, 0]


def told(model: Any, texts: list[str], layer: int | None = None, **options: Any) -> list[Any]:
    return generate(model, texts, layer, **{"max_new_tokens": NEW, "processor": TOKENIZER, "progress": False} | options)


def test_every_depth_says_what_generate_of_the_truncated_model_says(family: Family) -> None:
    texts, seen = prompts(), {}
    for layer, reference in family.cuts.items():
        found = told(family.model, texts, layer)
        assert [one.prompt for one in found] == texts and {one.layer for one in found} == {layer}
        for one in found:
            assert words(list(one.prompt_ids)) == one.prompt
            assert one.ids == of_transformers(reference, one.prompt_ids)
            wanted = forced(reference, one.prompt_ids, one.ids)
            torch.testing.assert_close(torch.tensor(one.log_probs).double(), wanted, rtol=1e-4, atol=1e-4)
        seen[layer] = [one.ids for one in found]
    assert len({tuple(ids) for ids in seen.values()}) == L  # the depths differ,
    assert max(len(set(ids)) for rows in seen.values() for ids in rows) > 3  # and not by one repeated token each
    assert max(len(ids) for rows in seen.values() for ids in rows) == NEW


def test_the_cache_is_used(family: Family) -> None:
    """A decoder that does not trust its cache would say the same, slowly."""
    found = open_language_model(Asked(model=family.model, processor=TOKENIZER))
    for layer in family.cuts:
        decoder = open_decoder(found, layer)
        assert decoder.cached and not decoder.alone
        widths: list[int] = []
        embedding = decoder.module.get_input_embeddings()
        handle = embedding.register_forward_pre_hook(lambda _, args: widths.append(args[0].shape[1]))  # noqa: B023  gone before the next turn
        continued(decoder, {0: [5, 6, 7], 1: [5, 6, 7, 8]}, chooser([0, 1], None, 1.0, 0, 4), 4)
        handle.remove()
        assert widths[0] == 3 and set(widths[1:]) == {1}


@torch.no_grad()
def test_scores_are_those_of_the_truncated_models(family: Family) -> None:
    texts = prompts((7, 2, 30, 12))
    found = score(family.model, texts, processor=TOKENIZER, progress=False)
    assert found.layers == (1, 2, 3) and found.tokens == 6 + 1 + 29 + 11
    every: dict[int, list[Tensor]] = {1: [], 2: [], 3: []}
    for text, nll, correct in zip(texts, found.nll, found.correct, strict=True):
        ids = torch.tensor([[int(word[1:]) for word in text.split()]])
        for place, layer in enumerate(found.layers):
            logits = family.cuts[layer](ids, use_cache=False).logits[0, :-1]
            wanted = nn.functional.cross_entropy(logits, ids[0, 1:], reduction="none")
            torch.testing.assert_close(torch.from_numpy(nll[place]).float(), wanted, rtol=1e-5, atol=1e-5)
            assert correct[place].tolist() == (logits.argmax(-1) == ids[0, 1:]).tolist()
            every[layer].append(wanted)
    for place, layer in enumerate(found.layers):
        assert found.perplexity[place] == pytest.approx(float(torch.cat(every[layer]).mean().exp()), rel=1e-4)
    assert len(set(found.perplexity)) == 3


def test_what_a_model_says_itself_its_score_puts_first() -> None:
    model = loud(zoo.llama())
    known = [one for one in told(model, prompts(), 2, max_new_tokens=9) if all(3 <= token < 90 for token in one.ids)]
    texts = [f"{one.prompt} {words(list(one.ids))}" for one in known]
    found = score(model, texts, (3, 2), processor=TOKENIZER, progress=False)
    assert found.layers == (2, 3) and score(model, texts, 2, processor=TOKENIZER, progress=False).layers == (2,)
    new = [len(one.ids) for one in known]
    assert sum(new) > 18
    hits = [correct[:, -n:] for correct, n in zip(found.correct, new, strict=True)]
    assert all(own[0].all() for own in hits) and not all(own[1].all() for own in hits)
    for one, nll, n in zip(known, found.nll, new, strict=True):
        assert (-nll[0, -n:]).tolist() == pytest.approx(list(one.log_probs), abs=1e-4)
    every = np.concatenate(found.correct, 1)
    assert found.accuracy.tolist() == every.mean(1).tolist() and every.shape[1] == found.tokens


def test_the_real_model_tells_its_stories(shared: Path, tmp_path: Path) -> None:
    source = shared / "models" / "stories260K"
    truncate_layers(source, [3], tmp_path / "out", progress=False)
    texts = ["Once upon a time", "The dog", "Lily and Tom went to the park because they", ""]
    for layer in (3, 5):
        folder = source if layer == 5 else tmp_path / "out" / f"layer-{layer}"
        reference, tokenizer = hf.AutoModelForCausalLM.from_pretrained(folder), hf.AutoTokenizer.from_pretrained(folder)
        for one in generate(source, texts, layer, max_new_tokens=40, progress=False):
            assert one.prompt_ids == tuple(tokenizer(one.prompt)["input_ids"])
            assert one.ids == of_transformers(reference.eval(), one.prompt_ids, max_new_tokens=40)
            assert tokenizer.decode([*one.prompt_ids, *one.ids], skip_special_tokens=True) == one.prompt + one.text
    (story, *_) = generate(source, texts, max_new_tokens=40, progress=False)
    assert story.text.startswith(", there was a little girl named Lily.")
    assert 0 < metrics.diversity(story.ids) <= 1


def test_a_text_stops_at_each_of_its_ends_and_the_others_go_on() -> None:
    model, texts = loud(zoo.llama()), prompts()
    free = told(model, texts)
    model.generation_config.eos_token_id = [free[0].ids[4], free[3].ids[7]]
    found = told(model, texts)
    assert [one.ids for one in found] == [
        of_transformers(model, one.prompt_ids, eos_token_id=model.generation_config.eos_token_id) for one in free
    ]
    assert len(found[0].ids) <= 5 and max(len(one.ids) for one in found) > 8
    assert all(len(one.log_probs) == len(one.ids) for one in found)


@pytest.mark.parametrize(("make", "layer"), [(rwkv, 2), (lfm2, 1)])
@torch.no_grad()
def test_a_cache_that_does_not_hold_is_found_out(make: Callable[[], nn.Module], layer: int, tmp_path: Path) -> None:
    """RWKV's mixes the texts of a batch, and a hybrid cut to convolutions cannot tell how long its text is."""
    model = loud(make())
    truncate_layers(model, [layer], tmp_path / "out", processor=TOKENIZER, progress=False)
    reference = hf.AutoModelForCausalLM.from_pretrained(tmp_path / "out" / f"layer-{layer}").eval()
    for one in told(model, prompts((4, 7, 4)), layer, max_new_tokens=8):
        ids = list(one.prompt_ids)
        for _ in range(8):
            ids.append(int(reference(torch.tensor([ids]), use_cache=False).logits[0, -1].argmax()))
        assert one.ids == tuple(ids[-8:])


@pytest.mark.parametrize("top_p", [0.05, 0.5, 0.9, 1.0])
@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.0])
def test_the_nucleus_is_the_fewest_tokens_that_reach_the_mass(top_p: float, temperature: float) -> None:
    log_p = (torch.randn(6, 40, generator=torch.Generator().manual_seed(0)) * 3).log_softmax(-1)
    found = nucleus(log_p, top_p, temperature).numpy()
    for row, mine in zip(log_p.double().numpy(), found, strict=True):
        p = np.exp(row / temperature)
        p /= p.sum()
        wanted, mass = np.zeros(40), 0.0
        for token in np.argsort(-p):
            if mass >= top_p:
                break
            wanted[token], mass = p[token], mass + p[token]
        np.testing.assert_allclose(mine, wanted / wanted.sum(), rtol=1e-9, atol=1e-12)
    if top_p == 1 and temperature == 1:
        np.testing.assert_allclose(found, log_p.double().exp().numpy(), rtol=1e-6)


@pytest.mark.parametrize(("top_p", "temperature"), [(1.0, 1.0), (0.8, 1.5)])
@torch.no_grad()
def test_draws_come_as_often_as_the_nucleus_says(top_p: float, temperature: float) -> None:
    model, n = loud(zoo.llama()), 2000
    found = told(model, ["w7 w8 w9"] * n, max_new_tokens=1, top_p=top_p, temperature=temperature, batch_size=500)
    logits = model(torch.tensor([[7, 8, 9]])).logits[0, -1].double().numpy()
    p = np.exp((logits - logits.max()) / temperature)
    p /= p.sum()
    order = np.argsort(-p)
    kept = order[np.cumsum(p[order]) - p[order] < top_p]
    counts = np.bincount([one.ids[0] for one in found], minlength=zoo.V)
    assert counts[kept].sum() == n and (top_p == 1) == (len(kept) == zoo.V)
    expected = p[kept] / p[kept].sum() * n
    often = expected >= 5
    assert often.sum() >= 5
    rare = [counts[kept][~often].sum()], [expected[~often].sum()]
    shown = np.append(counts[kept][often], rare[0]), np.append(expected[often], rare[1])
    assert chisquare(*(values[shown[1] > 0] for values in shown)).pvalue > 0.01


def test_draws_belong_to_the_seed_and_the_prompt_alone() -> None:
    model, texts = loud(zoo.gpt2()), prompts()
    first = told(model, texts, 2, top_p=0.9)
    assert [one.ids for one in told(model, texts, 2, top_p=0.9, batch_size=1)] == [one.ids for one in first]
    assert told(model, texts[:2], 2, top_p=0.9)[1].ids == first[1].ids
    assert told(model, texts, 2, top_p=0.9, seed=1)[0].ids != first[0].ids
    assert len({one.ids for one in told(model, [texts[0]] * 3, top_p=1.0)}) == 3
    assert [one.ids for one in told(model, texts, top_p=1e-9)] == [one.ids for one in told(model, texts)]


def state(model: Any) -> tuple[Any, ...]:
    modules = list(model.modules())
    hooks = [(dict(m._forward_hooks), dict(m._forward_pre_hooks), "forward" in vars(m)) for m in modules]
    told = model.config.to_dict(), model.generation_config.to_dict(), [m.training for m in modules]
    return *map(copy.deepcopy, told), hooks, {name: weight.clone() for name, weight in model.state_dict().items()}


def unchanged(before: tuple[Any, ...], after: tuple[Any, ...]) -> None:
    assert before[:-1] == after[:-1]
    torch.testing.assert_close(after[-1], before[-1], rtol=0, atol=0, equal_nan=True)


class Stop(Exception):
    """What comes from outside, in the middle of the work."""


@pytest.mark.parametrize("call", ["full depth", "cut", "score"])
def test_the_model_is_left_as_it_was_whatever_happens(call: str) -> None:
    model = loud(zoo.llama()).train()
    model.model.layers[0].eval()
    calls, last = 0, 10**9

    def count(*_: object) -> None:
        nonlocal calls
        calls += 1
        if calls == last:
            raise Stop

    def work() -> None:
        model.__dict__.pop(MEMORY, None)  # what an earlier call found out: every one is to probe
        if call == "score":
            score(model, prompts(), processor=TOKENIZER, progress=False)
        else:
            told(model, prompts(), None if call == "full depth" else 1)

    model.model.embed_tokens.register_forward_pre_hook(count)
    before = state(model)
    work()
    unchanged(before, state(model))
    for last in (calls, calls // 2):  # noqa: B007  the hook reads it
        calls = 0
        with pytest.raises((Stop, LayerscopeError)):  # the probe for a head tells it as its own
            work()
        assert calls >= last
        unchanged(before, state(model))


def broken() -> Any:
    """Return a model that gives NaN from word w50 on."""
    model = loud(zoo.llama())
    with torch.no_grad():
        model.get_input_embeddings().weight[50] = torch.nan
    return model


REFUSED = [
    ({"prompts": []}, "prompts are a list of texts: give one or more strings in a list"),
    ({"prompts": "w3 w4"}, "prompts are a list of texts: give one or more strings in a list"),
    ({"prompts": ["w3", 4]}, "prompts are a list of texts"),
    ({"prompts": ["w3", ""]}, r"prompt 1 \(''\) has no token, and the tokenizer has none that begins a text"),
    (
        {"prompts": ["w3", words([5] * 70)]},
        r"prompt 1 has 70 tokens, and the model has room for [0-9]+: shorten it$",
    ),
    (
        {"prompts": ["w3", words([5] * 60)]},
        r"prompt 1 has 60 tokens, and the model has room for [0-9]+: shorten it, or try `max_new_tokens=4`",
    ),
    ({"layer": 4}, r"layer 4 does not exist: this model has layers 0\.\.3"),
    ({"layer": 0}, "layer 0 is what the first block reads"),
    ({"layer": "2"}, "layer is '2': give a whole number"),
    ({"top_p": 0}, "top_p is 0: give a number above 0 and at most 1"),
    ({"top_p": 1.1}, "top_p is 1.1: give a number above 0"),
    ({"top_p": float("nan")}, "top_p is nan: give"),
    ({"temperature": 0}, "temperature is 0: give a number above 0"),
    ({"temperature": -1.0}, "temperature is -1: give"),
    ({"max_new_tokens": 0}, "max_new_tokens is 0: give a whole number of at least 1"),
    ({"batch_size": 0}, "batch_size is 0: give a whole number of at least 1"),
    ({"seed": -1}, "seed is -1: give a whole number from 0"),
]


@pytest.mark.parametrize(("wrong", "line"), REFUSED, ids=lambda value: str(value)[:30])
def test_wrong_input_is_one_line(wrong: dict[str, Any], line: str) -> None:
    with pytest.raises(LayerscopeError, match=line) as caught:
        told(zoo.gpt2(), **{"texts": wrong.pop("prompts", ["w3 w4"])} | wrong)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("make", [zoo.bert, zoo.t5, zoo.vit], ids=lambda make: make.__name__)
def test_what_is_no_language_model(make: Callable[[], nn.Module]) -> None:
    model = make()
    for call in (generate, score):
        with pytest.raises(
            LayerscopeError, match=rf"^{type(model).__name__} is not a language model that continues a text"
        ):
            call(model, ["w3 w4"], processor=TOKENIZER, progress=False)


def test_nan_is_told_with_its_layer_and_place() -> None:
    with pytest.raises(LayerscopeError, match="layer 2 gives NaN after 6 tokens of prompt 1: check"):
        told(broken(), ["w3 w4 w5", "w3 w4 w5 w6 w7 w50 w8 w9"], 2)
    with pytest.raises(LayerscopeError, match="layer 1 gives NaN on text 1: check its weights"):
        score(broken(), ["w3 w4 w5", "w3 w50 w5"], processor=TOKENIZER, progress=False)


def test_texts_that_cannot_be_scored() -> None:
    for texts, line in (
        ([], "texts are a list of texts"),
        (["w3 w4", "w3"], "text 1 has one token, and nothing to predict: leave it out"),
        ([words([5] * 65)], "text 0 has 65 tokens, and the model has room for 64: shorten it"),
    ):
        with pytest.raises(LayerscopeError, match=line):
            score(zoo.gpt2(), texts, processor=TOKENIZER, progress=False)
    with pytest.raises(LayerscopeError, match="layers is empty: give whole numbers"):
        score(zoo.gpt2(), ["w3 w4"], [], processor=TOKENIZER, progress=False)


def test_an_empty_prompt_begins_a_text_where_the_tokenizer_can() -> None:
    tokenizer = word_tokenizer()
    tokenizer.bos_token = "[CLS]"
    (one,) = told(zoo.gpt2(), [""], processor=tokenizer)
    assert one.prompt_ids == (1,) and len(one.ids) == NEW


def test_a_model_that_stays_is_probed_once_and_one_that_changes_again(monkeypatch: pytest.MonkeyPatch) -> None:
    model, probed, find = zoo.llama(), [], opening.find_layers
    monkeypatch.setattr(opening, "find_layers", lambda *given, **how: probed.append(1) or find(*given, **how))

    def ids(model: Any, layer: int | None = None) -> tuple[int, ...]:
        (made,) = generate(model, ["w1 w2 w3"], layer, processor=TOKENIZER, max_new_tokens=6, progress=False)
        return made.ids

    first = ids(model), ids(model, 2)
    assert (ids(model), ids(model, 2)) == first and len(probed) == 1
    with torch.no_grad():
        model.lm_head.weight.copy_(model.lm_head.weight.flip(0))
    fresh = zoo.llama()
    fresh.load_state_dict(model.state_dict())
    assert (ids(model), ids(model, 2)) == (ids(fresh), ids(fresh, 2)) != first
    model.generation_config.eos_token_id = ids(model, 2)[0]
    assert len(ids(model, 2)) == 1, "what ends a text is read again"
    there = len(probed)
    assert ids(copy.deepcopy(model), 2) == ids(model, 2) and len(probed) == there + 1
    assert b"layerscope." not in pickle.dumps(model), "it loads where this package is not"
    gone = weakref.ref(model)
    del model
    gc.collect()
    assert gone() is None
