"""Self-speculative decoding: the text of `model.generate`, with drafts accepted and rejected, in every family."""

import pytest
import torch
import transformers as hf
from generation import talkers
from generation.drafting import (
    DRAFTED,
    LAYER,
    LONG,
    NEW,
    PROMPT,
    QUIET,
    drafting,
    made,
    prompts,
    same_text,
)
from generation.talkers import GREEDY, family, loud
from models import zoo
from models.zoo import V
from scipy.stats import chisquare
from typed import refused

from layerscope.generation import SelfSpeculation, generate

WINDOW = 8
gpt_neo = family(
    "GPTNeo",
    attention_types=[[["local", "global", "local"], 1]],
    window_size=WINDOW,
    max_position_embeddings=PROMPT + NEW,
)
mpt = family("Mpt", max_seq_len=PROMPT + NEW)


def windowed(name, kind="sliding_attention", **options):
    """Return what makes a model whose first and last layer see a few tokens only."""
    kinds = {"sliding_window": WINDOW, "layer_types": [kind, "full_attention", kind]}
    return family(name, **kinds | options)


FAMILIES = [
    zoo.gpt2,
    talkers.gpt_neox,
    zoo.opt,
    zoo.llama,
    talkers.qwen3,
    zoo.mixtral,
    talkers.phi3,
    zoo.gemma2,
    *map(family, ("GPTJ", "Bloom", "Falcon", "Olmo2", "StableLm")),
    talkers.mistral,
    talkers.gemma3,
    gpt_neo,
    mpt,
    windowed("Cohere2"),
    windowed("Phi3", layer_types=None),
    windowed("Gemma2"),
    windowed("Qwen2", use_sliding_window=True),
    windowed("GptOss"),
    windowed(
        "Llama4",
        "chunked_attention",
        attention_chunk_size=WINDOW,
        intermediate_size_mlp=64,
    ),
]
"""Those with a window, a length of positions or both fill them: prompts and new tokens are longer than the window."""


@pytest.mark.parametrize(
    "make, rows",
    [*((make, 5) for make in FAMILIES), (zoo.llama, 1), (gpt_neo, 1), (mpt, 1)],
    ids=talkers.name_of,
)
def test_the_text_is_that_of_generate(make, rows):
    model = made(make)
    options = prompts(rows) | LONG
    speculation = drafting(model)
    text = same_text(model, speculation, **options)
    report = speculation.report
    assert 0 < report.accepted < report.drafted
    assert report.plain < rows * 5  # but where a single token is left to write
    # nothing is left in the model
    assert torch.equal(model.generate(**options), text)


def test_each_block_runs_once_for_a_token():
    model = made(zoo.llama)
    speculation, prompt = drafting(model), prompts(1)
    lengths = [[] for _ in range(zoo.L)]
    for block, tokens in zip(speculation.split.blocks, lengths, strict=True):
        block.self_attn.q_proj.register_forward_hook(
            lambda _, args, __, tokens=tokens: tokens.append(args[0].shape[1])
        )
    options = LONG | {"max_new_tokens": NEW + 1}
    model.generate(**prompt, **options, custom_generate=speculation)
    report = speculation.report
    verified = report.drafted + report.rounds
    runs = [len(tokens) for tokens in lengths]
    assert [*map(sum, lengths)] == [PROMPT + verified + report.plain] * zoo.L
    assert runs[LAYER:] == [1 + report.rounds + report.plain] * (zoo.L - LAYER)
    assert runs[:LAYER] == [1 + verified + report.plain] * LAYER
    assert speculation.scheduler.costs.seen["bare", LAYER, 1]


def test_sampling_follows_the_model():
    """Two tokens of 20,000 texts against the model's own law."""
    model, draws = made(zoo.llama, 3.0), 20_000
    how = {"do_sample": True, "temperature": 1.3, "top_k": 5, "top_p": 0.9}
    prompt = torch.tensor([[5, 6, 7]])
    speculation = drafting(model, 1, 2)
    torch.manual_seed(0)
    text = model.generate(
        prompt.expand(draws, -1),
        attention_mask=torch.ones(draws, 3),
        max_new_tokens=3,
        min_new_tokens=3,
        pad_token_id=0,
        custom_generate=speculation,
        **how,
    )
    continued = torch.cat([prompt.expand(V, -1), torch.arange(V)[:, None]], 1)
    law = law_of(model, prompt, how)[0][:, None] * law_of(model, continued, how)
    counts = torch.bincount(text[:, 3] * V + text[:, 4], minlength=V * V).view(V, V)
    assert not counts[law == 0].any()
    assert 0 < speculation.report.acceptance < 1
    cells = law > 0
    assert chisquare(counts[cells], draws * law[cells]).pvalue > 0.01


@torch.no_grad()
def law_of(model, ids, how):
    """Return the law of the next token, the end of a text being forbidden, as transformers draws from it."""
    logits = model(ids, use_cache=False).logits[:, -1].float()
    logits[:, 2] = -torch.inf
    logits = hf.TemperatureLogitsWarper(how["temperature"])(ids, logits)
    logits = hf.TopPLogitsWarper(how["top_p"])(
        ids, hf.TopKLogitsWarper(how["top_k"])(ids, logits)
    )
    return logits.double().softmax(-1)


SETTINGS = [
    {"repetition_penalty": 1.5, "no_repeat_ngram_size": 2},
    {"eos_token_id": [17, 30, 45, 61, 77]},
    {"min_new_tokens": 20, "eos_token_id": [8, 22, 56, 61, 84]},
    {
        "forced_eos_token_id": 9,
        "bad_words_ids": [[7], [8, 22]],
        "suppress_tokens": [12],
    },
    {"max_length": 30, "max_new_tokens": None},
]


@pytest.mark.parametrize("settings", SETTINGS)
def test_the_model_s_generation_settings_hold(settings):
    model = made(zoo.llama)
    speculation, options = drafting(model), prompts(4) | LONG | settings
    text = same_text(model, speculation, **options)
    free = options | dict.fromkeys(settings) | {"max_new_tokens": NEW}
    assert not torch.equal(text, model.generate(**free))
    assert speculation.report.drafted


def test_a_stop_of_the_caller_and_a_streamer():
    model, tokenizer = made(zoo.llama), talkers.TOKENIZER
    options = prompts(1) | LONG
    full = model.generate(**options)[0, 12:].tolist()

    class After(hf.StoppingCriteria):
        def __call__(self, input_ids, scores, **_):
            return input_ids[:, -1] == full[9]

    seen = []

    class Keeps(hf.TextStreamer):
        def put(self, value):
            seen.extend(value.view(-1).tolist())

        def end(self):
            seen.append(-1)

    speculation = SelfSpeculation(model, LAYER, DRAFTED)
    options |= {"stopping_criteria": [After()], "streamer": Keeps(tokenizer)}
    found = model.generate(**options, custom_generate=speculation)[0]
    assert found[12:].tolist() == full[: full.index(full[9]) + 1]
    assert seen == [*found.tolist(), -1]
    with refused("a streamer takes one text, and there are 3"):
        model.generate(**options | prompts(3), custom_generate=speculation)


def test_a_vocabulary_smaller_than_the_texts_that_models_are_tried_on():
    model = loud(zoo.of_class("LlamaForCausalLM", vocab_size=6))
    ids = torch.tensor([[3, 4, 5]])
    same_text(model, drafting(model, 2, 1), input_ids=ids, **GREEDY)


def test_plain_decoding_where_drafts_do_not_pay():
    """Random weights: an early layer never agrees, so after a few tokens nothing is drafted but a rare trial."""
    model = loud(zoo.llama())
    options = prompts(2) | GREEDY | {"max_new_tokens": 128, "eos_token_id": 98}
    speculation = SelfSpeculation(model)
    same_text(model, speculation, **options)
    assert speculation.report.plain > 0.8 * speculation.report.tokens
    assert "do not pay" in str(speculation.report)


def test_the_verb_tells_the_same_text_and_what_was_drafted():
    model, texts = made(zoo.llama), talkers.prompts()
    how = QUIET | {"max_new_tokens": 24}
    plain = generate(model, texts, **how)
    drafted = generate(model, texts, draft_layer=2, draft_tokens=3, **how)
    assert drafted.texts["ids"].tolist() == plain.texts["ids"].tolist()
    assert "tokens per second" in drafted.notes[-1]
    one, other = (
        generate(model, texts, top_p=0.9, draft_layer=2, draft_tokens=2, **how)
        for _ in range(2)
    )
    assert one.texts["text"].tolist() == other.texts["text"].tolist()
    with refused("leave `layers` out"):
        generate(model, texts, layers=2, draft_layer=1, **how)
    with refused("try `draft_layer='auto'`"):
        generate(model, texts, draft_tokens=3, **how)
